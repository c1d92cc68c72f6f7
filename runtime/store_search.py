"""Text found in the sessions that are kept: line by line, so that memory is bounded by the longest line. Blocks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import attrs

from .journal_search import parse_line
from .messages import JsonObject
from .store import journals
from .store_line import time_of

__all__ = ["Hit", "search_sessions"]

EXCERPT = 60
"""Characters before and behind a hit."""

_ROLES = {"user": "user", "assistant": "assistant"}


@attrs.frozen(kw_only=True)
class Hit:
    """One line that holds the text. ``uuid`` can be resumed at."""

    path: Path
    uuid: str
    role: str
    time: datetime | None
    excerpt: str


def search_sessions(home: Path, text: str, cwd: Path | None = None) -> Iterator[Hit]:
    """The lines of all sessions, or of those of a folder, in which ``text`` occurs, in any case of letters."""
    wanted = text.casefold()
    if not wanted.strip():
        return
    # Only plain characters look the same inside JSON; for those, most lines need not be parsed.
    plain = wanted.encode() if text.isascii() and text.isprintable() and not set(text) & set('"\\/') else b""
    for path in journals(home, cwd):
        try:
            with path.open("rb") as file:
                for line in file:
                    if plain in line.lower() and (hit := _hit(path, line, wanted)) is not None:
                        yield hit
        except OSError:
            continue


def _hit(path: Path, data: bytes, wanted: str) -> Hit | None:
    line = parse_line(data)
    if line is None or line.get("type") not in _ROLES:
        return None
    for text in _texts(line):
        place = text.casefold().find(wanted)
        if place >= 0:
            start, end = max(0, place - EXCERPT), place + len(wanted) + EXCERPT
            excerpt = ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")
            return Hit(
                path=path,
                uuid=str(line.get("uuid", "")),
                role=_ROLES[line["type"]],
                time=time_of(line),
                excerpt=" ".join(excerpt.split()),
            )
    return None


def _texts(line: JsonObject) -> Iterator[str]:
    message = line.get("message")
    if isinstance(message, dict):
        yield from _within(message.get("content"), 0)


def _within(value: object, depth: int) -> Iterator[str]:
    """Every text below a message's content that a person or the model has written or seen."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < 8:
        for item in value:
            yield from _within(item, depth + 1)
    elif isinstance(value, dict) and depth < 8:
        for key, item in value.items():
            if key not in ("type", "id", "tool_use_id", "signature", "data", "media_type"):
                yield from _within(item, depth + 1)
