"""
Where a text occurs in a file, and why it doesn't. Pure.

A model that is told only "not found" tends to send the same again; each likely cause is looked for and named.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from .text_format import numbered

__all__ = ["MAX_PLACES", "Spans", "explain_absence", "find_spans", "line_number", "unified"]

MAX_PLACES: Final = 1_000
COMPARED_LINES: Final = 20_000
COMPARED_CHARS: Final = 200
"""Bounds of the search for the closest region: a few tenths of a second of work at most."""

LINE_RATIO: Final = 0.6
SHOWN_LINES: Final = 15
SHOWN_LINE_CHARS: Final = 300

_LINE_PREFIX: Final = re.compile(r"^[ ]*\d+\t", re.MULTILINE)
_TYPOGRAPHY: Final = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u00a0": " ",
        "\u202f": " ",
        "\u2010": "-",
        "\u2011": "-",
        "\u2013": "-",
        "\u2014": "-",
    }
)


@attrs.frozen(kw_only=True)
class Spans:
    """The places of a text, and what to put there; ``literal``: its line ends are meant as they are."""

    spans: list[tuple[int, int]]
    new: str
    literal: bool


def unified(text: str) -> str:
    """The text with LF line ends only."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def line_number(text: str, index: int) -> int:
    """The number, from 1, of the line that ``index`` is in."""
    before = text[:index]
    crlf = before.count("\r\n")
    return before.count("\n") + before.count("\r") - crlf + 1


def find_spans(text: str, old: str, new: str, *, every: bool) -> Spans:
    """
    Where ``old`` occurs in ``text``. With ``every`` the places don't overlap; without, all possible ones count, since
    any two of them make the place unclear; of those no more than `MAX_PLACES` are looked for.
    """
    if "\r" in old + new:
        found = _occurrences(text, re.compile(re.escape(old)), every)
        if found:
            return Spans(spans=found, new=new, literal=True)
    plain = unified(old)
    if "\r" in text:
        # The looks around keep a pair whole where a pattern of two line ends would match its halves.
        pattern = r"(?:\r\n|\r(?!\n)|(?<!\r)\n)".join(re.escape(line) for line in plain.split("\n"))
    else:
        pattern = re.escape(plain)
    return Spans(spans=_occurrences(text, re.compile(pattern), every), new=new, literal=False)


def _occurrences(text: str, pattern: re.Pattern[str], every: bool) -> list[tuple[int, int]]:
    if every:
        return [match.span() for match in pattern.finditer(text)]
    found: list[tuple[int, int]] = []
    at = 0
    while len(found) < MAX_PLACES and (match := pattern.search(text, at)) is not None:
        found.append(match.span())
        at = match.start() + 1
    return found


def explain_absence(path: Path, text: str, old: str) -> str:
    """The error that ``old`` is not in ``text``, with the likely cause and the lines that were probably meant."""
    text, old = unified(text), unified(old)
    lines = text.split("\n")
    head = f"old_string was not found in {path}."
    bare = _LINE_PREFIX.sub("", old)
    if bare != old and bare in text:
        return f"{head} It holds line numbers as Read shows them; leave out each number and the tab after it."
    at = text.translate(_TYPOGRAPHY).find(old.translate(_TYPOGRAPHY))
    if at >= 0:
        region = _region(lines, line_number(text, at), old.count("\n") + 1)
        return (
            f"{head} It differs only in typographic characters (curly quotes, dashes, no-break spaces). Copy them as "
            f"they are in the file:\n{region}"
        )
    for same, cause in ((str.strip, "in indentation or trailing whitespace"), (_squeezed, "in whitespace")):
        found = _matching_lines(lines, old, same)
        if found is not None:
            number, count = found
            region = _region(lines, number, count)
            return f"{head} It differs only {cause} (tabs or spaces?). The file has:\n{region}"
    if "\\n" in old and old.replace("\\n", "\n").replace("\\t", "\t") in text:
        return f"{head} It holds \\n or \\t as two characters where the file has a line end or tab; use real ones."
    closest = _closest(lines, old)
    if closest is None:
        return f"{head} Nothing like it is there either; read the file again to see what it holds now."
    return f"{head} The closest lines are:\n{_region(lines, closest, old.count(chr(10)) + 1)}\nCompare, and try again."


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def _matching_lines(lines: list[str], old: str, same: Callable[[str], str]) -> tuple[int, int] | None:
    """Number of the first line, and count, of lines that are those of ``old`` under ``same``, blank ends aside."""
    wanted = [same(line) for line in old.strip("\n").split("\n")]
    while wanted and not wanted[-1]:
        wanted.pop()
    while wanted and not wanted[0]:
        wanted.pop(0)
    if not wanted:
        return None
    have = [same(line) for line in lines]
    at = -1
    while True:
        try:
            at = have.index(wanted[0], at + 1)
        except ValueError:
            return None
        if have[at : at + len(wanted)] == wanted:
            return at + 1, len(wanted)


def _closest(lines: list[str], old: str) -> int | None:
    """The number of the line where a text most like ``old`` begins."""
    wanted = [line.strip() for line in old.split("\n")]
    places: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        stripped = line.strip()
        if len(stripped) > 3:  # braces and the like are everywhere
            places.setdefault(stripped, []).append(index)
    votes: Counter[int] = Counter()
    for offset, line in enumerate(wanted):
        for index in places.get(line, ())[:100]:
            votes[max(index - offset, 0)] += 1
    if votes:
        best = max(votes.values())
        return min(start for start, count in votes.items() if count == best) + 1
    return _similar_line(lines, wanted)


def _similar_line(lines: list[str], wanted: list[str]) -> int | None:
    """The same by the longest line of ``wanted`` alone."""
    offset = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[offset][:COMPARED_CHARS])
    best, found = LINE_RATIO, None
    for index, line in enumerate(lines[:COMPARED_LINES]):
        matcher.set_seq1(line.strip()[:COMPARED_CHARS])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, found = ratio, index
    return None if found is None else max(found - offset, 0) + 1


def _region(lines: list[str], first: int, count: int) -> str:
    shown = lines[first - 1 : first - 1 + min(count, SHOWN_LINES)]
    shown = [line if len(line) <= SHOWN_LINE_CHARS else f"{line[:SHOWN_LINE_CHARS]} [...]" for line in shown]
    return "\n".join(numbered(shown, first))
