"""
Messages for a run in progress: recorded when they are accepted, then handed to the loop, each once.

Whoever has something to say puts it in; the loop takes it out. Until it has joined the history, it is written again
behind each compaction, since a resume reads nothing that lies before one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import attrs
import trio

from atrio.runtime.errors import ReplyDropped
from atrio.runtime.mailbox import Address
from atrio.runtime.messages import UserMessage
from atrio.runtime.records import MAIN_SCOPE, Priority, QueueRecord, Record, SystemRecord, UserRecord
from atrio.runtime.rerecord import BOUNDARY, USAGE_TOTALS
from atrio.runtime.state import derive_id

from .recorder import Append, ask_to_write

__all__ = ["MessageQueue", "Queued"]

RECORD_LIMIT = 10.0
"""Seconds for the journal to confirm a message that is given already; the loop waits for it in any case."""


@attrs.frozen
class Queued:
    """A message that was accepted."""

    message: UserMessage
    priority: Priority


@attrs.define(eq=False, kw_only=True)
class MessageQueue:
    """
    One run's. ``scope`` names whose run it is: the session's own agent, or a subagent by its id.

    Without a recorder nothing is recorded (tests).
    """

    run_id: str = ""
    scope: str = MAIN_SCOPE
    recorder: Address[Append] | None = None
    closed: bool = False
    """The run is at its end."""
    _arrived: deque[Queued] = attrs.field(factory=deque)
    _undelivered: dict[str, QueueRecord] = attrs.field(factory=dict)
    """By message id. Those that are being accepted just now, too."""

    async def put(self, message: UserMessage, priority: Priority = "next") -> bool:
        """
        Accept a message; whether that was in time. When this returns, it is on disk, unless the journal was lost at
        that moment, by which the session fails.

        Cancelled: it is not accepted.

        Raises:
            PeerGone: the journal is gone.
        """
        record = QueueRecord(
            uuid=derive_id(message.uuid, "queued"),
            message=message,
            run_id=self.run_id,
            priority=priority,
            scope=self.scope,
        )
        if self.closed:
            return False
        self._undelivered[message.uuid] = record
        accepted = False
        try:
            pending = await ask_to_write(self.recorder, [record]) if self.recorder is not None else None
            # It will be written, so from here on it counts, and no cancellation may come in between.
            accepted = not self.closed
            if accepted:
                self._arrived.append(Queued(message, priority))
        finally:
            if not accepted:
                self._undelivered.pop(message.uuid, None)
        if pending is not None and accepted:
            with trio.move_on_after(RECORD_LIMIT, shield=True), suppress(ReplyDropped):
                await pending.get()
        return accepted

    @property
    def waits(self) -> bool:
        """Whether something has arrived that was not taken."""
        return bool(self._arrived)

    def take(self) -> Queued | None:
        """The next one that has arrived."""
        return self._arrived.popleft() if self._arrived else None

    def close(self) -> Sequence[Queued]:
        """No more is accepted; what had arrived until now."""
        self.closed = True
        arrived = tuple(self._arrived)
        self._arrived.clear()
        return arrived

    def with_waiting(self, records: Sequence[Record]) -> Sequence[Record]:
        """
        The records that the loop is about to write, noted; with the messages that still wait, if they are a
        compaction's.
        """
        for record in records:
            if isinstance(record, UserRecord):
                self._undelivered.pop(record.uuid, None)
        first = records[0] if records else None
        last = records[-1] if records else None
        if not isinstance(first, SystemRecord) or first.subtype != BOUNDARY or not self._undelivered:
            return records
        if isinstance(last, SystemRecord) and last.subtype == USAGE_TOTALS:
            # Complete, but its writing was broken off and is made up for.
            return records
        again = [
            attrs.evolve(record, uuid=derive_id(record.message.uuid, "queued", first.uuid))
            for record in self._undelivered.values()
        ]
        boundary = attrs.evolve(first, followed_by=first.followed_by + len(again))
        return (boundary, *records[1:], *again)
