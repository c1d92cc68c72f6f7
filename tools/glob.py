"""`Glob`: files by the pattern of their path."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs

from atrio.runtime.errors import ToolRejected
from atrio.runtime.tool import Tool, ToolContext, ToolOutput

from .paths import MAGIC, glob_regex, literal_prefix, locate, real_path, shown
from .permissions import denied_reads
from .rules import Rules
from .schema import Field, json_schema, structure
from .walk import StopCheck, Walker, search_in_thread

__all__ = ["Glob", "GlobInput"]

MAX_SHOWN: Final = 100
"""Paths in one result; a longer list is rarely read, and costs context."""

MAX_PATTERN_CHARS: Final = 1_000

MAX_STARS: Final = 5
"""``*`` in one part of a pattern, and ``**`` in the whole: matching takes time to the power of their number."""

DESCRIPTION: Final = """\
Finds files by a pattern of their path, newest first, at most 100.

- `**/*.py` finds at any depth, `*.py` only in the folder itself, `src/**/*.{ts,tsx}` below src.
- Files that .gitignore leaves out are not found, unless the pattern's leading folders, or the whole pattern \
without wildcards, name them. Hidden files are found, version control folders are not.
- Use Grep to search the files' contents."""


@attrs.frozen(kw_only=True)
class GlobInput:
    """What Glob takes."""

    pattern: Annotated[str, Field(description="The pattern, such as **/*.py; may be absolute", min_length=1)]
    path: Annotated[
        str | None, Field(description="The folder to search; leave it out for the current working directory")
    ] = None


@attrs.frozen(kw_only=True)
class _Found:
    paths: list[str]
    unreadable: int
    cut: bool


class Glob(Tool):
    """Finds files. What the deny rules among ``rules`` keep from being read is not found either."""

    name = "Glob"
    description = DESCRIPTION
    input_schema = json_schema(GlobInput)
    read_only = True
    idempotent = True
    permission: Literal["allow", "read", "edit", "ask"] = "read"

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules if rules is not None else Rules()

    def parse(self, raw: Mapping[str, Any]) -> GlobInput:
        return structure(GlobInput, raw, tool=self.name)

    def paths(self, input: GlobInput, ctx: ToolContext) -> tuple[Path, ...]:
        return (_split(input, ctx.cwd)[0],)

    def specifier(self, input: GlobInput) -> str:
        return f"{input.path.rstrip('/')}/{input.pattern}" if input.path else input.pattern

    async def check(self, input: GlobInput, ctx: ToolContext) -> None:
        """Raises `ToolRejected` for a pattern that can't be used, or a folder that isn't there."""
        require_plain_pattern(input.pattern)
        if input.path is not None:
            require_folder(locate(input.path, ctx.cwd), ctx.cwd)

    async def run(self, input: GlobInput, ctx: ToolContext) -> ToolOutput:
        """Changes nothing, so nothing needs to be undone when it is cancelled."""
        root, pattern = _split(input, ctx.cwd)
        hides = denied_reads(self.name, self.rules, ctx)
        found = await search_in_thread(self.name, lambda stop: _find(root, pattern, ctx, hides, stop))
        return _output(found, input, ctx)


def require_plain_pattern(pattern: str) -> None:
    """Raises `ToolRejected` if it would take too long to match paths with the pattern."""
    parts = pattern.split("/")
    stars = max(len(re.findall(r"\*+", part)) for part in parts)
    if len(pattern) > MAX_PATTERN_CHARS or stars > MAX_STARS or parts.count("**") > MAX_STARS:
        raise ToolRejected(
            f"The pattern is too long (over {MAX_PATTERN_CHARS:,} characters) or has too many wildcards "
            f"(over {MAX_STARS} in one part, or over {MAX_STARS} times **); use a simpler one, such as **/*.py."
        )


