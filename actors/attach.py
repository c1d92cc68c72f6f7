"""What joins a conversation beside it: looks, before each request, at what changed around the session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

import attrs

from atrio.runtime.messages import AssistantMessage, Message, UserMessage
from atrio.runtime.tool import FileState
from atrio.tools.background import BackgroundShells
from atrio.tools.background_tools import describe_shell

from .context.attaching import Attached, Attachments, TurnFacts
from .context.attachments import TaskLine

__all__ = ["Attacher"]


@attrs.define(eq=False, kw_only=True)
class Attacher:
    """One session's; `look` tells each thing once."""

    attachments: Attachments
    files: Mapping[Path, FileState]
    new_id: Callable[[], str]
    today: Callable[[], date]
    tools: Sequence[str]
    mode: str
    tasks: Callable[[], Sequence[TaskLine]] = tuple
    background: BackgroundShells | None = None
    _ended: set[str] = attrs.field(factory=set)

    async def look(self, messages: Sequence[Message]) -> Attached:
        """What there is to tell behind these messages. Cancelled: it is told the next time."""
        return await self.attachments.after_tools(
            TurnFacts(
                new_id=lambda kind: self.new_id(),
                files=self.files,
                used_tools=_used_tools(messages),
                tools=self.tools,
                today=self.today(),
                mode=self.mode,
                tasks=self.tasks(),
                news=self._news(),
            )
        )

    def _news(self) -> Sequence[str]:
        """Commands in the background that have ended by themselves since the last time."""
        if self.background is None:
            return ()
        ended = [each for each in self.background.all() if not each.running and each.id not in self._ended]
        self._ended.update(each.id for each in ended)
        return [f"{describe_shell(each)} Read what it printed with BashOutput." for each in ended if not each.killed]

    def forget(self) -> None:
        """The history was compacted: what it had been told may be told again."""
        self.attachments.forget()


def _used_tools(messages: Sequence[Message]) -> Sequence[str]:
    """The tools of the turn that has just ended; none if the user spoke last."""
    if not messages or not isinstance(messages[-1], UserMessage) or messages[-1].origin != "tool_results":
        return ()
    last = next((message for message in reversed(messages) if isinstance(message, AssistantMessage)), None)
    return tuple(call.name for call in last.tool_uses) if last is not None else ()
