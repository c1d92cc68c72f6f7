"""
Opening a session that exists already: its journal is taken over, or copied for a fork; what is open in it is settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path

import attrs
import trio

from atrio.runtime.config import Config, prepare_home
from atrio.runtime.errors import ConfigError
from atrio.runtime.events import Notice
from atrio.runtime.journal import JournalFile, journal_path
from atrio.runtime.records import Record, SystemRecord
from atrio.runtime.resume import Resumed, forked, resume_file
from atrio.runtime.state import derive_id
from atrio.runtime.store import find_session, keep_title

from .dependencies import Dependencies

__all__ = ["Reopened", "reopen"]


@attrs.frozen(kw_only=True)
class Reopened:
    """
    An existing session, ready to go on. Whoever has it closes ``file``, or hands it on.

    ``file`` is the open journal, locked; None for a fork, whose journal is yet to be made.
    """

    session_id: str
    journal: Path
    resumed: Resumed
    file: JournalFile | None = None

    def close(self) -> None:
        """Give the journal back."""
        if self.file is not None:
            self.file.close()

    def notices(self) -> tuple[Notice, ...]:
        """What the first run tells about the journal."""
        return tuple(Notice(level="warning", source="journal", text=text) for text in self.resumed.notices)


async def reopen(
    which: str | Path,
    *,
    config: Config,
    cwd: Path,
    fork: bool,
    at: str | None,
    session_id: str | None,
    deps: Dependencies,
) -> Reopened:
    """
    The session that ``which`` names: see `open_session`.

    Cancelled: it waits for the file system all the same, and then gives what it has.

    Raises:
        ConfigError: there is no such session, or no such message in it.
        JournalError: somebody else writes it, or it can't be read or written.
    """
    prepare_home(config)
    work = partial(_reopen, which, home=config.home, cwd=cwd, fork=fork, at=at)
    # Never abandoned: a journal that a thread has locked for nobody stays locked.
    return await trio.to_thread.run_sync(work, session_id, deps)


def _reopen(
    which: str | Path,
    session_id: str | None,
    deps: Dependencies,
    *,
    home: Path,
    cwd: Path,
    fork: bool,
    at: str | None,
) -> Reopened:
    cwd = cwd.resolve()
    path = find_session(home, str(which), cwd)
    # A journal outside of our home is another program's, or a copy: it is read, never written.
    if fork or not path.is_relative_to(home / "projects"):
        resumed, _span = resume_file(path, at=at, behind_boundaries=True)
        id = session_id or deps.new_id()
        branch = forked(resumed, origin=path.stem, new_id=id)
        return Reopened(session_id=id, journal=journal_path(home, cwd, id), resumed=branch)
    if session_id is not None and session_id != path.stem:
        raise ConfigError("the session id", "a resumed session keeps its own", "fork it to give it another one")
    with ExitStack() as stack:
        file = JournalFile.open(path)
        stack.callback(file.close)
        reopened = _take_over(file, at=at, now=deps.now())
        stack.pop_all()
        return reopened


def _take_over(file: JournalFile, *, at: str | None, now: datetime) -> Reopened:
    path = file.path
    marks: Sequence[Record] = ()
    notices: tuple[str, ...] = ()
    if file.torn_bytes:
        text = f"{file.torn_bytes:,} bytes of an unfinished last line were cut off"
        uuid = derive_id(path.stem, "torn", now.isoformat())
        marks, notices = (SystemRecord(uuid=uuid, subtype="journal_repaired", text=text),), (text,)
        file.torn_bytes = 0
    resumed, span = resume_file(path, at=at, marks=marks)
    if span.torn:
        file.cut(span.stop)
    keep_title(file)
    resumed = attrs.evolve(resumed, notices=(*notices, *resumed.notices))
    return Reopened(session_id=path.stem, journal=path, resumed=resumed, file=file)
