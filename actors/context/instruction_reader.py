"""
Reads instruction files with all that they import, each once, within limits. Blocking.

What a project's files may bring in lies inside the project, its added folders or the user's own instruction folders:
a cloned repository can't send the model whatever else the account can read. What can't be used is named in a warning
and skipped; nothing is raised.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs

from atrio.tools.paths import is_inside, rule_regex

from .front_matter import parse_front_matter
from .markdown import ImportMark, find_imports, without_comments
from .texts import TextFile, Unreadable, markdown_below, printable, read_text, real

__all__ = ["InstructionFile", "InstructionReader", "Scope"]

FILE_LIMIT_BYTES: Final = 4 * 2**20
"""A larger file is no text that someone wrote for a model."""

TOTAL_LIMIT_CHARS: Final = 400_000
"""All files of a session together: about 100,000 tokens, half of an ordinary window. Nothing could be done beyond."""

LARGE_CHARS: Final = 40_000
"""A file above this is used, with a warning: it costs about 10,000 tokens in every request."""

MAX_HOPS: Final = 4
MAX_FILES: Final = 300

_NAMES: Final = ("AGENTS.md", "CLAUDE.md", ".atrio/AGENTS.md", ".atrio/CLAUDE.md", ".claude/CLAUDE.md")
_RULES: Final = (".claude/rules", ".atrio/rules")
_LOCAL: Final = ("CLAUDE.local.md",)

Scope: TypeAlias = Literal["managed", "user", "project", "local"]
"""Whose word a file is: the machine's administrator, the user, the project, the user in this project."""


@attrs.frozen(kw_only=True)
class InstructionFile:
    """
    One file of instructions. ``text`` goes to the model as it is.

    ``globs`` bind it to files: paths relative to ``base``, the folder that it belongs to. Without, it always holds.
    """

    path: Path
    scope: Scope
    text: str
    base: Path
    globs: tuple[str, ...] = ()
    imported_by: Path | None = None

    def applies_to(self, path: Path) -> bool:
        """Whether its globs match this absolute path."""
        if not path.is_relative_to(self.base):
            return False
        relative = path.relative_to(self.base).as_posix()
        return any(_matches(glob, relative) for glob in self.globs)


def _matches(glob: str, relative: str) -> bool:
    return any(rule_regex(choice).fullmatch(relative) for choice in _without_braces(glob))


def _without_braces(glob: str) -> list[str]:
    """``a.{b,c}`` as ``a.b`` and ``a.c``; deeper or endless ones are taken literally."""
    choices = [""]
    rest = glob
    while "{" in rest and "}" in rest.partition("{")[2] and len(choices) <= MAX_FILES:
        before, _, rest = rest.partition("{")
        inside, _, rest = rest.partition("}")
        choices = [choice + before + part for choice in choices for part in inside.split(",")]
    return [choice + rest for choice in choices]


@attrs.frozen
class _Chain:
    """Where an import stands: the files above it, what they may reach (None: everything) and what they are about."""

    scope: Scope
    base: Path
    areas: tuple[Path, ...] | None
    above: tuple[Path, ...] = ()
    globs: tuple[str, ...] = ()
    imported_by: Path | None = None


