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

from .errors import JournalLocked, JournalUnwritable

__all__ = ["JournalFile", "journal_path", "project_slug", "results_folder"]

_SLUG_LIMIT = 180
_BLOCK = 64 * 1024


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


@attrs.define(eq=False)
class JournalFile:
    """
    An open journal. Made by `open`; `close` it.

    ``torn_bytes`` is what was cut off at its end when it was opened.
    """

    path: Path
    _fd: int
    _lease: _Lease
    torn_bytes: int = 0

    @classmethod
    def open(cls, path: Path) -> JournalFile:
        """
        Open for appending; folders are made, modes are 0700 and 0600.

        Raises:
            JournalLocked: another process, or another session of this one, writes it.
            JournalUnwritable: the file or a folder can't be made or written.
        """
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lease = _Lease.take(path)
        except OSError as error:
            raise JournalUnwritable(str(path), error.strerror or str(error)) from error
        fd = -1
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            torn = _cut_torn_tail(fd)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            lease.give_back()
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
        written = 0
        try:
            while written < len(lines):
                written += os.write(self._fd, lines[written:] if written else lines)
        except OSError as error:
            self._take_back(written)
            raise JournalUnwritable(str(self.path), error.strerror or str(error)) from error

    def _take_back(self, written: int) -> None:
        if written:
            try:
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            except OSError:
                # The next opening cuts the torn line; the first error is the one to tell.
                return

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
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(fd, 200, 0).decode("utf-8", "replace").strip()
                os.close(fd)
                raise JournalLocked(str(journal), owner or "another process") from None
            if _is_at(fd, path):
                break
            # The owner removed the file between our open and our lock: that lock guards nothing.
            os.close(fd)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return cls(path, fd)

    def give_back(self) -> None:
        try:
            self.path.unlink(missing_ok=True)
        finally:
            os.close(self.fd)


def _is_at(fd: int, path: Path) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _cut_torn_tail(fd: int) -> int:
    """Cut what follows the last newline; returns how much that was."""
    size = os.fstat(fd).st_size
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(fd, end)
    return size - end
