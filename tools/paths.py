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

__all__ = ["MAGIC", "glob_regex", "is_inside", "literal_prefix", "locate", "real_path", "rule_regex", "shown"]

MAGIC: Final = re.compile(r"[*?\[{]")
"""What makes a text a pattern."""


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
    start = index + 1
    negated = pattern[start : start + 1] in ("!", "^")
    start += negated
    end = pattern.find("]", start + 1)  # a ] that comes first is a member
    if end < 0 or "/" in pattern[start:end]:
        return re.escape("["), index + 1
    members = _members(pattern[start:end])
    if negated:
        return f"[^/{members}]", end + 1
    return f"(?!/)[{members}]" if members else "(?!)", end + 1


def _members(text: str) -> str:
    """The inside of a set; a range that runs backwards is empty."""
    out: list[str] = []
    index = 0
    while index < len(text):
        low, high = text[index], text[index + 2 : index + 3]
        if text[index + 1 : index + 2] == "-" and high:
            out.append(f"{re.escape(low)}-{re.escape(high)}" if low <= high else "")
            index += 3
        else:
            out.append(re.escape(low))
            index += 1
    return "".join(out)


def _closes(pattern: str, index: int) -> bool:
    depth = 0
    for char in pattern[index:]:
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return True
    return False
