"""
A session's journal: one file, one writer, whole lines.

Appends are single ``write`` calls on an O_APPEND descriptor, straight from the event loop (about a microsecond; a
thread hop costs a hundred times that). Whatever kills the process, the file holds whole lines but for the last one,
and a torn last line is cut off, and reported, when the file is next opened. A lease (a lock that dies with its
process) keeps a second writer out.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import socket
from pathlib import Path

import attrs
import orjson

from .errors import JournalLocked, JournalUnwritable

__all__ = ["JournalFile", "journal_path", "make_private", "project_slug", "results_folder"]

_SLUG_LIMIT = 180
_BLOCK = 64 * 1024
_SOMEBODY = "another process or session"


def project_slug(cwd: Path) -> str:
    """The name of a project's folder. Long paths end in a hash, since file names have a limit."""
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(cwd))
    if len(slug) <= _SLUG_LIMIT:
        return slug
    return f"{slug[:_SLUG_LIMIT]}-{hashlib.sha256(str(cwd).encode('utf-8', 'replace')).hexdigest()[:12]}"


def journal_path(home: Path, cwd: Path, session_id: str) -> Path:
    return home / "projects" / project_slug(cwd) / f"{session_id}.jsonl"


def results_folder(journal: Path) -> Path:
    """Where a session's long tool results are kept."""
    return journal.with_suffix("") / "tool-results"


def make_private(folder: Path) -> None:
    """
    Make a folder that only its owner may enter, and those above it that are missing, alike. An existing one is kept.

    Raises:
        OSError: it can't be made, or something else has its name.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileNotFoundError:
        # Not ``parents=True``: that gives the folders above the ordinary mode.
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        if not folder.is_dir():
            raise


@attrs.define(eq=False)
class JournalFile:
    """
    An open journal. Made by `open`; `close` it.

    ``torn_bytes`` is what was cut off at its end when it was opened. ``broken`` is set by the first failed append:
    nothing may be appended after a hole.
    """

    path: Path
    _fd: int
    _lease: _Lease
    torn_bytes: int = 0
    broken: bool = False

    @classmethod
    def open(cls, path: Path) -> JournalFile:
        """
        Open for appending; folders are made, modes are 0700 and 0600.

        Raises:
            JournalLocked: another process, or another session of this one, writes it.
            JournalUnwritable: the file or a folder can't be made or written.
        """
        try:
            make_private(path.parent)
            lease = _Lease.take(path)
            try:
                fd, torn = _open_whole(path)
            except (OSError, JournalLocked):
                lease.give_back()
                raise
        except OSError as error:
            raise JournalUnwritable(str(path), error.strerror or str(error)) from error
        return cls(path, fd, lease, torn)

    @property
    def fileno(self) -> int:
        return self._fd

    def append(self, lines: bytes) -> None:
        """
        Append whole lines. On failure the file ends where it ended before.

        Raises:
            JournalUnwritable: the disk is full, or the file is gone from under us.
        """
        if self.broken:
            raise JournalUnwritable(str(self.path), "an earlier write failed")
        written = 0
        try:
            while written < len(lines):
                written += os.write(self._fd, lines[written:] if written else lines)
        except OSError as error:
            self.broken = True
            self._take_back(written)
            raise JournalUnwritable(str(self.path), error.strerror or str(error)) from error

    def _take_back(self, written: int) -> None:
        if written:
            try:
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            except OSError:
                # The next opening cuts the torn line; the first error is the one to tell.
                return

    def cut(self, size: int) -> None:
        """
        Cut off what lies behind ``size`` bytes: lines that belong together and were not all written.

        Raises:
            JournalUnwritable: that failed.
        """
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise JournalUnwritable(str(self.path), error.strerror or str(error)) from error

    def close(self) -> None:
        """Close it and give up the lease. May be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._lease.give_back()


@attrs.define(eq=False)
class _Lease:
    """A locked file beside the journal that names the owner. The lock ends with its process, whatever ends that."""

    path: Path
    fd: int

    @classmethod
    def take(cls, journal: Path) -> _Lease:
        path = journal.with_suffix(".lock")
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if not _lock(fd):
                    owner = os.pread(fd, 200, 0).decode("utf-8", "replace").strip()
                    raise JournalLocked(str(journal), owner or _SOMEBODY)
                if _is_at(fd, path):
                    _replace_text(fd, f"process {os.getpid()} on {socket.gethostname()}\n")
                    return cls(path, fd)
            except (OSError, JournalLocked):
                os.close(fd)
                raise
            # The owner removed the file between our open and our lock: that lock guards nothing.
            os.close(fd)

    def give_back(self) -> None:
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            # The lock is what counts, and it ends with the descriptor; a file that stays behind is in nobody's way.
            pass
        finally:
            os.close(self.fd)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replace_text(fd: int, text: str) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(), 0)


def _open_whole(path: Path) -> tuple[int, int]:
    """The file, ending in a whole line, and how many bytes had to be cut off for that."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Locked as well, since somebody may have tidied up the lock file.
        if not _lock(fd):
            raise JournalLocked(str(path), _SOMEBODY)
        return fd, _mend_tail(fd)
    except (OSError, JournalLocked):
        os.close(fd)
        raise


def _is_at(fd: int, path: Path) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _mend_tail(fd: int) -> int:
    """
    Cut what follows the last newline; returns how much that was.

    A whole record that lacks but its newline gets it: a reader has seen that record, and it must not go away.
    """
    size = os.fstat(fd).st_size
    end = _end_of_last_line(fd, size)
    if end == size:
        return 0
    if _is_record(os.pread(fd, size - end, end)):
        os.write(fd, b"\n")
        return 0
    os.ftruncate(fd, end)
    return size - end


def _end_of_last_line(fd: int, size: int) -> int:
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _is_record(tail: bytes) -> bool:
    try:
        return isinstance(orjson.loads(tail), dict)
    except orjson.JSONDecodeError:
        return False
