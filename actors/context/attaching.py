"""A session's attachments: looks for what changed after each turn's tools, and tells each thing once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Final

import attrs

from atrio.runtime.messages import UserMessage
from atrio.runtime.tool import FileState

from .attachments import (
    Kind,
    TaskLine,
    changed_files,
    environment_news,
    mode_change,
    nested_instructions,
    new_day,
    queued_commands,
    relevant_memories,
    relevant_skills,
    task_reminder,
)
from .changes import FileChange, FileWatch
from .instruction_reader import InstructionFile
from .instructions import NestedInstructions
from .prefetch import Found, Prefetch

__all__ = ["TASK_TOOLS", "Attached", "Attachments", "TurnFacts"]

TASK_TOOLS: Final = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet"})
"""Tools that keep the model's task list."""

REMINDER_TURNS: Final = 10
"""So many turns without the task list call for a reminder, and so many lie between two."""


@attrs.frozen(kw_only=True)
class TurnFacts:
    """
    What a turn left behind.

    Args:
        new_id: gives a message's uuid for its kind.
        files: the session's record of files (`ToolContext.files`).
        touched: further files (real paths) that tools worked on.
        used_tools: names of the tools that the turn called.
        tools: names of all tools that the model may call now; None: as before.
        queued: what the user or a background task said meanwhile.
        today: the date; ``mode`` the permission mode. None: as before.
        tasks: the model's task list.
        news: texts about the environment: ended background jobs, what hooks said.
    """

    new_id: Callable[[Kind], str]
    files: Mapping[Path, FileState] = attrs.field(factory=dict)
    touched: Sequence[Path] = ()
    used_tools: Sequence[str] = ()
    tools: Sequence[str] | None = None
    queued: Sequence[str] = ()
    today: date | None = None
    mode: str | None = None
    tasks: Sequence[TaskLine] = ()
    news: Sequence[str] = ()


@attrs.frozen(kw_only=True)
class Attached:
    """The messages to put behind a turn's tool results, and warnings for the user."""

    messages: tuple[UserMessage, ...] = ()
    warnings: tuple[str, ...] = ()


@attrs.define(eq=False, kw_only=True)
class Attachments:
    """
    One session's memory of what its model has been told.

    Args:
        nested: instructions below the working directory; None: they are not looked for.
        prefetch: where memories and skills are found; None: they are not looked for.
        today, tools, mode: as the session began, which the model knows from its prompt.
    """

    nested: NestedInstructions | None = None
    prefetch: Prefetch | None = None
    today: date | None = None
    tools: tuple[str, ...] | None = None
    mode: str | None = None
    _watch: FileWatch = attrs.field(factory=FileWatch, init=False)
    _instructions: list[InstructionFile] = attrs.field(factory=list, init=False)
    _changes: list[FileChange] = attrs.field(factory=list, init=False)
    _warnings: list[str] = attrs.field(factory=list, init=False)
    _turns_unused: int = attrs.field(default=0, init=False)
    _turns_unreminded: int = attrs.field(default=0, init=False)

    async def after_tools(self, facts: TurnFacts) -> Attached:
        """
        What there is to tell after a turn's tools. Files are looked at; nothing else is waited for.

        Cancelled: what was found is told the next time.
        """
        if self.nested is not None:
            files, warnings = await self.nested.touch((*facts.files, *facts.touched))
            self._instructions += files
            self._warnings += warnings
        self._changes += await self._watch.look(facts.files)
        found = self.prefetch.take(facts.files) if self.prefetch is not None else Found()
        messages = tuple(message for message in self._messages(facts, found) if message is not None)
        warnings = (*self._warnings, *found.warnings)
        self._instructions.clear()
        self._changes.clear()
        self._warnings.clear()
        return Attached(messages=messages, warnings=warnings)

    def forget(self) -> None:
        """After a compaction: nested instructions, memories and skills may be told again when they next matter."""
        if self.nested is not None:
            self.nested.forget()
        if self.prefetch is not None:
            self.prefetch.forget()

    def _messages(self, facts: TurnFacts, found: Found) -> Iterator[UserMessage | None]:
        new_id = facts.new_id
        yield queued_commands(new_id("queued_command"), facts.queued)
        yield changed_files(new_id("changed_files"), self._changes)
        yield nested_instructions(new_id("nested_instructions"), self._instructions)
        yield relevant_memories(new_id("relevant_memories"), found.memories)
        yield relevant_skills(new_id("relevant_skills"), found.skills)
        yield self._task_reminder(facts)
        yield new_day(new_id("new_day"), self.today, facts.today)
        yield mode_change(new_id("mode_change"), self.mode, facts.mode)
        yield self._environment(facts)
        self.today = facts.today or self.today
        self.mode = facts.mode or self.mode

    def _task_reminder(self, facts: TurnFacts) -> UserMessage | None:
        used = bool(TASK_TOOLS.intersection(facts.used_tools))
        self._turns_unused = 0 if used else self._turns_unused + 1
        self._turns_unreminded += 1
        offered = facts.tools if facts.tools is not None else self.tools or ()
        due = min(self._turns_unused, self._turns_unreminded) >= REMINDER_TURNS
        if not due or not TASK_TOOLS.intersection(offered):
            return None
        self._turns_unreminded = 0
        return task_reminder(facts.new_id("task_reminder"), facts.tasks, self._turns_unused)

    def _environment(self, facts: TurnFacts) -> UserMessage | None:
        before, now = self.tools, facts.tools
        if now is not None:
            self.tools = tuple(now)
        known = before is not None and now is not None
        return environment_news(
            facts.new_id("environment"),
            new_tools=[name for name in now or () if name not in (before or ())] if known else (),
            lost_tools=[name for name in before or () if name not in (now or ())] if known else (),
            news=facts.news,
        )
