"""
Places in a journal, found from its end: the last boundary, a line by its uuid.

A resume looks at nothing that lies before the last boundary, so a long journal must not be read from its beginning.
Memory is constant: blocks of a fixed size, and the lines that are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import attrs
import orjson

from .errors import JournalCorrupt
from .messages import JsonObject
from .rerecord import BOUNDARY

__all__ = ["Span", "find_span", "line_of", "parse_line", "search_back"]

BLOCK_BYTES = 1 << 20
"""What is read at once: large enough that the calls don't count, small enough that the memory doesn't."""


@attrs.frozen(kw_only=True)
class Span:
    """
    The part of a journal that a resume needs: offsets (bytes) from which and to which lines count.

    ``stop`` is the file's end, or where the records of a compaction begin that was never written to its end.
    """

    start: int
    stop: int
    size: int

    @property
    def torn(self) -> bool:
        """There is something behind ``stop``, which doesn't count."""
        return self.stop < self.size


def find_span(path: Path, *, before: int | None = None) -> Span:
    """
    The span from the last whole boundary on; all of the journal, if there is none.

    Args:
        before: an offset; the boundary is looked for before it.

    Raises:
        JournalCorrupt: the file can't be read.
    """
    try:
        with path.open("rb") as file:
            size = stop = file.seek(0, 2)
            end = size if before is None else before
            for offset, line in search_back(file, BOUNDARY.encode(), end):
                boundary = parse_line(line)
                if boundary is None or boundary.get("type") != "system" or boundary.get("subtype") != BOUNDARY:
                    continue
                if _has_lines(file, offset + len(line), _count(boundary)):
                    return Span(start=offset, stop=stop, size=size)
                stop = min(stop, offset)
            return Span(start=0, stop=stop, size=size)
    except OSError as error:
        raise JournalCorrupt(str(path), 0, error.strerror or str(error)) from error


def search_back(file: BinaryIO, needle: bytes, end: int) -> Iterator[tuple[int, bytes]]:
    """The whole lines before ``end`` that hold ``needle``, with their offsets, from the last to the first."""
    while end > 0:
        start = max(0, end - BLOCK_BYTES)
        file.seek(start)
        found = file.read(end - start).rfind(needle)
        if found < 0:
            # A hit may lie across two blocks.
            end = start + len(needle) - 1 if start > 0 else 0
            continue
        offset = _line_start(file, start + found)
        file.seek(offset)
        yield offset, file.readline()
        end = offset


def _line_start(file: BinaryIO, place: int) -> int:
    end = place
    while end > 0:
        start = max(0, end - BLOCK_BYTES)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def parse_line(line: bytes) -> JsonObject | None:
    """The line's object; None if it is no JSON object."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _count(boundary: JsonObject) -> int:
    count = boundary.get("followedBy")
    return count if isinstance(count, int) else 0


def _has_lines(file: BinaryIO, start: int, count: int) -> bool:
    file.seek(start)
    while count > 0:
        block = file.read(BLOCK_BYTES)
        if not block:
            return False
        count -= block.count(b"\n")
    return True


def line_of(path: Path, uuid: str) -> int | None:
    """
    The offset of the last line with this uuid; None if there is none.

    Raises:
        JournalCorrupt: the file can't be read.
    """
    try:
        with path.open("rb") as file:
            for offset, line in search_back(file, uuid.encode(), file.seek(0, 2)):
                value = parse_line(line)
                if value is not None and value.get("uuid") == uuid:
                    return offset
    except OSError as error:
        raise JournalCorrupt(str(path), 0, error.strerror or str(error)) from error
    return None
