"""
Front matter, read leniently. Pure.

Real projects' front matter is often no valid YAML: unquoted colons, globs that begin with an asterisk, tabs. What is
meant is plain all the same, so each ``key: value`` at the margin counts by itself: a quoted or plain text, a list in
brackets or dashes, or a block of text. What is deeper than that is passed over. Whatever comes in, nothing is raised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

import attrs

__all__ = ["FrontMatter", "Value", "parse_front_matter", "split_list"]

Value: TypeAlias = str | tuple[str, ...]

MAX_LINES: Final = 500
"""A front matter that isn't closed by then is none: the file just begins with a rule."""

_FENCE: Final = re.compile(r"---[ \t]*\r?\n?")
_END: Final = re.compile(r"(?:---|\.\.\.)[ \t]*\r?\n?")
_FIELD: Final = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+|$)(.*)", re.DOTALL)
_BLOCK: Final = re.compile(r"([|>])[-+0-9]*[ \t]*(?:#.*)?")
_ITEM: Final = re.compile(r"[ \t]*-(?:[ \t]+(.*)|)", re.DOTALL)
_COMMENT: Final = re.compile(r"(?:^|[ \t]+)#.*$")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


@attrs.frozen(kw_only=True)
class FrontMatter:
    """
    The fields of a file's front matter (keys in lower case) and the text behind it, unchanged.

    ``problems`` says what isn't as YAML wants it, or can't be understood; each names its line.
    """

    fields: Mapping[str, Value] = attrs.field(factory=dict)
    body: str = ""
    problems: tuple[str, ...] = ()

    def text(self, key: str) -> str | None:
        """The field as one text; None if it is missing or empty."""
        value = self.fields.get(key, "")
        text = value if isinstance(value, str) else ", ".join(value)
        return text.strip() or None

    def items(self, key: str) -> tuple[str, ...]:
        """The field as a list; a single text is taken apart at its commas."""
        value = self.fields.get(key, "")
        return split_list(value) if isinstance(value, str) else value

    def flag(self, key: str, default: bool) -> bool:
        """The field as yes or no; ``default`` if it says neither."""
        text = (self.text(key) or "").lower()
        return default if text not in _YES | _NO else text in _YES


_YES: Final = frozenset({"true", "yes", "on"})
_NO: Final = frozenset({"false", "no", "off"})


def parse_front_matter(text: str) -> FrontMatter:
    """Take a file apart. One without front matter is all body."""
    lines = _lines(text)
    if not lines or not _FENCE.fullmatch(lines[0]):
        return FrontMatter(body=text)
    for number in range(1, min(len(lines), MAX_LINES)):
        if _END.fullmatch(lines[number]):
            reader = _Reader(lines[1:number])
            reader.read()
            body = "".join(lines[number + 1 :])
            return FrontMatter(fields=reader.fields, body=body, problems=tuple(reader.problems))
    if len(lines) > 1 and _FIELD.match(lines[1]):
        return FrontMatter(body=text, problems=("line 1: the front matter is never closed by a line of ---",))
    return FrontMatter(body=text)


def _lines(text: str) -> list[str]:
    """Lines with their ends. Only line feeds count: `str.splitlines` also cuts at form feeds and U+2028."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def split_list(text: str) -> tuple[str, ...]:
    """The parts between commas, but not those within quotes, brackets or braces; quotes come off, empty ones go."""
    parts: list[str] = []
    start, depth, quote = 0, 0, ""
    for position, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'" and not text[start:position].strip():
            quote = char
        elif char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth <= 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return tuple(part for raw in parts if (part := _unquoted(raw.strip())))


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])
    return text


class _Reader:
    """Goes over the lines between the fences, one field after the other."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = [line.rstrip("\r\n") for line in lines]
        self.fields: dict[str, Value] = {}
        self.problems: list[str] = []

    def read(self) -> None:
        position = 0
        while position < len(self._lines):
            line = self._lines[position]
            end = self._end_of_field(position)
            if line.strip() and not line.lstrip().startswith("#"):
                self._field(position, end)
            position = end

    def _end_of_field(self, position: int) -> int:
        """Where the next line at the margin is that isn't an item of a list."""
        end = position + 1
        while end < len(self._lines):
            line = self._lines[end]
            if line.strip() and line[0] not in " \t" and not _ITEM.fullmatch(line):
                break
            end += 1
        return end

    def _problem(self, position: int, text: str) -> None:
        self.problems.append(f"line {position + 2}: {text}")

    def _field(self, position: int, end: int) -> None:
        found = _FIELD.fullmatch(self._lines[position].lstrip())
        if found is None:
            self._problem(position, f"{self._lines[position].strip()[:40]!r} is no field of the form 'key: value'")
            return
        key, first = found[1].lower(), found[2].strip()
        more = self._lines[position + 1 : end]
        if any(line[: len(line) - len(line.lstrip())].count("\t") for line in more if line.strip()):
            self._problem(position, f"{key} is indented with tabs, use spaces")
        if key in self.fields:
            self._problem(position, f"{key} is given twice, the last one counts")
        self.fields[key] = self._value(position, key, first, more)

    def _value(self, position: int, key: str, first: str, more: list[str]) -> Value:
        if _BLOCK.fullmatch(first):
            return _block_text(more, folded=first[0] == ">")
        if first[:1] not in ("'", '"', "["):
            first = _COMMENT.sub("", first)
        if not first and any(line.strip() for line in more):
            return self._list_or_text(more)
        whole = " ".join([first, *(line.strip() for line in more if line.strip())]).strip()
        if first.startswith("["):
            inside = _COMMENT.sub("", whole) if not whole.endswith("]") else whole
            if not inside.endswith("]"):
                self._problem(position, f"the list of {key} is never closed")
            return split_list(inside[1:].removesuffix("]"))
        if first[:1] in ("'", '"'):
            return self._quoted(position, key, whole)
        if re.search(r":(?:\s|$)", whole):
            self._problem(position, f"{key} holds a colon and should stand in quotes; it was taken as it is")
        elif whole and whole[0] in "*&!%@`{":
            self._problem(position, f"{key} begins with {whole[0]!r} and should stand in quotes")
        return whole

    def _quoted(self, position: int, key: str, whole: str) -> str:
        end = re.match(r"'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\"", whole, re.DOTALL)
        if end is not None and not _COMMENT.sub("", whole[end.end() :]).strip():
            return _unquoted(end[0])
        self._problem(position, f"the quotes of {key} don't match; it was taken as it is")
        return whole

    @staticmethod
    def _list_or_text(more: list[str]) -> Value:
        lines = [line for line in more if line.strip() and not line.lstrip().startswith("#")]
        items = [_ITEM.fullmatch(line) for line in lines]
        if lines and items[0] is not None:
            values = (_COMMENT.sub("", (item[1] or "").strip()) for item in items if item is not None)
            return tuple(value for raw in values if (value := _unquoted(raw.strip())))
        return " ".join(line.strip() for line in lines)


def _block_text(lines: list[str], *, folded: bool) -> str:
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    margin = min(indents, default=0)
    kept = [line[margin:].rstrip() for line in lines]
    if not folded:
        return "\n".join(kept).strip("\n")
    paragraphs = re.split(r"\n{2,}", "\n".join(kept).strip("\n"))
    return "\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)
