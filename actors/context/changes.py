"""
Notices when files that the model has read are changed by somebody else, and shows how.

A session's `FileState` says how a file was; texts are kept here, within limits, so that a change can be shown as the
lines that differ.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Final

import attrs

from atrio.runtime.tool import FileState
from atrio.tools.files import in_thread

from .texts import TextFile, read_text

__all__ = ["FileChange", "FileWatch", "changed_lines"]

MAX_WATCHED: Final = 500
"""The files that joined last; each costs a look at each turn."""

TEXT_LIMIT_BYTES: Final = 256 * 1024
KEPT_CHARS: Final = 4 * 2**20
"""All texts that are kept for comparison; the oldest make room."""

DIFF_WORK: Final = 1_000_000
"""Old lines times new lines that are compared; more takes too long, and says too little."""

_CONTEXT: Final = 3


@attrs.frozen(kw_only=True)
class FileChange:
    """A file is not any more as the model knows it. ``diff`` is empty where the difference can't be shown."""

    path: Path
    diff: str = ""
    gone: bool = False


def changed_lines(before: str, after: str) -> str:
    """The lines that differ, as a unified diff without its heading; empty if that is too much. Pure."""
    old, new = before.split("\n"), after.split("\n")
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    first, spare = max(0, start - _CONTEXT), max(0, end - _CONTEXT)
    old_part, new_part = old[first : len(old) - spare], new[first : len(new) - spare]
    if len(old_part) * len(new_part) > DIFF_WORK:
        return ""
    lines = difflib.unified_diff(old_part, new_part, lineterm="", n=_CONTEXT)
    shown = [line for line in islice(lines, 2, None) if not line.startswith("@@")]
    return f"from line {first + 1}:\n" + "\n".join(shown)


@attrs.frozen
class _Known:
    """A file's text, and the digest of the bytes it was made from."""

    text: str
    digest: str


@attrs.define(eq=False)
class FileWatch:
    """A session's watch over its files. Each change is told once."""

    _known: dict[Path, _Known] = attrs.field(factory=dict, init=False)
    _told: dict[Path, tuple[int, int] | None] = attrs.field(factory=dict, init=False)
    _changes: dict[Path, FileChange] = attrs.field(factory=dict, init=False)

    async def look(self, files: Mapping[Path, FileState]) -> tuple[FileChange, ...]:
        """
        What changed on disk since the model read or wrote it, or was told of a change, in order of the paths.

        Cancelled: what was found comes with the next look.
        """
        newest = dict(islice(reversed(list(files.items())), MAX_WATCHED))
        await in_thread(self._look, newest)
        changes = tuple(self._changes[path] for path in sorted(self._changes))
        self._changes.clear()
        return changes

    def _look(self, files: Mapping[Path, FileState]) -> None:
        for path, state in files.items():
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                self._tell(path, None, FileChange(path=path, gone=True))
                continue
            except OSError:
                continue
            if not stat.S_ISREG(found.st_mode):
                continue
            now = (found.st_mtime_ns, found.st_size)
            if now == (state.mtime_ns, state.size):
                self._told.pop(path, None)
                self._changes.pop(path, None)
                self._learn(path, state)
            elif path not in self._told or self._told[path] != now:
                self._compare(path, state, now)

    def _tell(self, path: Path, now: tuple[int, int] | None, change: FileChange) -> None:
        if path not in self._told or self._told[path] != now:
            self._told[path] = now
            self._changes[path] = change

    def _learn(self, path: Path, state: FileState) -> None:
        """Keep the text as the model knows it."""
        known = self._known.get(path)
        if (known is None or known.digest != state.digest) and state.size <= TEXT_LIMIT_BYTES:
            file = read_text(path, TEXT_LIMIT_BYTES)
            if isinstance(file, TextFile) and file.digest == state.digest:
                self._keep(path, _Known(file.text, file.digest))

    def _compare(self, path: Path, state: FileState, now: tuple[int, int]) -> None:
        known = self._known.get(path)
        file = read_text(path, TEXT_LIMIT_BYTES)
        if not isinstance(file, TextFile):
            self._known.pop(path, None)
            self._tell(path, now, FileChange(path=path))
            return
        told_last = known.digest if known is not None and path in self._told else state.digest
        if file.digest == told_last:
            # A mere touch is no change.
            self._told[path] = now
            return
        diff = changed_lines(known.text, file.text) if known is not None else ""
        self._keep(path, _Known(file.text, file.digest))
        self._tell(path, now, FileChange(path=path, diff=diff))

    def _keep(self, path: Path, known: _Known) -> None:
        self._known.pop(path, None)
        self._known[path] = known
        total = sum(len(other.text) for other in self._known.values())
        while total > KEPT_CHARS:
            total -= len(self._known.pop(next(iter(self._known))).text)
