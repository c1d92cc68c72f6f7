"""
A run that asks no model: a built-in command. To whoever reads its events, it begins and ends as any other does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import trio

from atrio.runtime.errors import AtrioError, JournalError
from atrio.runtime.events import RunEnded, RunStarted
from atrio.runtime.ledger import Ledger
from atrio.runtime.messages import SystemMessage
from atrio.runtime.records import Record, SystemRecord
from atrio.runtime.result import Result, TerminalReason
from atrio.runtime.state import derive_id

from .broadcaster import Broadcaster
from .commands import Local
from .loop import History
from .run import Run

__all__ = ["LOCAL_COMMAND", "LocalRun"]

LOCAL_COMMAND = "local_command"
"""Subtype of the mark that a built-in command leaves in the history. The model never sees it."""

RECORD_LIMIT = 5.0
"""Seconds for the journal to take the mark when the run was broken off."""


@attrs.define(eq=False, kw_only=True)
class LocalRun:
    """
    One command on its way.

    Args:
        work: does it and gives the text to show; it may replace the history's messages.
        record: writes to the journal.
        ledger: what ``work`` spends is booked here.
    """

    command: Local
    run: Run
    history: History
    opening: RunStarted
    bus: Broadcaster
    work: Callable[[], Awaitable[str]]
    record: Callable[[tuple[Record, ...]], Awaitable[None]]
    ledger: Ledger
    _started: float = attrs.field(factory=trio.current_time)

    async def perform(self) -> None:
        """
        Do it. Cancelled, or interrupted: what the command does is left undone, and the run has its end all the same.

        Raises:
            JournalError: the record can't be kept.
        """
        self.bus.publish(self.opening)
        text, error, reason = "", self.command.error, TerminalReason.ABORTED_STREAMING
        try:
            with self.run.scope:
                try:
                    text = await self.work() if error is None else ""
                    reason = TerminalReason.COMPLETED if error is None else TerminalReason.TURN_SETUP_FAILED
                except JournalError:
                    raise
                except AtrioError as failure:
                    error, reason = str(failure), TerminalReason.TURN_SETUP_FAILED
            with trio.move_on_after(RECORD_LIMIT, shield=True):
                await self._leave_mark(text or error or "interrupted")
        finally:
            self._end(text, error, reason)

    async def _leave_mark(self, text: str) -> None:
        command = self.command
        uuid = derive_id(self.run.id, LOCAL_COMMAND)
        data = {"command": f"/{command.name}", "arguments": command.arguments}
        await self.record((SystemRecord(uuid=uuid, subtype=LOCAL_COMMAND, text=text, data=data),))
        mark = SystemMessage(uuid=uuid, subtype=LOCAL_COMMAND, text=text, data=data)
        self.history.messages = (*self.history.messages, mark)

    def _end(self, text: str, error: str | None, reason: TerminalReason) -> None:
        done = reason is TerminalReason.COMPLETED
        result = Result(
            subtype="success" if done else "error_during_execution",
            terminal_reason=reason,
            session_id=self.opening.session_id,
            run_id=self.run.id,
            text=text,
            duration=trio.current_time() - self._started,
            usage=self.ledger.usage,
            model_usage=self.ledger.by_model,
            cost_usd=self.ledger.cost_usd,
            errors=() if error is None else (error,),
        )
        self.history.result = result
        self.bus.publish(RunEnded(result=result))
