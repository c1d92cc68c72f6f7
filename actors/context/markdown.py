"""
What of an instruction file is meant for whom: imports, and comments that are for people only. Pure.

Neither counts inside of code: not in fenced or indented blocks, not between backticks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final, Literal, TypeAlias

import attrs

__all__ = ["ImportMark", "find_imports", "without_comments"]

_FENCE: Final = re.compile(r" {0,3}(?:[-*+] +|\d+[.)] +)?(`{3,}(?!.*`)|~{3,})")
_FENCE_IN_LIST: Final = re.compile(r"[ \t]*(?:[-*+] +|\d+[.)] +)?(`{3,}(?!.*`)|~{3,})")
_LIST_ITEM: Final = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
_INDENTED: Final = re.compile(r" {4}| {0,3}\t")
_COMMENT: Final = re.compile(r" {0,3}<!--")
_LINE_END: Final = re.compile(r"[ \t]*\r?(?:\n|\Z)")
_IMPORT: Final = re.compile(r"(?<![^\s(])@((?:\\[^\n]|[^\s\\`])+)")
_TICKS: Final = re.compile(r"`+")
_BREAK: Final = re.compile(r"\n[ \t\r]*\n")
_TRAILING: Final = ".,;:!?)]}>\"'*"

_Kind: TypeAlias = Literal["prose", "code", "comment"]


@attrs.frozen(kw_only=True)
class ImportMark:
    """
    A file that a text names with ``@``.

    ``targets``: the paths it may mean, likeliest first (a full stop may belong to the name or to the sentence).
    ``line`` counts from 1.
    """

    targets: tuple[str, ...]
    line: int


def find_imports(text: str) -> tuple[ImportMark, ...]:
    """All imports outside of code and comments, in order; each target once."""
    prose = _prose(text)
    marks: dict[str, ImportMark] = {}
    for found in _IMPORT.finditer(prose):
        targets = _targets(found[1])
        if targets and targets[0] not in marks:
            marks[targets[0]] = ImportMark(targets=targets, line=prose.count("\n", 0, found.start()) + 1)
    return tuple(marks.values())


def _targets(raw: str) -> tuple[str, ...]:
    name = re.sub(r"\\(.)", r"\1", raw)
    candidates = (name, name.rstrip(_TRAILING), name.partition("#")[0])
    return tuple(dict.fromkeys(path for path in candidates if re.match(r"[\w./~-]", path) and path.strip("./~")))


def without_comments(text: str) -> str:
    """
    The text without its HTML comments that begin a line, which are notes among people. All else stays as it is, to
    the byte; a comment that is never closed is none.
    """
    if "<!--" not in text:
        return text
    return "".join(text[start:end] for start, end, kind in _pieces(text) if kind != "comment")


def _prose(text: str) -> str:
    """The text with everything else replaced by spaces; lines stay lines."""
    parts: list[str] = []
    for kind, pieces in groupby(_pieces(text), key=itemgetter(2)):
        part = "".join(text[start:end] for start, end, _ in pieces)
        parts.append(_without_spans(part) if kind == "prose" else _spaces(part))
    return "".join(parts)


def _spaces(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _without_spans(prose: str) -> str:
    """Code spans blanked: a run of backticks up to the next run of the same length in the same paragraph."""
    out: list[str] = []
    position = index = 0
    runs = list(_TICKS.finditer(prose))
    breaks = [found.start() for found in _BREAK.finditer(prose)]
    while index < len(runs):
        next_break = bisect_right(breaks, runs[index].start())
        limit = breaks[next_break] if next_break < len(breaks) else len(prose)
        closing = _closing(runs, index, limit)
        if closing is None:
            index += 1
            continue
        start, end = runs[index].start(), runs[closing].end()
        out += (prose[position:start], _spaces(prose[start:end]))
        position, index = end, closing + 1
    return "".join((*out, prose[position:]))


def _closing(runs: list[re.Match[str]], index: int, limit: int) -> int | None:
    length = len(runs[index][0])
    for later in range(index + 1, len(runs)):
        if runs[later].start() >= limit:
            return None
        if len(runs[later][0]) == length:
            return later
    return None


def _pieces(text: str) -> Iterator[tuple[int, int, _Kind]]:
    """The whole text as (start, end, kind): lines, and comments as one."""
    fence = ""
    in_list = False
    may_indent = True
    last_close = text.rfind("-->")
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        line = text[start:end]
        kind: _Kind = "prose"
        found = (_FENCE_IN_LIST if in_list or fence else _FENCE).match(line)
        if fence:
            kind = "code"
            if found and found[1].startswith(fence) and not line[found.end() :].strip():
                fence = ""
        elif found:
            fence, kind = found[1], "code"
        elif start < last_close and _COMMENT.match(line):
            kind, end = "comment", _end_of_comment(text, start)
        elif line.strip():
            in_list = bool(_LIST_ITEM.match(line)) or (in_list and line[0] in " \t")
            kind = "code" if may_indent and not in_list and _INDENTED.match(line) else "prose"
        may_indent = kind == "code" or not line.strip()
        yield start, end, kind
        start = end


def _end_of_comment(text: str, start: int) -> int:
    """Behind the comment, and behind its line if nothing else is left on it."""
    end = text.index("-->", text.index("<!--", start) + 2) + 3
    rest = _LINE_END.match(text, end)
    return rest.end() if rest else end
