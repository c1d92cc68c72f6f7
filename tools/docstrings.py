"""
What a docstring says about a callable and its parameters, for the description of a tool. Pure.

Understood are an ``Args:`` section (one parameter a line, continued by deeper lines), the same on one line
(``Args: city: name in English; year: four digits``), and ``:param city: ...`` fields. Everything else is description.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection

__all__ = ["parse_docstring"]

_SECTION = re.compile(r"(?:^|(?<=\s))(?:Args|Arguments|Parameters|Params):(?=\s|$)", re.MULTILINE)
_NEXT_SECTION = re.compile(r"^(?:Returns?|Raises|Yields?|Examples?|Notes?|Warnings?|See Also):", re.MULTILINE)
_FIELD = re.compile(r"^:param\s+(?:[^:\n]*\s)?\*{0,2}(\w+):\s*(.*(?:\n[ \t]+.*)*)\n?", re.MULTILINE)
_SILENT_FIELD = re.compile(r"^:(?:type|rtype)[^:\n]*:.*\n?", re.MULTILINE)


def parse_docstring(doc: str | None, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """
    The description, and what is said about each of the parameters ``names``.

    A name that is no parameter starts no entry: it belongs to the text of the entry before it.
    """
    text = inspect.cleandoc(doc or "")
    about: dict[str, str] = {}

    def take(match: re.Match[str]) -> str:
        if match[1] not in names:
            return match[0]
        about[match[1]] = _one_line(match[2])
        return ""

    text = _SILENT_FIELD.sub("", _FIELD.sub(take, text))
    section = _find_section(text, names)
    if section is not None:
        start, end = section
        about.update(_entries(text[start:end].partition(":")[2], names))
        text = f"{text[:start].rstrip()}\n\n{text[end:].lstrip()}"
    return text.strip(), about


def _find_section(text: str, names: Collection[str]) -> tuple[int, int] | None:
    """Where the section about the parameters begins and ends, if there is one that names any."""
    for match in _SECTION.finditer(text):
        end = len(text)
        following = _NEXT_SECTION.search(text, match.end())
        if following is not None:
            end = following.start()
        body = text[match.end() : end]
        closing = re.search(r"\n[ \t]*\n(?=\S)", body)
        if closing is not None:  # a paragraph that isn't indented is no longer part of the section
            end = match.end() + closing.start()
        if _entries(text[match.end() : end], names):
            return match.start(), end
    return None


def _entries(body: str, names: Collection[str]) -> dict[str, str]:
    if not names:
        return {}
    known = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    # An entry begins on a line of its own, or after the end of another one on the same line.
    start = re.compile(rf"(?:^|(?<=[;,.])|(?<=[;,.]\s))\s*\*{{0,2}}({known})\s*(?:\([^)\n]*\))?\s*:\s", re.MULTILINE)
    found = list(start.finditer(f"{body} "))
    ends = [match.start() for match in found[1:]] + [len(body)]
    return {
        match[1]: _one_line(body[match.end() : end]).rstrip(";,").rstrip()
        for match, end in zip(found, ends, strict=True)
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())
