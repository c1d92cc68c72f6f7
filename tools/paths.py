"""
Paths and path patterns, as rules and searches see them. Only the standard library.

Patterns know ``*`` and ``?`` (not over a ``/``), ``**`` (any folders), ``[a-z]``, ``[!a-z]`` and, where asked for,
``{a,b}``. A backslash takes the next character literally.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = [
    "MAGIC",
    "POSIX_CLASSES",
    "glob_regex",
    "is_inside",
    "literal_prefix",
    "locate",
    "real_path",
    "rule_regex",
    "shown",
]

MAGIC: Final = re.compile(r"[*?\[{]")
"""What makes a text a pattern."""

POSIX_CLASSES: Final = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~",
    "word": r"\w",
    "xdigit": "0-9A-Fa-f",
}
"""The named classes that may stand in brackets, for `re`."""


def locate(text: str, cwd: Path) -> Path:
    """The absolute path that a model means by ``text``: ``~`` is its home, all else is relative to ``cwd``."""
    expanded = os.path.expanduser(text) if text.startswith("~") else text
    return Path(os.path.normpath(cwd / expanded)) if "\0" not in text else cwd / expanded


def real_path(path: Path) -> Path | None:
    """The path with all symlinks followed (what is missing stays as it is); None if no path can be like this."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError, RuntimeError):  # a NUL, a lone surrogate
        return None


def is_inside(path: Path, roots: Iterable[Path]) -> bool:
    """Whether a resolved path is one of the resolved roots or lies below it, compared name by name."""
    return any(path.is_relative_to(root) for root in roots)


def shown(path: Path, cwd: Path) -> str:
    """The path for a reader: relative to ``cwd`` when inside it; bytes that are no UTF-8 are replaced."""
    text = path.relative_to(cwd).as_posix() if path.is_relative_to(cwd) else path.as_posix()
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def literal_prefix(pattern: str) -> tuple[str, str]:
    """The leading folders of a pattern that hold nothing special, and the rest: ``/a/b/*.c`` is ``/a/b``, ``*.c``."""
    parts = pattern.split("/")
    count = next((index for index, part in enumerate(parts) if MAGIC.search(part)), len(parts) - 1)
    head = "/".join(parts[:count])
    return (head or "/") if pattern.startswith("/") else head, "/".join(parts[count:])


def rule_regex(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """
    A gitignore-like pattern, for ``fullmatch`` on a relative path with ``/``.

    Without a slash (but at its end) it matches at any depth. What matches a folder matches all below it;
    ``dir/**`` and ``dir/`` also match the folder itself.
    """
    body = pattern.removesuffix("/**").rstrip("/")
    anchored = "/" in body or body != pattern.rstrip("/")
    body = body.removeprefix("./").lstrip("/") or "**"
    start = "" if anchored else "(?:.*/)?"
    core = glob_regex(body, braces=False)
    return re.compile(f"(?s:{start}{core}(?:/.*)?)", re.IGNORECASE if ignore_case else 0)


def glob_regex(pattern: str, *, braces: bool = True) -> str:
    """The regular expression of a pattern, for ``fullmatch`` on a path with ``/`` (and the flag ``s``)."""
    return _translate(re.sub(r"(?:\*\*/)+", "**/", pattern), braces)


def _translate(pattern: str, braces: bool) -> str:
    out: list[str] = []
    index, depth = 0, 0
    while index < len(pattern):
        char = pattern[index]
        at_start = index == 0 or pattern[index - 1] == "/"
        if char == "*":
            piece, index = _star(pattern, index, at_start)
            if not out or out[-1] != piece:
                out.append(piece)
            continue
        if char == "[":
            piece, index = _bracket(pattern, index)
            out.append(piece)
            continue
        if char == "\\" and index + 1 < len(pattern):
            index += 1
            out.append(re.escape(pattern[index]))
        elif char == "?":
            out.append("[^/]")
        elif braces and char == "{" and _closes(pattern, index):
            out.append("(?:")
            depth += 1
        elif braces and char == "}" and depth:
            out.append(")")
            depth -= 1
        elif braces and char == "," and depth:
            out.append("|")
        else:
            out.append(re.escape(char))
        index += 1
    return "".join(out) + ")" * depth


def _star(pattern: str, index: int, at_start: bool) -> tuple[str, int]:
    end = index
    while pattern[end : end + 1] == "*":
        end += 1
    if end - index >= 2 and at_start:
        if pattern[end : end + 1] == "/":
            return "(?:.*/)?", end + 1
        if end == len(pattern):
            return ".*", end
    return "[^/]*", end


def _bracket(pattern: str, index: int) -> tuple[str, int]:
    """A set, and where it ends; a ``[`` that is never closed, or only behind a ``/``, is literal."""
    found = re.compile(r"\[([!^]?)((?:\]|\[:\w+:\]|\\.|[^\]\\])(?:\[:\w+:\]|\\.|[^\]\\])*)\]").match(pattern, index)
    if found is None or "/" in found[2]:
        return re.escape("["), index + 1
    members = _members(found[2])
    if found[1]:
        return f"[^/{members}]", found.end()
    return f"(?!/)[{members}]" if members else "(?!)", found.end()


def _members(text: str) -> str:
    """The inside of a set; a range that runs backwards is empty."""
    tokens: list[str] = re.findall(r"\[:\w+:\]|\\.|.", text, re.DOTALL)
    out: list[str] = []
    while tokens:
        token = tokens.pop(0)
        if len(token) > 2:
            out.append(POSIX_CLASSES.get(token[2:-2], ""))
        elif len(tokens) >= 2 and tokens[0] == "-" and len(tokens[1]) <= 2:
            low, high = token[-1], tokens[1][-1]
            out.append(f"{re.escape(low)}-{re.escape(high)}" if low <= high else "")
            del tokens[:2]
        else:
            out.append(re.escape(token[-1]))
    return "".join(out)


def _closes(pattern: str, index: int) -> bool:
    depth = 0
    for char in pattern[index:]:
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return True
    return False
