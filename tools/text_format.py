"""
How files hold text: codec, byte order mark, line ends. Pure.

What is decoded here and encoded again in the format found gives the same bytes.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Final

import attrs

__all__ = ["TextFormat", "decode", "detect", "numbered"]

JUDGED_BYTES: Final = 65_536
"""How much of a text without any mark is looked at for control characters."""

_BOMS: Final = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROL: Final = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b\b"))
_CONTROL_SHARE: Final = 0.05
"""So many control characters make 8-bit text improbable."""


@attrs.frozen(kw_only=True)
class TextFormat:
    """How a file holds its text: codec, byte order mark, and the most frequent line ending."""

    codec: str = "utf-8"
    bom: bytes = b""
    newline: str = "\n"

    def encode(self, text: str) -> bytes:
        """The file's bytes. Raises UnicodeEncodeError for what an 8-bit codec can't hold."""
        # Of Unicode's codecs only half a surrogate pair is refused, which a model may write by mistake.
        return self.bom + text.encode(self.codec, "replace" if self.codec.startswith("utf") else "strict")

    @property
    def label(self) -> str:
        """What is unusual about it, in words; empty for UTF-8 and LF."""
        names = {"cp1252": "Windows-1252", "latin-1": "Latin-1"}
        codec = names.get(self.codec, self.codec.upper()) + (" with BOM" if self.bom == codecs.BOM_UTF8 else "")
        newline = {"\r\n": "CRLF line endings", "\r": "CR line endings"}.get(self.newline, "")
        return ", ".join(part for part in ("" if codec == "UTF-8" else codec, newline) if part)


def detect(data: bytes, *, complete: bool) -> TextFormat | None:
    """
    The format of a text that is, or begins with, ``data``; None if that is no text.

    UTF-16 and UTF-32 are known by their mark, UTF-8 by being valid; the rest is taken for Windows-1252, or Latin-1
    where that has no such character.
    """
    for bom, codec in _BOMS:
        if data.startswith(bom) and _decodes(data[len(bom) :], codec, complete):
            return TextFormat(codec=codec, bom=bom, newline=_newline(data[len(bom) :].decode(codec, "ignore")))
    if b"\0" in data:
        return None
    if _decodes(data, "utf-8", complete):
        return TextFormat(newline=_newline(data.decode("utf-8", "ignore")))
    head = data[:JUDGED_BYTES]
    if len(head) - len(head.translate(None, _CONTROL)) > _CONTROL_SHARE * len(head):
        return None
    codec = "cp1252" if _decodes(data, "cp1252", complete) else "latin-1"
    return TextFormat(codec=codec, newline=_newline(data.decode(codec)))


def decode(data: bytes) -> tuple[str, TextFormat] | None:
    """A whole file's text, line endings untouched, and the format that gives the same bytes again; None if binary."""
    found = detect(data, complete=True)
    return None if found is None else (data[len(found.bom) :].decode(found.codec), found)


def _decodes(data: bytes, codec: str, complete: bool) -> bool:
    try:
        codecs.getincrementaldecoder(codec)().decode(data, complete)
    except UnicodeDecodeError:
        return False
    return True


def _newline(text: str) -> str:
    crlf = text.count("\r\n")
    counts = {"\n": text.count("\n") - crlf, "\r\n": crlf, "\r": text.count("\r") - crlf}
    return max(counts, key=lambda newline: counts[newline])


def numbered(lines: Iterable[str], first: int) -> list[str]:
    """The lines as Read shows them: number, tab, text."""
    return [f"{number:>6}\t{line}" for number, line in enumerate(lines, first)]
