"""
The user context: what the project says, as a hidden first message that is put before the history at each request.

It is not part of the history, so compaction can't touch it: instructions reach the model byte for byte, always. It
is kept out of the system prompt so that sessions of different projects share that. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final

from atrio.runtime.messages import Message, UserMessage

from .instruction_reader import InstructionFile, Scope
from .memory import Recollection
from .project import ProjectContext
from .reminders import hidden_message
from .texts import printable

__all__ = ["USER_CONTEXT_ID", "instructions_text", "memory_text", "user_context_message", "with_user_context"]

USER_CONTEXT_ID: Final = "user-context"
"""The message's uuid. It is never stored, so one for all sessions will do."""

_SCOPES: Final[dict[Scope, str]] = {
    "managed": "set by the administrator of this machine, for everybody",
    "user": "the user's own, for all projects",
    "project": "of the project",
    "local": "the user's own, for this project",
}

_OPENING: Final = "Use the following context where it helps with the task."
_INSTRUCTIONS: Final = (
    "Instructions of the project and the user. They come before what you would do otherwise; follow them as written. "
    "Where two disagree, the later one counts."
)
_CLOSING: Final = (
    "This context may or may not bear on the task at hand; leave aside what doesn't. Nobody wrote it as a request."
)


def user_context_message(project: ProjectContext, today: date | None) -> UserMessage | None:
    """
    The message, or None if there is nothing to say.

    ``today`` should be the day on which the session began: a date that changes would change the beginning of each
    request, and so void the provider's cache of the whole conversation. A new day is told by an attachment instead.
    """
    sections: list[str] = []
    if project.instructions.files:
        sections.append(f"# instructions\n{_INSTRUCTIONS}\n\n{instructions_text(project.instructions.files)}")
    if project.memory.index is not None:
        sections.append(f"# memory\n{memory_text(project.memory.index)}")
    if today is not None:
        sections.append(f"# currentDate\nToday's date is {today.isoformat()}.")
    if not sections:
        return None
    return hidden_message(USER_CONTEXT_ID, "\n\n".join((_OPENING, *sections, _CLOSING)), pinned=True)


def instructions_text(files: Iterable[InstructionFile]) -> str:
    """The files one after the other, each under its path, their texts to the byte."""
    return "\n\n".join(f"Contents of {printable(file.path)} ({_about(file)}):\n\n{file.text}" for file in files)


def _about(file: InstructionFile) -> str:
    about = _SCOPES[file.scope]
    if file.imported_by is not None:
        about += f", imported by {printable(file.imported_by)}"
    return f"{about}, for {', '.join(file.globs)}" if file.globs else about


def memory_text(index: Recollection) -> str:
    """The memory's index, with where it is."""
    more = "\n[Only its beginning is shown; read the file for the rest.]" if index.cut else ""
    return (
        f"Notes kept from earlier sessions, in {printable(index.path.parent)}; check what they say before you rely "
        f"on it.\nContents of {printable(index.path)}:\n\n{index.text}{more}"
    )


def with_user_context(messages: Sequence[Message], context: UserMessage | None) -> Sequence[Message]:
    """The history as it is sent: with the context first, or unchanged if there is none."""
    return messages if context is None else (context, *messages)
