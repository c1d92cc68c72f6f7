"""
Writing a project's memory: notes that a model wants kept, and the notes put in order. All of it blocks.

Nothing is lost by a model's word: a note that exists is added to, and what a tidying replaces or drops goes into an
archive beside the memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from atrio.runtime.memory_notes import INDEX_BYTES, INDEX_LINES, MAX_FILES, NOTE_BYTES, MemoryNote, Tidied

from .front_matter import parse_front_matter
from .memory import INDEX
from .texts import TextFile, read_text

__all__ = ["Shelf", "consolidation_due", "keep_notes", "put_in_order", "read_shelf", "release", "reserve"]

ARCHIVE: Final = "memory-archive"
LAST_TIME: Final = ".consolidated"
LOCK: Final = ".consolidating"

PERIOD: Final = 24 * 3600.0
"""Seconds from one consolidation to the next."""

SESSIONS: Final = 5
"""So many sessions must have gone on since the last one, or there is nothing to put in order."""

LOCK_STALE: Final = 3600.0
"""Seconds; whoever holds a lock for longer is gone."""

SHELF_BYTES: Final = 200_000
"""Of all notes together, what one question may hold."""

Redact = Callable[[str], str]
"""Takes secrets out of a text."""


@attrs.frozen(kw_only=True)
class Shelf:
    """The notes of a memory folder as they were read: texts by file name, and when each had been written (ns)."""

    texts: Mapping[str, str] = attrs.field(factory=dict)
    index: str = ""
    written: Mapping[str, int] = attrs.field(factory=dict)

    @property
    def descriptions(self) -> dict[str, str]:
        return {name: parse_front_matter(text).text("description") or "" for name, text in self.texts.items()}


def read_shelf(folder: Path) -> Shelf:
    """What lies in the folder itself, in the order of names; not what would make it too large."""
    texts: dict[str, str] = {}
    written: dict[str, int] = {}
    room = SHELF_BYTES
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".md") and name != INDEX)
    except OSError:
        return Shelf()
    for name in names[:MAX_FILES]:
        file = read_text(folder / name, NOTE_BYTES * 4)
        if isinstance(file, TextFile) and file.problem is None and len(file.text.encode()) <= room:
            room -= len(file.text.encode())
            texts[name], written[name] = file.text, file.mtime_ns
    index = read_text(folder / INDEX, INDEX_BYTES * 4)
    if isinstance(index, TextFile):
        written[INDEX] = index.mtime_ns
    return Shelf(texts=texts, index=index.text if isinstance(index, TextFile) else "", written=written)


def keep_notes(folder: Path, notes: Sequence[MemoryNote], redact: Redact) -> tuple[str, ...]:
    """
    Write new notes, add to those there are, and name them in the index; gives the files that were written.

    Raises:
        OSError: the folder can't be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    shelf = read_shelf(folder)
    kept: list[str] = []
    lines: list[str] = []
    for note in notes:
        before = shelf.texts.get(note.file)
        if before is None and (folder / note.file).exists():
            continue  # there is something that can't be read as a note: not ours to touch
        if before is not None and note.text in before:
            continue
        text = _as_file(note) if before is None else f"{before.rstrip()}\n\n{note.text}\n"
        if len(text.encode()) > NOTE_BYTES:
            continue
        _write(folder / note.file, text, redact)
        kept.append(note.file)
        if f"({note.file})" not in shelf.index:
            lines.append(_index_line(note))
    index = "\n".join((*filter(None, [shelf.index.rstrip("\n")]), *lines)) + "\n"
    if lines and index.count("\n") <= INDEX_LINES and len(index.encode()) <= INDEX_BYTES:
        _write(folder / INDEX, index, redact)
    return tuple(kept)


def put_in_order(folder: Path, shelf: Shelf, wanted: Tidied, redact: Redact) -> bool:
    """
    Make of the memory what ``wanted`` says. False, and nothing done, if somebody has written it since it was read.

    Raises:
        OSError: the folder can't be written.
    """
    if read_shelf(folder).written != shelf.written:
        return False
    replaced = [*(note.file for note in wanted.notes), *wanted.drop, *([INDEX] if wanted.index else [])]
    if any(name not in shelf.written and (folder / name).exists() for name in replaced):
        return False
    archive = folder.parent / ARCHIVE / str(time.time_ns())
    for name in dict.fromkeys(replaced):
        if name in shelf.written:
            archive.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Copied, not moved: the memory is complete at every moment.
            (archive / name).write_bytes((folder / name).read_bytes())
    for note in wanted.notes:
        _write(folder / note.file, _as_file(note), redact)
    if wanted.index:
        _write(folder / INDEX, f"{wanted.index}\n", redact)
    for name in wanted.drop:
        if name in shelf.texts and all(note.file != name for note in wanted.notes):
            (folder / name).unlink()
    return True


def _as_file(note: MemoryNote) -> str:
    return f"---\nname: {note.file[:-3]}\ndescription: {_quoted(note.description)}\n---\n\n{note.text}\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _index_line(note: MemoryNote) -> str:
    return f"- [{note.file[:-3]}]({note.file}): {note.description}"


def _write(path: Path, text: str, redact: Redact) -> None:
    """All of it or nothing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(redact(text).encode())
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


# --- when to put it in order ----------------------------------------------------------------------


def consolidation_due(folder: Path, journals: Path, now: float) -> bool:
    """Whether it is time: a day since the last one, several sessions since then, and something to put in order."""
    last = _mtime(folder / LAST_TIME) or 0.0
    if now - last < PERIOD:
        return False
    try:
        with os.scandir(journals) as entries:
            sessions = sum(entry.name.endswith(".jsonl") and entry.stat().st_mtime > last for entry in entries)
    except OSError:
        return False
    return sessions >= SESSIONS and len(read_shelf(folder).texts) > 1


def reserve(folder: Path, now: float) -> bool:
    """Take the lock; False if somebody else has it. To be given back by `release`."""
    lock = folder / LOCK
    taken = _mtime(lock)
    if taken is not None and now - taken > LOCK_STALE:
        lock.unlink(missing_ok=True)
    try:
        os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    os.utime(lock, (now, now))
    return True


def release(folder: Path, now: float, *, done: bool) -> None:
    """Give the lock back; ``done``: the next time is a day from ``now``."""
    if done:
        (folder / LAST_TIME).touch(mode=0o600)
        os.utime(folder / LAST_TIME, (now, now))
    (folder / LOCK).unlink(missing_ok=True)


def _mtime(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
