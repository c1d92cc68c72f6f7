"""
`Grep`: files and lines by a regular expression of their contents.

A worker thread finds the files, a process of its own looks into them (see `atrio.tools.grep_child`), so even an
expression that would take for ever delays nothing else and ends with the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs

from atrio.runtime.errors import ToolRejected
from atrio.runtime.tool import Tool, ToolContext, ToolOutput

from .file_types import FILE_TYPES
from .glob import missing, require_plain_pattern
from .grep_pattern import compile_pattern
from .grep_search import Found, search_files
from .paths import glob_regex, locate, real_path, shown
from .permissions import denied_reads
from .rules import Rules
from .schema import Field, json_schema, structure
from .shapes import close_names
from .walk import SEARCH_LIMIT, StopCheck, Walker, search_in_thread

__all__ = ["Grep", "GrepInput"]

DEFAULT_LIMIT: Final = 250

MAX_LIMIT: Final = 5_000
"""What a head_limit of 0 comes to."""

MAX_CONTEXT: Final = 1_000

DESCRIPTION: Final = """\
Searches the contents of files for a regular expression.

- Syntax as in ripgrep and Python: `log.*Error`, `function\\s+\\w+`; literal special characters need a backslash \
(`interface\\{\\}`).
- output_mode: "files_with_matches" (default) lists files, newest first; "content" shows the lines; "count" counts them.
- Narrow the search with path, glob (`*.js`, `**/*.{ts,tsx}`, `!*.test.ts`) or type (py, js, rust, ...).
- Lines are searched one by one; multiline: true lets the expression and its dots go over line ends.
- Files that .gitignore leaves out and binary files are not searched; hidden files are. Name an ignored file or folder \
as path to search it."""


@attrs.frozen(kw_only=True)
class GrepInput:
    """What Grep takes; the short keys are those of grep and ripgrep."""

    pattern: Annotated[str, Field(description="The regular expression to search for", min_length=1)]
    path: Annotated[str | None, Field(description="File or folder to search; default: the working directory")] = None
    glob: Annotated[str | None, Field(description='Search only files like this, such as "*.js" or "src/**/*.ts"')] = (
        None
    )
    type: Annotated[str | None, Field(description="Search only files of this type: py, js, ts, rust, go, ...")] = None
    output_mode: Annotated[
        Literal["files_with_matches", "content", "count"], Field(description="What to show of the matches")
    ] = "files_with_matches"
    ignore_case: Annotated[bool, Field(description="Upper and lower case are the same", aliases=("-i",))] = False
    line_numbers: Annotated[bool, Field(description="Show line numbers (in content mode)", aliases=("-n",))] = True
    after: Annotated[int, Field(description="Lines to show after each match", ge=0, aliases=("-A",))] = 0
    before: Annotated[int, Field(description="Lines to show before each match", ge=0, aliases=("-B",))] = 0
    context: Annotated[int, Field(description="Lines to show around each match", ge=0, aliases=("-C",))] = 0
    head_limit: Annotated[int, Field(description="How many lines or files to show; 0: as many as fit", ge=0)] = (
        DEFAULT_LIMIT
    )
    offset: Annotated[int, Field(description="How many lines or files to skip first", ge=0)] = 0
    multiline: Annotated[bool, Field(description="Let the pattern match over line ends", aliases=("-U",))] = False


class Grep(Tool):
    """Searches in files. What the deny rules among ``rules`` keep from being read is not searched either."""

    name = "Grep"
    description = DESCRIPTION
    input_schema = json_schema(GrepInput)
    read_only = True
    idempotent = True
    permission: Literal["allow", "read", "edit", "ask"] = "read"

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules if rules is not None else Rules()

    def parse(self, raw: Mapping[str, Any]) -> GrepInput:
        return structure(GrepInput, raw, tool=self.name)

    def paths(self, input: GrepInput, ctx: ToolContext) -> tuple[Path, ...]:
        return (locate(input.path or ".", ctx.cwd),)

    def specifier(self, input: GrepInput) -> str:
        return input.path or "."

    async def check(self, input: GrepInput, ctx: ToolContext) -> None:
        """Raises `ToolRejected` for a pattern, type or glob that can't be used, or a path that isn't there."""
        compile_pattern(input.pattern, ignore_case=input.ignore_case, multiline=input.multiline)
        if input.type is not None and input.type not in FILE_TYPES:
            close = close_names(input.type, list(FILE_TYPES))
            hint = f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(FILE_TYPES)}"
            raise ToolRejected(f"Unknown file type {input.type!r}; {hint} Or use glob, such as *.{input.type}.")
        for pattern in _globs(input.glob):
            require_plain_pattern(pattern)
        path = locate(input.path or ".", ctx.cwd)
        try:
            if not path.exists():
                raise ToolRejected(missing(path, ctx.cwd, "file or folder"))
        except (OSError, ValueError) as error:
            raise ToolRejected(f"{shown(path, ctx.cwd)} can't be searched: {error}") from error

    async def run(self, input: GrepInput, ctx: ToolContext) -> ToolOutput:
        """When cancelled, its process is gone when the cancellation goes on; nothing else needs to be undone."""
        regex = compile_pattern(input.pattern, ignore_case=input.ignore_case, multiline=input.multiline)
        hides = denied_reads(self.name, self.rules, ctx)
        listing = await search_in_thread(self.name, lambda stop: _list_files(input, ctx, hides, stop))
        limit = min(input.head_limit or MAX_LIMIT, MAX_LIMIT)
        found = await search_files(
            listing.paths,
            regex,
            mode=input.output_mode,
            multiline=input.multiline,
            before=min(input.before or input.context, MAX_CONTEXT),
            after=min(input.after or input.context, MAX_CONTEXT),
            offset=input.offset,
            limit=limit,
        )
        return _output(found, listing, input, ctx)


@attrs.frozen(kw_only=True)
class _Listing:
    """The files to search, in the order of the result."""

    paths: list[str]
    cut: bool = False
    unreadable: int = 0


def _list_files(
    input: GrepInput, ctx: ToolContext, hides: Callable[[Path], bool] | None, should_stop: StopCheck
) -> _Listing:
    root = locate(input.path or ".", ctx.cwd)
    real = real_path(root)
    if real is None:
        return _Listing(paths=[])
    if not real.is_dir():
        hidden = hides is not None and (hides(root) or hides(real))
        return _Listing(paths=[] if hidden else [str(root)])
    takes = _filter(input)
    walker = Walker(root=real, within=(*ctx.workspace.roots, real), should_stop=should_stop, hides=hides)
    prefix = len(str(real).rstrip("/")) + 1
    dated: list[tuple[int, str]] = []
    for entry in walker.files():
        relative = entry.path[prefix:]
        if takes(relative, entry.name):
            try:
                age = -entry.stat().st_mtime_ns if input.output_mode == "files_with_matches" else 0
            except OSError:  # it has gone meanwhile
                continue
            dated.append((age, str(root / relative)))
    dated.sort()
    return _Listing(paths=[path for _, path in dated], cut=walker.cut, unreadable=walker.unreadable)


def _globs(text: str | None) -> list[str]:
    """One pattern or several, parted by spaces or commas outside of braces."""
    return re.findall(r"(?:\{[^}]*\}|[^\s,])+", text or "")


def _filter(input: GrepInput) -> Callable[[str, str], bool]:
    """Whether a file is searched, by its path below the root and its name."""
    globs = [(pattern.startswith("!"), _matcher(pattern.removeprefix("!"))) for pattern in _globs(input.glob)]
    wanted = [match for negated, match in globs if not negated]
    unwanted = [match for negated, match in globs if negated]
    kinds = [_matcher(pattern) for pattern in FILE_TYPES[input.type]] if input.type else []

    def takes(path: str, name: str) -> bool:
        if kinds and not any(match(path, name) for match in kinds):
            return False
        if wanted and not any(match(path, name) for match in wanted):
            return False
        return not any(match(path, name) for match in unwanted)

    return takes


def _matcher(pattern: str) -> Callable[[str, str], bool]:
    """Without a slash a pattern is about names, else about paths; one that names a folder is about all below it."""
    body = pattern.removeprefix("./").lstrip("/").rstrip("/")
    if "/" not in pattern.rstrip("/"):
        own = re.compile(glob_regex(body), re.DOTALL)
        if not pattern.endswith("/"):
            return lambda path, name: own.fullmatch(name) is not None
        below = re.compile(f"(?:.*/)?{glob_regex(body)}/.*", re.DOTALL)
        return lambda path, name: below.fullmatch(path) is not None
    whole = re.compile(f"{glob_regex(body)}(?:/.*)?", re.DOTALL)
    return lambda path, name: whole.fullmatch(path) is not None


def _output(found: Found, listing: _Listing, input: GrepInput, ctx: ToolContext) -> ToolOutput:
    lines: list[str] = []
    for hit in found.hits:
        name = shown(Path(listing.paths[hit.file]), ctx.cwd)
        match input.output_mode:
            case "files_with_matches":
                lines.append(name)
            case "count":
                lines.append(f"{name}:{hit.count}")
            case "content":
                lines.extend(_content(name, hit.lines, input, bool(lines)))
    notes = _notes(found, listing, input)
    files = len(found.hits)
    details = {"mode": input.output_mode, "numFiles": files, "truncated": found.more or found.late or listing.cut}
    if not lines:
        again = f" after the first {input.offset}" if input.offset else ""
        return ToolOutput("\n".join([f"No matches found{again}.", *notes]), is_error=found.late, details=details)
    return ToolOutput("\n".join([*lines, *notes]), details=details)


def _content(name: str, rows: list[tuple[int, bool, str]], input: GrepInput, follows: bool) -> list[str]:
    """Lines as grep writes them: ``name:12:text`` for a match, ``name-13-text`` around it, ``--`` for a gap."""
    lines: list[str] = []
    has_context = bool(input.before or input.after or input.context)
    last = -1 if follows else None
    for number, is_match, text in rows:
        if has_context and last is not None and number != last + 1:
            lines.append("--")
        sign = ":" if is_match else "-"
        lines.append(f"{name}{sign}{number}{sign}{text}" if input.line_numbers else f"{name}{sign}{text}")
        last = number
    return lines


def _notes(found: Found, listing: _Listing, input: GrepInput) -> list[str]:
    notes = []
    if found.more:
        shown_count = sum(len(hit.lines) if input.output_mode == "content" else 1 for hit in found.hits)
        notes.append(f"(there is more: go on with offset {input.offset + shown_count}, or narrow the search)")
    if found.late or listing.cut:
        notes.append(
            f"(stopped after {SEARCH_LIMIT:g} s or at too many files, with what was found until then; narrow the "
            "search with path or glob, or use a simpler pattern)"
        )
    if found.large:
        notes.append(f"({found.large:,} files over 16 MiB are too large for multiline and were not searched)")
    if unreadable := found.unreadable + listing.unreadable:
        notes.append(f"({unreadable:,} files or folders could not be read)")
    if found.binary and not found.hits:
        notes.append(f"({found.binary:,} binary files were not searched)")
    return notes
