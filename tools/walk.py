"""
Walking a folder for files, in a worker thread that ends when it is told to.

A walk follows no link to a folder, so it can't go round in circles, and a link to a file only to where it may look.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import attrs
import trio

from atrio.runtime.errors import ToolTimedOut

from .ignore import VCS_DIRS, IgnoreRules, rules_for
from .paths import is_inside, real_path

__all__ = ["SEARCH_LIMIT", "StopCheck", "Walker", "search_in_thread"]

T = TypeVar("T")

StopCheck = Callable[[], bool]

SEARCH_LIMIT: Final = 60.0
"""Seconds after which a search ends itself with what it has."""

STUCK_LIMIT: Final = SEARCH_LIMIT + 10.0
"""Seconds after which it is given up: a file system doesn't answer."""

MAX_ENTRIES: Final = 2_000_000
"""How many files and folders a walk looks at, so that its memory and time are bounded."""

SEARCH_THREADS: Final = trio.CapacityLimiter(8)
"""Of the whole process: walks wait for disks, and many at once make each other slower."""


@attrs.define(kw_only=True)
class Walker:
    """
    One walk.

    Args:
        root: where it starts; resolved.
        within: the resolved folders in which a linked file must lie.
        should_stop: asked at each entry.
        hides: which paths (absolute, perhaps links) are left out besides ignored ones.
        max_depth: how deep it goes (1: only the root's own files); None: no limit.

    ``unreadable`` counts folders that can't be listed; ``cut`` says that it ended before it was through.
    """

    root: Path
    within: tuple[Path, ...]
    should_stop: StopCheck
    hides: Callable[[Path], bool] | None = None
    max_depth: int | None = None
    unreadable: int = 0
    cut: bool = False

    def files(self) -> Iterator[os.DirEntry[str]]:
        """The regular files, a folder's own before those of its subfolders, by name."""
        pending: list[tuple[str, int, IgnoreRules | None]] = [(str(self.root), 1, None)]
        seen = 0
        while pending:
            folder, depth, above = pending.pop()
            entries = self._list(folder)
            rules = rules_for(self.root) if above is None else above.under(folder, (entry.name for entry in entries))
            below: list[tuple[str, int, IgnoreRules | None]] = []
            for entry in entries:
                seen += 1
                if self.should_stop() or seen > MAX_ENTRIES:
                    self.cut = True
                    return
                if entry.is_dir(follow_symlinks=False):
                    if self._enters(entry, depth, rules):
                        below.append((entry.path, depth + 1, rules))
                elif self._takes(entry, rules):
                    yield entry
            pending.extend(reversed(below))

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as found:
                return sorted(found, key=lambda entry: entry.name)
        except OSError:
            self.unreadable += 1
            return []

    def _enters(self, entry: os.DirEntry[str], depth: int, rules: IgnoreRules) -> bool:
        if entry.name in VCS_DIRS or (self.max_depth is not None and depth >= self.max_depth):
            return False
        return not rules.ignores(entry.path, is_dir=True) and not self._hidden(entry.path)

    def _takes(self, entry: os.DirEntry[str], rules: IgnoreRules) -> bool:
        try:
            if not entry.is_file():
                return False
        except OSError:  # a link to itself, or into a folder that can't be entered
            return False
        if rules.ignores(entry.path, is_dir=False) or self._hidden(entry.path):
            return False
        if not entry.is_symlink():
            return True
        target = real_path(Path(entry.path))
        return target is not None and is_inside(target, self.within) and not self._hidden(str(target))

    def _hidden(self, path: str) -> bool:
        return self.hides is not None and self.hides(Path(path))


async def search_in_thread(tool: str, search: Callable[[StopCheck], T]) -> T:
    """
    Run ``search(should_stop)`` in a worker thread; after `SEARCH_LIMIT` it is told to stop, and returns what it has.

    Raises `ToolTimedOut` if it doesn't. When cancelled, the thread is told to stop and left to end by itself; it
    must therefore only read.
    """
    stop = threading.Event()
    deadline = time.monotonic() + SEARCH_LIMIT

    def should_stop() -> bool:
        return stop.is_set() or time.monotonic() > deadline

    try:
        with trio.move_on_after(STUCK_LIMIT):
            return await trio.to_thread.run_sync(search, should_stop, abandon_on_cancel=True, limiter=SEARCH_THREADS)
    finally:
        stop.set()
    raise ToolTimedOut(tool, STUCK_LIMIT, "nothing; the file system does not answer")
