"""
What servers answer, as blocks of a conversation: texts, images, files. Pure but for `keep_blobs`.

One image that the API refuses would make every later request fail, so an image counts as one only if its bytes say
so, and anything that can't be shown is kept as a file whose path the model gets.
"""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import trio

from atrio.runtime.media_size import image_size
from atrio.runtime.messages import DocumentBlock, ImageBlock, TextBlock
from atrio.runtime.preview import preview, result_file_name
from atrio.runtime.wirejson import mend

__all__ = ["Blob", "Part", "Shown", "keep_blobs", "map_content", "map_resource", "structured_text"]

MAX_IMAGE_BYTES: Final = 3_700_000
"""Before encoding; the API takes 5 MB of base64."""

MAX_IMAGE_EDGE: Final = 8_000
MAX_IMAGES: Final = 20
"""In one result."""

MAX_DOCUMENT_BYTES: Final = 10_000_000
MAX_TEXT_CHARS: Final = 50_000
"""Of one text beside images; where there are only texts, the executor limits them together."""

MAX_PARTS: Final = 200

_MAGIC: Final = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


@attrs.frozen(kw_only=True)
class Blob:
    """Bytes that can't be shown to the model. ``why`` says what they are, for it."""

    data: bytes
    suffix: str
    why: str


Shown: TypeAlias = TextBlock | ImageBlock | DocumentBlock
Part: TypeAlias = Shown | Blob


def map_content(items: Iterable[object]) -> tuple[Part, ...]:
    """The content of a tool's or a prompt's answer. What is not understood becomes a text that says so."""
    parts: list[Part] = []
    images = 0
    for item in items:
        if len(parts) >= MAX_PARTS:
            parts.append(TextBlock(f"[More than {MAX_PARTS} parts; the rest was left out.]"))
            break
        for part in _map_item(item) if isinstance(item, Mapping) else (TextBlock("[A part of unknown form.]"),):
            images += isinstance(part, ImageBlock)
            if isinstance(part, ImageBlock) and images > MAX_IMAGES:
                part = TextBlock(f"[More than {MAX_IMAGES} images; this one was left out.]")
            parts.append(part)
    return tuple(parts)


def _map_item(item: Mapping[str, Any]) -> Sequence[Part]:
    match item:
        case {"type": "text", "text": str(text)}:
            return (TextBlock(mend(text)),)
        case {"type": "image", "data": str(data)}:
            return (_binary(data, str(item.get("mimeType") or ""), "an image"),)
        case {"type": "audio", "data": str(data)}:
            return (_binary(data, str(item.get("mimeType") or ""), "audio"),)
        case {"type": "resource", "resource": dict(resource)}:
            return map_resource(resource)
        case {"type": "resource_link", "uri": uri}:
            about = ": ".join(str(item[key]) for key in ("name", "description") if item.get(key))
            return (TextBlock(mend(f"[Resource {uri} ({about})]" if about else f"[Resource {uri}]")),)
        case _:
            return (TextBlock(mend(f"[A part of type {str(item.get('type'))[:80]} that can't be shown.]")),)


def map_resource(resource: Mapping[str, Any]) -> tuple[Part, ...]:
    """The contents of one resource: a line that names it, and then its text or bytes."""
    uri, kind = str(resource.get("uri") or "?"), str(resource.get("mimeType") or "")
    head = TextBlock(mend(f"[Resource {uri}{f', {kind}' if kind else ''}]"))
    text, blob = resource.get("text"), resource.get("blob")
    if isinstance(text, str):
        return (TextBlock(f"{head.text}\n{mend(text)}"),)
    if isinstance(blob, str):
        return (head, _binary(blob, kind, f"the resource {uri}"))
    return (head,)


def _binary(data: str, kind: str, what: str) -> Part:
    try:
        raw = base64.b64decode(re.sub(r"\s+", "", data), validate=True)
    except (binascii.Error, ValueError):
        return TextBlock(mend(f"[{what} whose data is no base64]"))
    if not raw:
        return TextBlock(mend(f"[{what} without data]"))
    found = _image_type(raw)
    if found is not None:
        encoded = base64.b64encode(raw).decode("ascii")
        size = image_size(raw)
        if size is None:
            return Blob(data=raw, suffix=f".{found.partition('/')[2]}", why=f"{what} that is damaged")
        if len(raw) > MAX_IMAGE_BYTES or max(size) > MAX_IMAGE_EDGE:
            return Blob(data=raw, suffix=f".{found.partition('/')[2]}", why=f"{what} too large to be shown")
        return ImageBlock({"type": "base64", "media_type": found, "data": encoded})
    if raw.startswith(b"%PDF-") and len(raw) <= MAX_DOCUMENT_BYTES:
        encoded = base64.b64encode(raw).decode("ascii")
        return DocumentBlock({"type": "base64", "media_type": "application/pdf", "data": encoded})
    suffix = mimetypes.guess_extension(kind.partition(";")[0].strip().lower()) or ".bin"
    return Blob(data=raw, suffix=suffix, why=mend(f"{what} of type {kind[:80] or 'unknown'}, {len(raw):,} bytes"))


def _image_type(raw: bytes) -> str | None:
    """By its first bytes: what servers declare is often wrong, and the API looks."""
    for kind, heads in _MAGIC.items():
        if raw.startswith(heads) and (kind != "image/webp" or raw[8:12] == b"WEBP"):
            return kind
    return None


def structured_text(value: object) -> str:
    """Structured content as the model reads it."""
    return mend(json.dumps(value, ensure_ascii=False, indent=2))


async def keep_blobs(parts: Iterable[Part], folder: Path, call_id: str) -> tuple[Shown, ...]:
    """
    The parts with files instead of what can't be shown, and long texts beside images cut.

    Cancelled: a file may be there that nothing names; none is half written under its final name.
    """
    listed = list(parts)
    mixed = any(not isinstance(part, TextBlock | Blob) for part in listed)
    stem = result_file_name(call_id).removesuffix(".txt")
    shown: list[Shown] = []
    for number, part in enumerate(listed):
        if isinstance(part, Blob):
            path = folder / f"{stem}-{number}{part.suffix}"
            await trio.to_thread.run_sync(_write, path, part.data)
            shown.append(TextBlock(f"[{part.why}: saved to {path}]"))
        elif isinstance(part, TextBlock) and mixed and len(part.text) > MAX_TEXT_CHARS:
            path = folder / f"{stem}-{number}.txt"
            await trio.to_thread.run_sync(_write, path, part.text.encode("utf-8", "replace"))
            shown.append(TextBlock(preview(part.text, path=str(path))))
        else:
            shown.append(part)
    return tuple(shown)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.part")
    draft.write_bytes(data)
    draft.replace(path)
