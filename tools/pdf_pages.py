"""How many pages a PDF has, as far as that can be told without a PDF library. Pure."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Final

__all__ = ["count_pages"]

STREAM_BYTES: Final = 2**20
"""Of one unpacked object stream; such streams hold small objects."""

UNPACKED_BYTES: Final = 32 * 2**20
MAX_STREAMS: Final = 5_000
"""Of all of them."""

MAX_NODES: Final = 10_000
"""Nodes of the tree of pages that are looked at."""

NODE_BYTES: Final = 16_384
"""Around a node's type, where its count is looked for."""

_LINEARIZED: Final = re.compile(rb"/Linearized\b[^>]{0,500}?/N\s+(\d{1,9})\b")
_NODE: Final = re.compile(rb"/Type\s*/Pages\b")
_COUNT: Final = re.compile(rb"/Count\s+(\d{1,9})\b")
_OBJECT_STREAM: Final = re.compile(rb"/Type\s*/ObjStm\b")


def count_pages(data: bytes) -> int | None:
    """
    The number of pages that the file claims to have; None if it doesn't say so where it can be read (encrypted or
    broken files).

    The root of the page tree counts all pages, and every other node of it fewer.
    """
    found = _LINEARIZED.search(data, 0, 1024)
    if found is not None:
        return int(found[1])
    counts = [count for part in (data, *_unpacked(data)) for count in _counts(part)]
    return max(counts, default=None)


def _counts(data: bytes) -> Iterator[int]:
    for number, node in enumerate(_NODE.finditer(data)):
        if number >= MAX_NODES:
            return
        before = data[max(0, node.start() - NODE_BYTES) : node.start()]
        after = data[node.end() : node.end() + NODE_BYTES]
        # The dictionary's own entries: not those of the objects around it.
        before = before[max(before.rfind(b"endobj"), before.rfind(b"<<"), before.rfind(b">>"), 0) :]
        after = after[: end if (end := after.find(b">>")) >= 0 else None]
        for part, at in ((before, before.rfind(b"/Count")), (after, 0)):
            if at >= 0 and (count := _COUNT.search(part, at)) is not None:
                yield int(count[1])


def _unpacked(data: bytes) -> Iterator[bytes]:
    """The contents of object streams, where newer files keep their page tree."""
    total = 0
    view = memoryview(data)
    for number, found in enumerate(_OBJECT_STREAM.finditer(data)):
        if number >= MAX_STREAMS or total > UNPACKED_BYTES:
            return
        start = data.find(b"stream", found.end(), found.end() + NODE_BYTES)
        if start < 0:
            continue
        start += len(b"stream")
        start += 2 if data[start : start + 2] == b"\r\n" else 1
        try:
            content = zlib.decompressobj().decompress(view[start : start + STREAM_BYTES], STREAM_BYTES)
        except zlib.error:
            continue
        total += len(content)
        yield content
