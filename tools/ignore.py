"""
What a search leaves out: the rules of ``.gitignore``, ``.ignore`` and ``.git/info/exclude`` files.

Each entry of a walk is held against the patterns by itself, as git does it: what lies in a folder that is let in is not
ignored for its folder's sake. (Matchers for whole paths, such as pathspec's, differ here: below a ``.gitignore`` of
``*`` and ``!a``, git tracks ``a/a``.)

Rules of a deeper folder win over those above, later lines over earlier ones, ``.ignore`` over ``.gitignore``. Unlike
git, ``.gitignore`` files also count outside of a repository; the user's global excludes file is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from .paths import glob_regex

__all__ = ["IGNORE_FILES", "VCS_DIRS", "IgnoreRules", "rules_at", "rules_for"]

IGNORE_FILES: Final = (".ignore", ".gitignore")
"""In the order of their weight."""

VCS_DIRS: Final = frozenset({".git", ".hg", ".svn", ".jj"})
"""Never walked into."""

IGNORE_FILE_BYTES: Final = 1_000_000
"""More of an ignore file is not read: each line costs time at each path."""


@attrs.frozen
class _Pattern:
    """One line: matched with the path below the file's folder, or with just the name if it holds no slash."""

    regex: re.Pattern[str]
    by_path: bool
    dirs_only: bool
    ignores: bool


@attrs.frozen
class _Layer:
    """The lines of one file, the last first, and the folder they are relative to (a prefix that ends in a slash)."""

    base: str
    patterns: tuple[_Pattern, ...]

    def verdict(self, path: str, is_dir: bool) -> bool | None:
        """What the last line that matches says; None if none does."""
        below = path[len(self.base) :]
        name = below.rpartition("/")[2]
        for pattern in self.patterns:
            if (is_dir or not pattern.dirs_only) and pattern.regex.fullmatch(below if pattern.by_path else name):
                return pattern.ignores
        return None


@attrs.frozen
class IgnoreRules:
    """The rules that hold in one folder, the weightiest first."""

    _layers: tuple[_Layer, ...] = ()

    def ignores(self, path: str, *, is_dir: bool) -> bool:
        """
        Whether the file or folder of this absolute path is left out.

        It is meant for walks from the top: that a folder above is ignored is for the caller to know.
        """
        for layer in self._layers:
            if not path.startswith(layer.base):
                continue
            verdict = layer.verdict(path, is_dir)
            if verdict is not None:
                return verdict
        return False

    def under(self, folder: str, names: Iterable[str]) -> IgnoreRules:
        """The rules that hold in a subfolder, of whose entries these are the names."""
        present = set(names)
        if ".git" in present:  # another repository: what is above has no say
            return rules_at(Path(folder))
        layers = [_layer(Path(folder, name), folder) for name in IGNORE_FILES if name in present]
        found = tuple(layer for layer in layers if layer is not None)
        return IgnoreRules((*found, *self._layers)) if found else self


def rules_for(root: Path) -> IgnoreRules:
    """
    The rules that hold in a search's root folder, with those of the folders above, up to the repository's.

    A root that these would leave out was named on purpose, so then just its own files count.
    """
    repository = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    if repository is None:
        return rules_at(root)
    rules = rules_at(repository)
    steps = root.relative_to(repository).parts
    folder = repository
    for step in steps:
        folder = folder / step
        if rules.ignores(str(folder), is_dir=True):
            return rules_at(root)
        rules = rules.under(str(folder), [name for name in IGNORE_FILES if (folder / name).is_file()])
    return rules


def rules_at(folder: Path) -> IgnoreRules:
    """The rules of this folder's own files; ``.git/info/exclude`` weighs least."""
    files = (*(folder / name for name in IGNORE_FILES), folder / ".git" / "info" / "exclude")
    layers = (_layer(file, str(folder)) for file in files)
    return IgnoreRules(tuple(layer for layer in layers if layer is not None))


def _layer(file: Path, base: str) -> _Layer | None:
    try:
        if not file.is_file():  # a pipe of this name would block
            return None
        with file.open("rb") as stream:
            text = stream.read(IGNORE_FILE_BYTES).decode("utf-8-sig", "surrogateescape")
    except OSError:
        return None
    patterns = [pattern for line in reversed(text.split("\n")) if (pattern := _pattern(line.removesuffix("\r")))]
    return _Layer(base.rstrip("/") + "/", tuple(patterns)) if patterns else None


def _pattern(line: str) -> _Pattern | None:
    """What a line says; None for an empty one or a comment."""
    if not line.endswith("\\ "):
        line = line.rstrip(" ")
    if line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    body = line if ignores else line[1:]
    dirs_only = body.endswith("/")
    body = body.removesuffix("/")
    if not body:
        return None
    regex = re.compile(glob_regex(body.removeprefix("/"), braces=False), re.DOTALL)
    return _Pattern(regex, by_path="/" in body, dirs_only=dirs_only, ignores=ignores)
