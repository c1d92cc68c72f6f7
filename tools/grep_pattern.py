"""
Regular expressions as models write them for ripgrep, for Python's `re`. Pure.

The two differ little. Translated are ``(?<name>``, ``\\z``, ``\\x{41}``, ``\\<`` and ``\\>``, ``[[:alpha:]]``,
``\\p{L}``, ``\\p{N}`` and their negations; refused, with a hint, is what Python would read in another sense.
"""

from __future__ import annotations

import re
import warnings
from typing import Final

from atrio.runtime.errors import ToolRejected

from .paths import POSIX_CLASSES

__all__ = ["compile_pattern", "translate"]

MAX_PATTERN_CHARS: Final = 10_000

PROPERTIES: Final = {
    "L": r"[^\W\d_]",
    "Letter": r"[^\W\d_]",
    "Alphabetic": r"[^\W\d_]",
    "N": r"\d",
    "Nd": r"\d",
    "Number": r"\d",
}

PLAIN_ESCAPES: Final = {r"\z": r"\Z", r"\<": r"\b", r"\>": r"\b"}


def compile_pattern(pattern: str, *, ignore_case: bool, multiline: bool) -> re.Pattern[str]:
    """
    The compiled pattern. Raises `ToolRejected` with the place of what can't be understood, and a hint.

    ``multiline`` lets it match over line ends; the dot then matches these too.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolRejected(f"The pattern is longer than {MAX_PATTERN_CHARS:,} characters; search for less at once.")
    translated = translate(pattern)
    if not multiline and re.search(r"(?<!\\)(?:\\\\)*(?:\\n|\n)", pattern):
        raise ToolRejected(
            "The pattern holds a line end (\\n), but lines are searched one by one; set multiline: true."
        )
    flags = (re.IGNORECASE if ignore_case else 0) | ((re.MULTILINE | re.DOTALL) if multiline else 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sets that a later Python may read otherwise
            return re.compile(translated, flags)
    except re.error as error:
        where = f" at character {error.pos + 1}" if error.pos is not None and translated == pattern else ""
        raise ToolRejected(
            f"The pattern {_short(pattern)} is no valid regular expression: {error.msg}{where}. {_hint(error.msg)}"
        ) from error
    except (OverflowError, RecursionError) as error:
        raise ToolRejected(f"The pattern {_short(pattern)} is too large; use a simpler one.") from error


def translate(pattern: str) -> str:
    """The pattern in Python's way of writing. Raises `ToolRejected` for what has no counterpart."""
    out: list[str] = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            piece, index = _escape(pattern, index)
        elif char == "[":
            piece, index = _set(pattern, index)
        elif re.compile(r"\(\?<[A-Za-z_]").match(pattern, index):
            piece, index = "(?P<", index + 3
        else:
            piece, index = char, index + 1
        out.append(piece)
    return "".join(out)


def _escape(pattern: str, index: int) -> tuple[str, int]:
    two = pattern[index : index + 2]
    if two in PLAIN_ESCAPES:
        return PLAIN_ESCAPES[two], index + 2
    if two in (r"\p", r"\P"):
        found = re.compile(r"\\[pP](?:\{(\^?)(\w+)\}|([A-Z]))").match(pattern, index)
        name = found and (found[2] or found[3])
        if not found or name not in PROPERTIES:
            raise ToolRejected(
                rf"Of the classes \p{{...}} only \p{{L}} and \p{{N}} are known here (at character {index + 1})."
            )
        negated = (two == r"\P") != bool(found[1])
        return (f"(?:(?!{PROPERTIES[name]})[\\s\\S])" if negated else PROPERTIES[name]), found.end()
    return _code_point(pattern, index)


def _code_point(pattern: str, index: int) -> tuple[str, int]:
    """``\\x{41}`` and ``\\u{41}``; any other escape as it is."""
    found = re.compile(r"\\[xuU]\{([0-9A-Fa-f]{1,6})\}").match(pattern, index)
    if found is None:
        return pattern[index : index + 2], index + 2
    code = int(found[1], 16)
    if code > 0x10FFFF:
        raise ToolRejected(f"There is no character {found[0]} (at character {index + 1} of the pattern).")
    return f"\\U{code:08x}", found.end()


def _set(pattern: str, index: int) -> tuple[str, int]:
    """A set in brackets: named classes are written out, and a ``[`` within is literal."""
    start = index + 1
    out = ["["]
    if pattern[start : start + 1] == "^":
        out.append("^")
        start += 1
    if pattern[start : start + 1] == "]":
        out.append("\\]")
        start += 1
    while start < len(pattern) and pattern[start] != "]":
        named = re.compile(r"\[:(\^?)(\w+):\]").match(pattern, start)
        if named and named[2] in POSIX_CLASSES and not named[1]:
            out.append(POSIX_CLASSES[named[2]])
            start = named.end()
        elif pattern[start : start + 2] in (r"\p", r"\P") or (pattern[start : start + 2] == "&&"):
            what = pattern[start : start + 2]
            raise ToolRejected(f"{what} in brackets is not known here (at character {start + 1}); write the set out.")
        elif pattern[start] == "\\":
            piece, start = _code_point(pattern, start)
            out.append(piece)
        else:
            out.append("\\[" if pattern[start] == "[" else pattern[start])
            start += 1
    return "".join(out) + pattern[start : start + 1], start + 1


def _hint(message: str) -> str:
    if "nothing to repeat" in message or "multiple repeat" in message:
        return r"To search for the character itself, put a backslash before it: \*, \+, \?, \{."
    if "parenthes" in message or "unterminated subpattern" in message:
        return r"To search for a parenthesis itself, write \( or \)."
    if "character set" in message or "character range" in message:
        return r"To search for a bracket itself, write \[."
    if "global flags" in message:
        return "Put flags such as (?i) at the very beginning, or write (?i:...) around a part."
    if "look-behind" in message:
        return "Only look-behinds of a fixed width work."
    return "Check the pattern; special characters are taken literally behind a backslash."


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."