@attrs.define
class InstructionReader:
    """
    Collects files. ``seen`` holds the real paths of all that was looked at, so that none comes twice.

    Args:
        areas: real folders that project files may import from, besides their own.
        user_home: what ``~`` means.
    """

    areas: tuple[Path, ...]
    user_home: Path | None
    seen: set[Path] = attrs.field(factory=set)
    chars: int = 0
    files: list[InstructionFile] = attrs.field(factory=list)
    scoped: list[InstructionFile] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)

    def folder(self, folder: Path) -> None:
        """All that a project's folder itself holds: its files, its rules, then the local file."""
        for name in _NAMES:
            self._top(folder / name, "project", folder)
        for name in _RULES:
            self.rules(folder / name, "project", folder)
        for name in _LOCAL:
            self._top(folder / name, "local", folder)

    def named(self, paths: Iterable[Path], scope: Scope) -> None:
        """These files, as far as they are there."""
        for path in paths:
            self._top(path, scope, path.parent)

    def rules(self, folder: Path, scope: Scope, base: Path) -> None:
        """All rules in a folder and below. Those with ``paths`` are kept in ``scoped``."""
        for path in markdown_below(folder):
            self._top(path, scope, base, rule=True)

    def _top(self, path: Path, scope: Scope, base: Path, *, rule: bool = False) -> None:
        areas = None if scope in ("managed", "user") else (*self.areas, real(base))
        self._read(path, _Chain(scope=scope, base=base, areas=areas), rule=rule)

    def _read(self, path: Path, chain: _Chain, *, rule: bool = False) -> bool:
        """Take a file and its imports; False if there is none."""
        found = real(path)
        if found in chain.above:
            self.warnings.append(f"{printable(path)}: it is imported by itself, through {_names(chain)}; skipped there")
            return True
        if found in self.seen:
            return True
        if chain.areas is not None and not is_inside(found, chain.areas):
            return self._outside(path, found)
        file = read_text(path, FILE_LIMIT_BYTES)
        if file is None:
            return False
        self.seen.add(found)
        if isinstance(file, Unreadable):
            self.warnings.append(str(file))
            return True
        if file.problem:
            self.warnings.append(file.problem)
        self._take(file, chain, rule=rule)
        return True

    def _outside(self, path: Path, found: Path) -> bool:
        if not os.path.isfile(found):
            return False
        self.seen.add(found)
        self.warnings.append(
            f"{printable(path)}: skipped, as {printable(found)} lies outside of the project; "
            "add its folder to the session's folders (--add-dir) to use it"
        )
        return True

    def _take(self, file: TextFile, chain: _Chain, *, rule: bool) -> None:
        raw, globs = self._without_front_matter(file) if rule else (file.text, chain.globs)
        text = without_comments(raw)
        if text.strip():
            self._keep(
                InstructionFile(
                    path=file.path,
                    scope=chain.scope,
                    text=text,
                    base=chain.base,
                    globs=globs,
                    imported_by=chain.imported_by,
                )
            )
        self._imports(file, raw, attrs.evolve(chain, globs=globs))

    def _without_front_matter(self, file: TextFile) -> tuple[str, tuple[str, ...]]:
        matter = parse_front_matter(file.text)
        self.warnings += (f"{printable(file.path)}: {problem}" for problem in matter.problems)
        globs = tuple(dict.fromkeys((*matter.items("paths"), *matter.items("globs"))))
        return matter.body, () if matter.flag("alwaysapply", False) else globs

    def _keep(self, file: InstructionFile) -> None:
        place = printable(file.path)
        if any(other.text == file.text and other.base == file.base for other in self.files):
            return
        if len(self.files) + len(self.scoped) >= MAX_FILES:
            self.warnings.append(f"{place}: skipped, as a session takes at most {MAX_FILES} instruction files")
            return
        if self.chars + len(file.text) > TOTAL_LIMIT_CHARS:
            self.warnings.append(
                f"{place}: skipped, as all instruction files together would have more than "
                f"{TOTAL_LIMIT_CHARS:,} characters; shorten them"
            )
            return
        if len(file.text) > LARGE_CHARS:
            self.warnings.append(
                f"{place}: it has {len(file.text):,} characters, which every request carries; shorten it"
            )
        self.chars += len(file.text)
        (self.scoped if file.globs else self.files).append(file)

    def _imports(self, file: TextFile, text: str, chain: _Chain) -> None:
        above = (*chain.above, file.real)
        inner = attrs.evolve(chain, above=above, imported_by=file.path)
        for mark in find_imports(text):
            if len(above) <= MAX_HOPS:
                self._import(file.path, mark, inner)
            elif os.path.isfile(self._target(file.path, mark.targets[0])):
                self.warnings.append(
                    f"{printable(file.path)}, line {mark.line}: @{mark.targets[0]} skipped, as it is more than "
                    f"{MAX_HOPS} imports deep"
                )

    def _import(self, importer: Path, mark: ImportMark, chain: _Chain) -> None:
        for target in mark.targets:
            if self._read(self._target(importer, target), chain):
                return
        target = mark.targets[-1]
        if _means_a_file(target, self._target(importer, target)):
            self.warnings.append(
                f"{printable(importer)}, line {mark.line}: there is no file @{target}; "
                "correct the path, or put it in backticks if it is no import"
            )

    def _target(self, importer: Path, target: str) -> Path:
        if target.startswith("~/") and self.user_home is not None:
            return self.user_home / target[2:]
        return importer.parent / target


def _names(chain: _Chain) -> str:
    return ", ".join(printable(path) for path in chain.above)


def _means_a_file(target: str, path: Path) -> bool:
    """Whether a name behind an ``@`` is an import that failed, and not a person, a package or a decorator."""
    if target.startswith(("./", "../", "~/", "/")) or path.suffix.lower() in (".md", ".txt", ".mdc", ".json"):
        return True
    return "/" in target and os.path.isdir(path.parent)
