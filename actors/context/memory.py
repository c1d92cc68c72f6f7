"""
Memory: notes that outlive sessions, in a folder of the user's for each project. Read here, written by tools.

``MEMORY.md`` is the index, of which the beginning is always shown. The other files are found by what their front
matter says they are about, and shown when they seem to matter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from atrio.runtime.journal import project_slug

from .front_matter import parse_front_matter
from .instructions import repository_of
from .texts import Unreadable, markdown_below, printable, read_text

__all__ = ["Memory", "MemoryFile", "Recollection", "memory_folders", "read_memory", "recall", "scan_memory"]

INDEX: Final = "MEMORY.md"
INDEX_LINES: Final = 200
INDEX_BYTES: Final = 25_000
"""The index is in every request; what is longer belongs into files of its own."""

MAX_FILES: Final = 200
"""The newest count."""

FILE_BYTES: Final = 8_192
"""What is shown of one file; the rest can be read."""

_FILE_LIMIT_BYTES: Final = 2**20


@attrs.frozen(kw_only=True)
class MemoryFile:
    """One file of a memory folder, by what it is about."""

    path: Path
    description: str
    mtime_ns: int


@attrs.frozen(kw_only=True)
class Recollection:
    """A memory file's text as it is shown, perhaps only its beginning."""

    path: Path
    text: str
    mtime_ns: int = 0
    cut: bool = False


@attrs.frozen(kw_only=True)
class Memory:
    """What a session knows of its memory from the beginning: the folders, and the index as it is shown."""

    folders: tuple[Path, ...] = ()
    index: Recollection | None = None
    warnings: tuple[str, ...] = ()


def memory_folders(cwd: Path, home: Path, user_home: Path | None) -> tuple[Path, ...]:
    """Where a project's memory may be: atrio's own folder, then one that another program keeps for it."""
    project = repository_of(cwd) or cwd
    slug = project_slug(project)
    own = home / "projects" / slug / "memory"
    if user_home is None:
        return (own,)
    return (own, user_home / ".claude" / "projects" / slug / "memory")


def read_memory(cwd: Path, home: Path, user_home: Path | None) -> Memory:
    """The memory folders that are there, and the first index found. Blocking; problems are warnings."""
    folders = tuple(folder for folder in memory_folders(cwd, home, user_home) if os.path.isdir(folder))
    warnings: list[str] = []
    for folder in folders:
        file = read_text(folder / INDEX, _FILE_LIMIT_BYTES)
        if isinstance(file, Unreadable):
            warnings.append(str(file))
        elif file is not None and file.text.strip():
            text = _beginning(file.text, INDEX_LINES, INDEX_BYTES)
            cut = len(text) < len(file.text)
            if cut:
                warnings.append(
                    f"{printable(file.path)}: only its first {INDEX_LINES} lines or {INDEX_BYTES:,} bytes are shown; "
                    "move details into files of their own"
                )
            index = Recollection(path=file.path, text=text, mtime_ns=file.mtime_ns, cut=cut)
            return Memory(folders=folders, index=index, warnings=tuple(warnings))
    return Memory(folders=folders, warnings=tuple(warnings))


def _beginning(text: str, lines: int, size_bytes: int) -> str:
    """So many whole lines; of one that alone is too long, a part."""
    kept = "".join(re.findall(r"[^\n]*\n|[^\n]+", text)[:lines])
    data = kept.encode()
    if len(data) <= size_bytes:
        return kept
    part = data[:size_bytes].decode("utf-8", "ignore")
    return part[: part.rfind("\n") + 1] or part


def scan_memory(folders: Iterable[Path]) -> tuple[tuple[MemoryFile, ...], tuple[str, ...]]:
    """The newest memory files by what they are about, newest first, and warnings. Blocking."""
    dated: list[tuple[int, Path]] = []
    for folder in folders:
        for path in markdown_below(folder):
            if path.name != INDEX:
                try:
                    dated.append((os.stat(path).st_mtime_ns, path))
                except OSError:
                    continue
    dated.sort(key=lambda item: (-item[0], item[1]))
    files: list[MemoryFile] = []
    warnings: list[str] = []
    for mtime_ns, path in dated[:MAX_FILES]:
        file = read_text(path, _FILE_LIMIT_BYTES)
        if isinstance(file, Unreadable):
            warnings.append(str(file))
        elif file is not None:
            files.append(MemoryFile(path=path, description=_about(path, file.text), mtime_ns=mtime_ns))
    return tuple(files), tuple(warnings)


def _about(path: Path, text: str) -> str:
    matter = parse_front_matter(text)
    said = matter.text("description") or next((line for line in matter.body.split("\n") if line.strip()), "")
    return " ".join(f"{path.stem.replace('_', ' ').replace('-', ' ')}: {said}".split())[:300]


def recall(paths: Sequence[Path]) -> tuple[Recollection, ...]:
    """The texts of these memory files, each cut to what is shown; those that are gone are left out. Blocking."""
    recalled: list[Recollection] = []
    for path in paths:
        file = read_text(path, _FILE_LIMIT_BYTES)
        if file is None or isinstance(file, Unreadable) or not file.text.strip():
            continue
        text = _beginning(file.text, INDEX_LINES, FILE_BYTES)
        recalled.append(Recollection(path=path, text=text, mtime_ns=file.mtime_ns, cut=len(text) < len(file.text)))
    return tuple(recalled)
