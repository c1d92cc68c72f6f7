"""
Small text files of a project, read with bounds. What can't be read is a warning, never an exception.

The functions here block; callers run them in a worker thread.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

__all__ = ["TextFile", "Unreadable", "markdown_below", "printable", "read_text", "real"]

MAX_DEPTH: Final = 5
"""Folders below one that is searched for Markdown files; links that lead in circles end here."""

MAX_ENTRIES: Final = 2_000
"""Entries that one search looks at: a folder of rules that holds more is something else."""

_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")
_BOM: Final = b"\xef\xbb\xbf"


@attrs.frozen(kw_only=True)
class TextFile:
    """
    A file as it was found. ``text`` is what its bytes say, unchanged but for a byte order mark at the start;
    ``problem`` tells what is odd about a text that is used all the same.
    """

    path: Path
    real: Path
    text: str
    digest: str
    """SHA-256 of the bytes."""
    mtime_ns: int
    problem: str | None = None


@attrs.frozen(kw_only=True)
class Unreadable:
    """A file that is there and can't be used, with the reason and the way out."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{printable(self.path)}: {self.reason}"


def printable(path: Path) -> str:
    """The path for a reader and for the wire: bytes that are no UTF-8 are replaced."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def real(path: Path) -> Path:
    """The path with its links followed; the path itself where that can't be done."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError, RuntimeError):
        return path


def read_text(path: Path, limit_bytes: int) -> TextFile | Unreadable | None:
    """The file; None if there is none of this name, or a folder."""
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            return None
        if not stat.S_ISREG(found.st_mode):
            return Unreadable(path=path, reason="skipped: it is no regular file")
        # A pipe that took the file's place between the two calls must not be waited for.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            data = file.read(limit_bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return Unreadable(path=path, reason=f"skipped: it can't be read ({reason}); repair or remove it")
    if len(data) > limit_bytes:
        return Unreadable(path=path, reason=f"skipped: it is larger than {limit_bytes:,} bytes; split it or shorten it")
    return _decode(path, data, found)


def _decode(path: Path, data: bytes, found: os.stat_result) -> TextFile | Unreadable:
    if data.startswith(_UTF16) or b"\0" in data:
        return Unreadable(path=path, reason="skipped: it is no UTF-8 text; save it as UTF-8")
    problem = None
    body = data.removeprefix(_BOM)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        text = body.decode("utf-8", "replace")
        problem = f"{printable(path)}: byte {error.start} is no UTF-8 and was replaced; save the file as UTF-8"
    return TextFile(
        path=path,
        real=real(path),
        text=text,
        digest=hashlib.sha256(data).hexdigest(),
        mtime_ns=found.st_mtime_ns,
        problem=problem,
    )


def markdown_below(folder: Path) -> list[Path]:
    """The ``*.md`` files in a folder and below, sorted by path; linked folders too. Empty if there is no folder."""
    return sorted(_walk(folder), key=lambda path: path.parts)


def _walk(folder: Path) -> Iterator[Path]:
    seen: set[Path] = set()
    looked_at = 0
    waiting = [(folder, 0)]
    while waiting:
        current, depth = waiting.pop()
        if depth > MAX_DEPTH or real(current) in seen:
            continue
        seen.add(real(current))
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    looked_at += 1
                    if looked_at > MAX_ENTRIES:
                        return
                    if entry.is_dir():
                        waiting.append((Path(entry.path), depth + 1))
                    elif entry.name.lower().endswith(".md"):
                        yield Path(entry.path)
        except OSError:
            continue