def require_folder(path: Path, cwd: Path) -> None:
    """Raises `ToolRejected` unless there is a folder at ``path``."""
    try:
        if path.is_dir():
            return
        exists = path.exists()
    except (OSError, ValueError) as error:
        raise ToolRejected(f"{shown(path, cwd)} can't be searched: {error}") from error
    if exists:
        raise ToolRejected(f"{shown(path, cwd)} is a file; give the folder that holds it as path.")
    raise ToolRejected(missing(path, cwd, "folder"))


def missing(path: Path, cwd: Path, kind: str) -> str:
    """What to tell of a path that isn't there: with similar names beside it."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        names = []
    lower = {name.lower(): name for name in names}
    close = [lower[name] for name in difflib.get_close_matches(path.name.lower(), list(lower), n=3)]
    text = f"There is no {kind} {shown(path, cwd)} (the working directory is {cwd})."
    return f"{text} Did you mean {', '.join(shown(path.parent / name, cwd) for name in close)}?" if close else text


def _split(input: GlobInput, cwd: Path) -> tuple[Path, str]:
    """The folder where the walk starts, and the pattern of what is below it."""
    base = locate(input.path, cwd) if input.path is not None else cwd
    pattern = os.path.expanduser(input.pattern) if input.pattern.startswith("~") else input.pattern
    head, rest = literal_prefix(re.sub(r"/{2,}", "/", pattern.removeprefix("./")))
    return locate(head, base) if head else base, rest


def _find(
    root: Path, pattern: str, ctx: ToolContext, hides: Callable[[Path], bool] | None, should_stop: StopCheck
) -> _Found:
    real = real_path(root)
    if real is None or not real.is_dir():
        return _Found(paths=[], unreadable=0, cut=False)
    if not MAGIC.search(pattern):
        named = root / pattern
        is_there = named.is_file() and (hides is None or not hides(named))
        return _Found(paths=[str(named)] if is_there else [], unreadable=0, cut=False)
    depth = None if "**" in pattern else pattern.count("/") + 1
    walker = Walker(
        root=real, within=(*ctx.workspace.roots, real), should_stop=should_stop, hides=hides, max_depth=depth
    )
    regex = re.compile(glob_regex(pattern), re.DOTALL)
    prefix = len(str(real).rstrip("/")) + 1
    dated: list[tuple[int, str]] = []
    for entry in walker.files():
        relative = entry.path[prefix:]
        if regex.fullmatch(relative):
            try:
                dated.append((-entry.stat().st_mtime_ns, str(root / relative)))
            except OSError:  # it has gone meanwhile
                continue
    dated.sort()
    return _Found(paths=[path for _, path in dated], unreadable=walker.unreadable, cut=walker.cut)


def _output(found: _Found, input: GlobInput, ctx: ToolContext) -> ToolOutput:
    names = [shown(Path(path), ctx.cwd) for path in found.paths]
    notes = []
    if len(names) > MAX_SHOWN:
        notes.append(f"({len(names) - MAX_SHOWN:,} older files left out; use a narrower pattern or path)")
    if found.cut:
        notes.append("(the search was stopped before it had seen everything; use a narrower path)")
    if found.unreadable:
        notes.append(f"({found.unreadable:,} folders could not be read)")
    if not names:
        where = shown(locate(input.path or ".", ctx.cwd), ctx.cwd)
        hint = f" Only the folder itself was searched; **/{input.pattern} searches all below." * (
            "/" not in input.pattern and "**" not in input.pattern
        )
        text = f"No files match {input.pattern} in {'the working directory' if where == '.' else where}.{hint}"
        return ToolOutput("\n".join([text, *notes]), details={"filenames": [], "numFiles": 0, "truncated": found.cut})
    visible = names[:MAX_SHOWN]
    truncated = found.cut or len(names) > MAX_SHOWN
    details = {"filenames": visible, "numFiles": len(names), "truncated": truncated}
    return ToolOutput("\n".join([*visible, *notes]), details=details)
