"""
The recorder: the one writer of a session's journal.

It takes what has come since it last looked, writes it in one go, waits for the disk where somebody asked for that,
and then answers. It is never restarted: a session whose record can't be kept ends at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from atrio.runtime.transcript import LineWriter

__all__ = ["Append", "Recorder", "write_and_wait"]


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
    reply: Reply[None]
    pending: Pending[None]
    reply, pending = open_reply()
    await recorder.send(Append(records, sync, reply))
    await pending.get()


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
    ) -> None:
        self._inbox = inbox
        self._path = path
        self._durability = durability
        self._redactor = redactor
        self._now = now
        self._writer = LineWriter(session_id=session_id, cwd=str(cwd), version=_version(), parent=parent)
        self.status = Status()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """
        Write until cancelled or until nobody can send any more. Cancelled: what had been sent by then is written.

        Raises:
            JournalError: the journal can't be opened or written.
        """
        journal = JournalFile.open(self._path)
        try:
            if journal.torn_bytes:
                self._report_torn(journal)
            task_status.started()
            # The inbox closes with this task: whoever still wants something written learns at once that nobody will.
            with self._inbox:
                try:
                    async for append in self._inbox:
                        await self._take(journal, [append, *self._inbox.drain()])
                finally:
                    self._take_last_words(journal)
        finally:
            journal.close()

    async def _take(self, journal: JournalFile, batch: Sequence[Append]) -> None:
        written = False
        try:
            lines = self._lines(batch)
            if lines:
                journal.append(lines)
            wanted = any(append.sync for append in batch) or (bool(lines) and self._durability is Durability.ALWAYS)
            if wanted and self._durability is not Durability.OS:
                await self._sync(journal)
            written = True
        finally:
            _answer(batch, written=written)

    async def _sync(self, journal: JournalFile) -> None:
        with self.status.waiting("the disk"):
            try:
                await group_commit().sync(journal.fileno)
            except OSError as error:
                raise JournalUnwritable(str(self._path), error.strerror or str(error)) from error

    def _take_last_words(self, journal: JournalFile) -> None:
        batch = self._inbox.drain()
        written = False
        try:
            journal.append(self._lines(batch))
            written = True
        finally:
            _answer(batch, written=written)

    def _lines(self, batch: Sequence[Append]) -> bytes:
        records = [record for append in batch for record in append.records]
        if not records:
            return b""
        now = self._now()
        return self._redactor.clean(b"".join([self._writer.line(record, now) for record in records]))

    def _report_torn(self, journal: JournalFile) -> None:
        text = f"{journal.torn_bytes:,} bytes of an unfinished last line were cut off"
        record = SystemRecord(uuid=f"torn-{self._now().timestamp():.6f}", subtype="journal_repaired", text=text)
        journal.append(self._writer.line(record, self._now()))


def _answer(batch: Sequence[Append], *, written: bool) -> None:
    for append in batch:
        if append.reply is None:
            continue
        if written:
            append.reply.put(None)
        else:
            append.reply.close()


def _version() -> str:
    try:
        return version("atrio")
    except PackageNotFoundError:
        return "unknown"
