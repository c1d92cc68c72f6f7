"""Answers of servers as blocks that can be sent."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.mcp.content import MAX_IMAGES, MAX_PARTS, MAX_TEXT_CHARS, Blob, keep_blobs, map_content
from atrio.runtime.messages import DocumentBlock, ImageBlock, TextBlock


def png(width: int = 1, height: int = 1) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\2\0\0\0" + b"\0" * 4


def encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def image(raw: bytes, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": encoded(raw), "mimeType": kind}


def test_an_image_is_what_its_bytes_say() -> None:
    (part,) = map_content([image(png(), "image/jpeg")])
    assert ImageBlock({"type": "base64", "media_type": "image/png", "data": encoded(png())}) == part


@pytest.mark.parametrize(
    ("raw", "kind", "suffix"),
    [
        (b"no image", "image/png", ".png"),
        (png(9000, 2), "image/png", ".png"),
        (b"\x89PNG\r\n\x1a\n damaged", "image/png", ".png"),
        (b"<svg/>", "image/svg+xml", ".svg"),
        (b"PK\3\4", "no/../such", ".bin"),
    ],
)
def test_what_the_api_would_refuse_as_an_image_becomes_a_file(raw: bytes, kind: str, suffix: str) -> None:
    (part,) = map_content([image(raw, kind)])
    assert isinstance(part, Blob)
    assert (raw, suffix) == (part.data, part.suffix)


@pytest.mark.parametrize("data", ["", "%%%", "a"])
def test_data_that_is_no_base64_becomes_a_text(data: str) -> None:
    (part,) = map_content([{"type": "image", "data": data, "mimeType": "image/png"}])
    assert isinstance(part, TextBlock)


def test_a_pdf_is_a_document() -> None:
    (_, part) = map_content([{"type": "resource", "resource": {"uri": "u", "blob": encoded(b"%PDF-1.7 x")}}])
    assert isinstance(part, DocumentBlock)


def test_resources_are_named() -> None:
    resource = {"type": "resource", "resource": {"uri": "a://b", "mimeType": "text/plain", "text": "inner"}}
    link = {"type": "resource_link", "uri": "c://d", "name": "n", "description": "d"}
    assert (TextBlock("[Resource a://b, text/plain]\ninner"), TextBlock("[Resource c://d (n: d)]")) == map_content(
        [resource, link]
    )


def test_images_and_parts_are_limited() -> None:
    found = map_content([image(png())] * (MAX_PARTS + 50))
    assert MAX_IMAGES == sum(isinstance(part, ImageBlock) for part in found)
    assert MAX_PARTS + 1 == len(found)


async def test_files_are_kept_and_named_to_the_model(tmp_path: Path) -> None:
    parts = map_content([{"type": "audio", "data": encoded(b"RIFFsound"), "mimeType": "audio/wav"}])
    (shown,) = await keep_blobs(parts, tmp_path / "new", "../../call")
    assert isinstance(shown, TextBlock)
    (file,) = (tmp_path / "new").iterdir()
    assert str(file) in shown.text
    assert b"RIFFsound" == file.read_bytes()


async def test_a_long_text_beside_an_image_is_kept_in_a_file(tmp_path: Path) -> None:
    parts = map_content([{"type": "text", "text": "y" * (MAX_TEXT_CHARS + 1)}, image(png())])
    text, _ = await keep_blobs(parts, tmp_path, "c")
    assert isinstance(text, TextBlock)
    assert len(text.text) < 3_000
    assert MAX_TEXT_CHARS + 1 == (tmp_path / "c-0.txt").stat().st_size


keys = st.sampled_from(["type", "text", "data", "mimeType", "resource", "uri", "blob", "name"])
words = st.sampled_from(["text", "image", "audio", "resource", "resource_link"]) | st.text(max_size=5)
items = st.dictionaries(keys, words | st.integers() | st.none() | st.dictionaries(keys, words, max_size=4), max_size=5)


@given(st.lists(items | st.integers() | st.none(), max_size=5))
def test_whatever_comes_each_part_can_be_encoded(content: list[object]) -> None:
    for part in map_content(content):
        assert isinstance(part, TextBlock | ImageBlock | DocumentBlock | Blob)
        if isinstance(part, TextBlock):
            part.text.encode()
