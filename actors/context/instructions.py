"""
The instruction files of a session: what holds from its beginning, and what joins when a file is first touched.

Order, from what is read first to what weighs most: the machine's administrator, the user, then the project from the
root of the file system down to the working directory. ``AGENTS.md`` comes before ``CLAUDE.md`` of the same folder,
the local file last.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from atrio.tools.files import in_thread

from .instruction_reader import InstructionFile, InstructionReader
from .texts import printable, real

__all__ = ["MANAGED", "Instructions", "NestedInstructions", "read_instructions", "repository_of"]

MANAGED: Final = (
    Path("/etc/claude-code/CLAUDE.md"),
    Path("/Library/Application Support/ClaudeCode/CLAUDE.md"),
    Path("/etc/atrio/AGENTS.md"),
)
"""Where an administrator puts instructions for everybody."""

_SPEAKING: Final = ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", ".claude", ".atrio")

_FOREIGN: Final = frozenset({".git", ".venv", "node_modules", "site-packages"})
"""Folders of other people's code, whose instructions are not this project's."""


@attrs.frozen(kw_only=True)
class Instructions:
    """
    What was read at the beginning. ``files`` always hold; ``scoped`` only once a file that they are about is touched.

    ``seen`` are the real paths of all files that were looked at; ``areas`` what project files may import from.
    """

    files: tuple[InstructionFile, ...] = ()
    scoped: tuple[InstructionFile, ...] = ()
    seen: frozenset[Path] = frozenset()
    areas: tuple[Path, ...] = ()
    user_home: Path | None = None
    warnings: tuple[str, ...] = ()

    @property
    def chars(self) -> int:
        return sum(len(file.text) for file in (*self.files, *self.scoped))


def read_instructions(
    cwd: Path, add_dirs: Sequence[Path], home: Path, user_home: Path | None, managed: Sequence[Path] = MANAGED
) -> Instructions:
    """All instruction files that hold from the beginning. Blocking; whatever can't be used is a warning."""
    own = (home,) if user_home is None else (user_home / ".claude", home)
    areas = tuple(real(folder) for folder in (repository_of(cwd) or cwd, cwd, *add_dirs, *own))
    reader = InstructionReader(areas=areas, user_home=user_home)
    reader.named(managed, "managed")
    for folder in own:
        reader.named((folder / "AGENTS.md", folder / "CLAUDE.md"), "user")
        reader.rules(folder / "rules", "user", cwd)
    for folder in (*reversed(cwd.parents), cwd):
        planted = _planted(folder) if folder != cwd else []
        reader.warnings += (_refusal(path) for path in planted)
        if not planted:
            reader.folder(folder)
    return Instructions(
        files=tuple(reader.files),
        scoped=tuple(reader.scoped),
        seen=frozenset(reader.seen),
        areas=areas,
        user_home=user_home,
        warnings=tuple(reader.warnings),
    )


def repository_of(folder: Path) -> Path | None:
    """The repository that a folder belongs to."""
    return next((above for above in (folder, *folder.parents) if os.path.exists(above / ".git")), None)


def _planted(folder: Path) -> list[Path]:
    """
    What another account has put into a folder that anyone may write to (such as /tmp), which must not speak for the
    user. The working directory itself was chosen on purpose.
    """
    try:
        if not os.stat(folder).st_mode & stat.S_IWOTH:
            return []
    except OSError:
        return []
    return [folder / name for name in _SPEAKING if _is_foreign(folder / name)]


def _is_foreign(path: Path) -> bool:
    try:
        return os.lstat(path).st_uid not in (0, os.geteuid())
    except OSError:
        return False


def _refusal(path: Path) -> str:
    return (
        f"{printable(path)}: skipped, as it belongs to another account in a folder that anyone may write to; "
        "import it from the project's own file to use it"
    )


@attrs.define(eq=False)
class NestedInstructions:
    """
    A session's memory of the folders that it has been to.

    Args:
        start: what holds from the beginning.
        cwd: folders below it count when a file there is touched; ``add_dirs`` count themselves, too.
    """

    start: Instructions
    cwd: Path
    add_dirs: tuple[Path, ...] = ()
    _folders: set[Path] = attrs.field(factory=set, init=False)
    _touched: set[Path] = attrs.field(factory=set, init=False)
    _reader: InstructionReader = attrs.field(init=False)
    _scoped: list[InstructionFile] = attrs.field(init=False)

    @_reader.default
    def _make_reader(self) -> InstructionReader:
        start = self.start
        return InstructionReader(areas=start.areas, user_home=start.user_home, seen=set(start.seen), chars=start.chars)

    @_scoped.default
    def _take_scoped(self) -> list[InstructionFile]:
        return list(self.start.scoped)

    async def touch(self, paths: Iterable[Path]) -> tuple[tuple[InstructionFile, ...], tuple[str, ...]]:
        """
        The instructions that newly hold, now that these files (real paths) were read or written, and warnings.

        Each comes once, until `forget`. Cancelled: what would have been told is told at the next touch.
        """
        new = [path for path in dict.fromkeys(paths) if path not in self._touched]
        if not new:
            return (), ()
        found = await in_thread(self._look, tuple(new))
        self._touched.update(new)
        warnings = tuple(self._reader.warnings)
        self._reader.files.clear()
        self._reader.warnings.clear()
        self._scoped = [rule for rule in self._scoped if rule not in found]
        return found, warnings

    def forget(self) -> None:
        """Begin anew, after the history that held the nested instructions has been cut away."""
        self._folders.clear()
        self._touched.clear()
        self._reader = self._make_reader()
        self._scoped = self._take_scoped()

    def _look(self, paths: Sequence[Path]) -> tuple[InstructionFile, ...]:
        # What the model has read by itself need not be told again.
        self._reader.seen.update(real(path) for path in paths)
        for path in paths:
            for folder in self._folders_of(path):
                if folder not in self._folders:
                    self._reader.folder(folder)
                    self._folders.add(folder)
        self._scoped += self._reader.scoped
        self._reader.scoped.clear()
        rules = [rule for rule in self._scoped if any(rule.applies_to(path) for path in paths)]
        return (*self._reader.files, *rules)

    def _folders_of(self, path: Path) -> list[Path]:
        """From the outermost on, the folders of a touched file whose instructions hold for it."""
        for root in (self.cwd, *self.add_dirs):
            if path.is_relative_to(root):
                steps = path.relative_to(root).parts[:-1]
                if _FOREIGN.intersection(steps):
                    return []
                folders = [root.joinpath(*steps[:count]) for count in range(len(steps) + 1)]
                return folders[1:] if root == self.cwd else folders
        return []
