"""How large images and documents are, read off their first bytes, and what that comes to in tokens. Pure."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["IMAGE_TOKENS", "document_tokens", "image_size", "image_tokens"]

IMAGE_TOKENS = 1_600
"""The most that an image counts, as the API scales larger ones down; also what one of unknown size counts."""

LONGEST_EDGE = 1_568
"""Pixels; longer edges are scaled down to this."""

PIXELS_PER_TOKEN = 750

PAGE_TOKENS = 2_250
"""A page of a document: its text and its picture."""

PAGE_BYTES = 50_000
"""Typical of a page; pages can't be counted without unpacking the file."""

DOCUMENT_TOKENS = 3_000
"""A document that is elsewhere."""

_HEADER_BYTES = 96 * 1024
"""A JPEG's frame header comes after its metadata and preview picture (64 KiB at most for each segment)."""


def image_tokens(source: Mapping[str, Any]) -> int:
    """Width x height / 750 after scaling, at most `IMAGE_TOKENS`."""
    size = image_size(_head(source.get("data")))
    if size is None:
        return IMAGE_TOKENS
    width, height = size
    scale = min(1.0, LONGEST_EDGE / max(width, height))
    return max(1, min(IMAGE_TOKENS, math.ceil(width * scale * height * scale / PIXELS_PER_TOKEN)))


def document_tokens(source: Mapping[str, Any], estimate: Callable[[str], int]) -> int:
    """Texts by ``estimate``, files by their length, others a fixed number."""
    match source:
        case {"type": "text", "data": str(text)}:
            return estimate(text)
        case {"type": "base64", "data": str(data)}:
            return max(1, math.ceil(len(data) * 3 / 4 / PAGE_BYTES)) * PAGE_TOKENS
        case {"type": "content", "content": str(text)}:
            return estimate(text)
        case {"type": "content", "content": list(parts)}:
            return sum(_part_tokens(part, estimate) for part in parts)
        case _:
            return DOCUMENT_TOKENS


def _part_tokens(part: object, estimate: Callable[[str], int]) -> int:
    match part:
        case {"type": "text", "text": str(text)}:
            return estimate(text)
        case {"type": "image", "source": dict(source)}:
            return image_tokens(source)
        case _:
            return 0


def _head(data: object) -> bytes:
    if not isinstance(data, str):
        return b""
    try:
        return base64.b64decode(data[: _HEADER_BYTES // 3 * 4])
    except (binascii.Error, ValueError):
        return b""


def image_size(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels of a PNG, GIF, WebP or JPEG; None if ``head`` doesn't tell."""
    size: tuple[int, int] | None = None
    try:
        if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR":
            size = struct.unpack_from(">II", head, 16)
        elif head[:6] in (b"GIF87a", b"GIF89a"):
            size = struct.unpack_from("<HH", head, 6)
        elif head[:4] == b"RIFF" and head[8:12] == b"WEBP":
            size = _webp_size(head)
        elif head.startswith(b"\xff\xd8"):
            size = _jpeg_size(head)
    except struct.error:
        return None
    return size if size is not None and min(size) > 0 else None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", head, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", head, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X" if len(head) >= 30:
            return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
        case _:
            return None


_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers of frame headers; the three within their range are tables and extensions."""


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker in _FRAMES:
            height, width = struct.unpack_from(">HH", head, at + 5)
            return width, height
        else:
            at += 2 + max(2, int.from_bytes(head[at + 2 : at + 4], "big"))
    return None
