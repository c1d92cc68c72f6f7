"""Files that are no text: images and PDFs for the model to look at, within the API's limits, and names for the rest."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

from atrio.runtime.errors import ToolRejected
from atrio.runtime.media_size import image_size
from atrio.runtime.messages import DocumentBlock, ImageBlock, JsonObject
from atrio.runtime.tool import ToolOutput

from .files import Loaded, size_words
from .pdf_pages import count_pages

__all__ = ["binary_kind", "media_output", "media_type"]

MAX_IMAGE_BASE64_BYTES: Final = 5 * 2**20
"""The API's limit, which counts the encoded form. One image over it would make every later request fail."""

MAX_IMAGE_EDGE: Final = 8_000
"""Pixels; the API's limit as well."""

MAX_PDF_BYTES: Final = 20 * 2**20

MAX_PDF_PAGES: Final = 100
"""The API's limit."""

_BINARY: Final = (
    (b"\x7fELF", "an ELF executable or library"),
    (b"PK\x03\x04", "a ZIP archive (or a format built on it: docx, xlsx, jar, whl)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O file"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O file"),
    (b"MZ", "a Windows executable"),
    (b"\x00asm", "WebAssembly"),
    (b"OggS", "Ogg audio or video"),
    (b"ID3", "MP3 audio"),
    (b"RIFF", "audio or video in RIFF"),
    (b"\x00\x00\x01\x00", "an icon"),
    (b"BM", "a BMP image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"PAR1", "a Parquet file"),
)


def media_type(head: bytes) -> str | None:
    """The media type of what is shown to the model as it is; None for all else."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return "application/pdf" if head.startswith(b"%PDF-") else None


def media_output(path: Path, found: Loaded, media: str) -> ToolOutput:
    """The file as a block of its own. Raises `ToolRejected`, with a way out, for what the API would refuse."""
    image = media.startswith("image/")
    limit = MAX_IMAGE_BASE64_BYTES // 4 * 3 if image else MAX_PDF_BYTES
    if found.data is None or len(found.data) > limit:
        remedy = "Make a smaller copy (resize or recompress it)" if image else "Extract pages or text (pdftotext)"
        raise ToolRejected(
            f"{path} is too large to show: {media} of {size_words(found.size)}, the limit is {size_words(limit)}. "
            f"{remedy} with Bash, and read that."
        )
    kind = "image" if image else "pdf"
    details: JsonObject = {"type": kind, "filePath": str(path), "mediaType": media, "size": found.size}
    details.update(_image_details(path, found.data) if image else _pdf_details(path, found.data))
    encoded = base64.b64encode(found.data).decode("ascii")
    source = {"type": "base64", "media_type": media, "data": encoded}
    return ToolOutput((ImageBlock(source) if image else DocumentBlock(source),), details=details)


def _image_details(path: Path, data: bytes) -> dict[str, object]:
    size = image_size(data)
    if size is None:
        return {}
    width, height = size
    if max(size) > MAX_IMAGE_EDGE:
        raise ToolRejected(
            f"{path} is too large to show: {width:,} x {height:,} pixels, the limit is {MAX_IMAGE_EDGE:,} for each "
            "edge. Make a smaller copy or cut out a part with Bash (such as ImageMagick's convert), and read that."
        )
    return {"width": width, "height": height}


def _pdf_details(path: Path, data: bytes) -> dict[str, object]:
    pages = count_pages(data)
    if pages is None:
        return {}
    if pages > MAX_PDF_PAGES:
        raise ToolRejected(
            f"{path} has too many pages to show: {pages:,}, the limit is {MAX_PDF_PAGES}. Extract pages or text with "
            f"Bash (pdftotext -f 1 -l {MAX_PDF_PAGES}, qpdf --pages), and read that."
        )
    return {"pages": pages}


def binary_kind(head: bytes) -> str:
    """What a binary file is, in words."""
    return next((kind for magic, kind in _BINARY if head.startswith(magic)), "of unknown kind")
