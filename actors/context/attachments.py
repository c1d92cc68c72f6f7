"""
What the model is told between its turns, as pure functions from facts to hidden messages.

Seven kinds: queued commands, changed files, nested instructions, memories, skills, reminders, and news of the
environment. Each function gives None when there is nothing to tell. The messages stand behind the tool results of
their turn, as the API wants results first.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final, Literal, TypeAlias

import attrs

from atrio.runtime.messages import UserMessage

from .changes import FileChange
from .instruction_reader import InstructionFile
from .memory import Recollection
from .reminders import harmless, hidden_message
from .skills import Skill, skill_listing
from .texts import printable
from .user_context import instructions_text

__all__ = [
    "Kind",
    "TaskLine",
    "changed_files",
    "environment_news",
    "mode_change",
    "nested_instructions",
    "new_day",
    "queued_commands",
    "relevant_memories",
    "relevant_skills",
    "task_reminder",
]

DIFF_BYTES: Final = 8_192
"""Of one changed file; the model can read the rest."""

MAX_DIFFS: Final = 5
"""Files of one message whose changes are shown; a checkout of another branch changes hundreds."""

MAX_NAMED: Final = 50
MAX_TASKS: Final = 50
NEWS_CHARS: Final = 10_000

Kind: TypeAlias = Literal[
    "queued_command",
    "changed_files",
    "nested_instructions",
    "relevant_memories",
    "relevant_skills",
    "task_reminder",
    "new_day",
    "mode_change",
    "environment",
]


@attrs.frozen
class TaskLine:
    """One entry of the model's task list, as its tool keeps it."""

    text: str
    status: str


def queued_commands(uuid: str, texts: Sequence[str]) -> UserMessage | None:
    """What the user (or a task in the background) said while the turn was running, in order."""
    said = [text for text in texts if text.strip()]
    if not said:
        return None
    shown = "\n\n".join(harmless(text) for text in said)
    return hidden_message(
        uuid, f"While you were working, this came for you; take it into account and go on:\n\n{shown}", pinned=True
    )


def changed_files(uuid: str, changes: Sequence[FileChange]) -> UserMessage | None:
    """Files that are not any more as the model read them."""
    if not changes:
        return None
    parts = [_change(change) for change in changes[:MAX_DIFFS]]
    named = [harmless(printable(change.path)) for change in changes[MAX_DIFFS:]]
    if named:
        more = f"\n... and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
        parts.append("Also changed or gone:\n" + "\n".join(named[:MAX_NAMED]) + more)
    opening = (
        "Files that you have read were changed since, by the user, a formatter or a command. Such changes are meant: "
        "don't undo them unless you are asked to. Read a file again before you edit it."
    )
    return hidden_message(uuid, "\n\n".join((opening, *parts)))


def _change(change: FileChange) -> str:
    name = harmless(printable(change.path))
    if change.gone:
        return f"{name} is gone."
    if not change.diff:
        return f"{name} was changed."
    diff = change.diff.encode("utf-8", "replace")
    note = "\n... (cut; read the file for the rest)" if len(diff) > DIFF_BYTES else ""
    return f"{name} was changed, {harmless(diff[:DIFF_BYTES].decode('utf-8', 'ignore'))}{note}"


def nested_instructions(uuid: str, files: Sequence[InstructionFile]) -> UserMessage | None:
    """Instructions of folders and rules that a file just touched brought up. Their texts stay as they are."""
    if not files:
        return None
    opening = "These instructions also hold for the files that you have just worked on; follow them there."
    return hidden_message(uuid, f"{opening}\n\n{instructions_text(files)}")


def relevant_memories(uuid: str, memories: Sequence[Recollection]) -> UserMessage | None:
    """Notes of earlier sessions that may matter now."""
    if not memories:
        return None
    parts = [
        f"{printable(memory.path)}:\n\n{harmless(memory.text)}"
        + ("\n[Only its beginning is shown; read the file for the rest.]" if memory.cut else "")
        for memory in memories
    ]
    opening = "Notes of earlier sessions that may matter here. They may be out of date: check before you rely on them."
    return hidden_message(uuid, "\n\n".join((opening, *parts)))


def relevant_skills(uuid: str, skills: Sequence[Skill]) -> UserMessage | None:
    """Skills that seem to fit what is being done."""
    listing = skill_listing(skills)
    if not listing:
        return None
    return hidden_message(uuid, f"These skills may fit what you are doing; read one before you rely on it:\n{listing}")


def task_reminder(uuid: str, tasks: Sequence[TaskLine], turns: int) -> UserMessage | None:
    """That the task list was not used for so many turns, and how it stands. The caller says when that is due."""
    if tasks:
        lines = [f"- [{harmless(task.status)}] {harmless(task.text)}" for task in tasks[:MAX_TASKS]]
        if len(tasks) > MAX_TASKS:
            lines.append(f"- ... and {len(tasks) - MAX_TASKS} more")
        state = "It stands like this:\n" + "\n".join(lines)
    else:
        state = "It is empty."
    return hidden_message(
        uuid,
        f"The task list has not been used for {turns} turns. If it helps with this work, bring it up to date; if not, "
        f"leave it. {state}",
    )


def new_day(uuid: str, before: date | None, today: date | None) -> UserMessage | None:
    """That midnight has passed."""
    if today is None or before is None or today == before:
        return None
    return hidden_message(uuid, f"The date has changed: today is {today.isoformat()}.")


def mode_change(uuid: str, before: str | None, mode: str | None) -> UserMessage | None:
    """That other permissions hold now."""
    if mode is None or before is None or mode == before:
        return None
    meaning = (
        " Nothing may be changed: find out what is needed, and answer with a plan."
        if mode == "plan"
        else " The plan may be carried out now."
        if before == "plan"
        else ""
    )
    return hidden_message(uuid, f"The permission mode is {mode} now; it was {before}.{meaning}")


def environment_news(
    uuid: str, *, new_tools: Sequence[str] = (), lost_tools: Sequence[str] = (), news: Sequence[str] = ()
) -> UserMessage | None:
    """Tools that came or went, and other news (a background job ended, a hook had something to say)."""
    parts: list[str] = []
    if new_tools:
        parts.append(f"These tools can be called from now on: {', '.join(new_tools)}.")
    if lost_tools:
        parts.append(f"These tools can't be called any more: {', '.join(lost_tools)}.")
    parts += (_cut(harmless(text)) for text in news if text.strip())
    return hidden_message(uuid, "\n\n".join(parts)) if parts else None


def _cut(text: str) -> str:
    return text if len(text) <= NEWS_CHARS else f"{text[:NEWS_CHARS]}\n... (cut after {NEWS_CHARS:,} characters)"
