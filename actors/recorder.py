"""
The recorder: the one writer of a session's journal.

It takes what has come since it last looked, writes it in one go, waits for the disk where somebody asked for that,
and then answers. It is never restarted: a session whose record can't be kept ends at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import attrs
import trio

from atrio.runtime.actor import Status
from atrio.runtime.commit import group_commit
from atrio.runtime.config import Durability
from atrio.runtime.errors import JournalUnwritable
from atrio.runtime.journal import JournalFile
from atrio.runtime.mailbox import Address, Inbox, Pending, Reply, open_reply
from atrio.runtime.records import Record, SystemRecord
from atrio.runtime.redact import Redactor
from atrio.runtime.state import derive_id
from atrio.runtime.transcript import LineWriter

__all__ = ["Append", "Recorder", "ask_to_write", "write_and_wait"]

LAST_WRITE_LIMIT = 5.0
"""Seconds that the disk may take for the last write."""


@attrs.frozen
class Append:
    """Write these records. ``reply`` is answered when that is done; with ``sync``, when they are on disk."""

    records: Sequence[Record]
    sync: bool = False
    reply: Reply[None] | None = None


async def write_and_wait(recorder: Address[Append], records: Sequence[Record], *, sync: bool) -> None:
    """
    Have records written, and wait until they are; with ``sync``, until they and all before them are on disk.

    Cancelled: they may be written, or not.

    Raises:
        PeerGone, ReplyDropped: the recorder is gone.
    """
    pending = await ask_to_write(recorder, records, sync=sync)
    await pending.get()


async def ask_to_write(recorder: Address[Append], records: Sequence[Record], *, sync: bool = True) -> Pending[None]:
    """
    The first half of `write_and_wait`: once it returns, the records will be written, whatever happens to the caller.

    Cancelled: they will not.
    """
    reply: Reply[None]
    pending: Pending[None]
    reply, pending = open_reply()
    await recorder.send(Append(records, sync, reply))
    return pending


class Recorder:
    """The actor. Its crash ends the session."""

    name = "recorder"

    def __init__(
        self,
        *,
        inbox: Inbox[Append],
        path: Path,
        session_id: str,
        cwd: Path,
        durability: Durability,
        redactor: Redactor,
        now: Callable[[], datetime],
        parent: str | None = None,
        journal: JournalFile | None = None,
        agent_id: str | None = None,
    ) -> None:
        """
        ``journal``: the journal, if it is open already; closed like any other. ``parent``: its last line. ``agent_id``:
        the subagent whose journal it is.
        """
        self._journal = journal
        self._inbox = inbox
        self._path = path
        self._durability = durability
        self._redactor = redactor
        self._now = now
        self._writer = LineWriter(
            session_id=session_id, cwd=str(cwd), version=_version(), parent=parent, agent_id=agent_id
        )
        self._owed: list[Append] = []
        self._hole = False
        """Something was not written, so nothing may be written after it."""
        self.status = Status()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """
        Write until cancelled or until nobody can send any more. Cancelled: what had been sent by then is written, and
        is on disk where that was asked for.

        However it ends, its inbox is closed and every answer it owes is given or dropped.

        Raises:
            JournalError: the journal can't be opened or written.
        """
        with self._inbox:
            journal = self._journal if self._journal is not None else JournalFile.open(self._path)
            self._journal = None
            try:
                if journal.torn_bytes:
                    self._report_torn(journal)
                task_status.started()
                async for append in self._inbox:
                    await self._take(journal, [append, *self._inbox.drain()])
            finally:
                try:
                    # Nothing is written after a hole. What lies there then has its answers dropped by the inbox.
                    if not self._hole:
                        with trio.move_on_after(LAST_WRITE_LIMIT, shield=True):
                            await self._take(journal, self._inbox.drain())
                finally:
                    for append in self._owed:
                        if append.reply is not None:
                            append.reply.close()
                    journal.close()

    async def _take(self, journal: JournalFile, batch: Sequence[Append]) -> None:
        """Cancelled: the batch is written; who waits for the disk is still owed an answer."""
        self._owed += batch
        self._hole = True
        lines = self._lines(batch)
        if lines:
            journal.append(lines)
        self._hole = False
        _answer(append for append in batch if not self._waits_for_disk(append))
        self._owed = [append for append in self._owed if self._waits_for_disk(append)]
        if self._owed:
            await self._sync(journal)
            _answer(self._owed)
            self._owed = []

    def _waits_for_disk(self, append: Append) -> bool:
        match self._durability:
            case Durability.OS:
                return False
            case Durability.BATCH:
                return append.sync
            case Durability.ALWAYS:
                return append.sync or bool(append.records)

    async def _sync(self, journal: JournalFile) -> None:
        try:
            with self.status.waiting("the disk"):
                await group_commit().sync(journal.fileno)
        except OSError as error:
            # What the disk refused once is gone, even if it accepts the next.
            self._hole = True
            raise JournalUnwritable(str(self._path), error.strerror or str(error)) from error

    def _lines(self, batch: Sequence[Append]) -> bytes:
        records = [record for append in batch for record in append.records]
        if not records:
            return b""
        now = self._now()
        return self._redactor.clean(b"".join([self._writer.line(record, now) for record in records]))

    def _report_torn(self, journal: JournalFile) -> None:
        text = f"{journal.torn_bytes:,} bytes of an unfinished last line were cut off"
        now = self._now()
        uuid = derive_id(self._writer.session_id, "torn", now.isoformat())
        journal.append(self._writer.line(SystemRecord(uuid=uuid, subtype="journal_repaired", text=text), now))


def _answer(done: Iterable[Append]) -> None:
    for append in done:
        if append.reply is not None:
            append.reply.put(None)


@functools.cache
def _version() -> str:
    try:
        return version("atrio")
    except PackageNotFoundError:
        return "unknown"
