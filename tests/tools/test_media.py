"""Images and PDFs that the API would refuse are refused here, with a way out; others tell their size."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.errors import ToolRejected
from atrio.runtime.messages import JsonObject
from atrio.tools.files import Loaded
from atrio.tools.media import media_output, media_type
from atrio.tools.pdf_pages import count_pages


def output_details(data: bytes) -> JsonObject:
    found = Loaded(path=Path("/x"), head=data[:65_536], data=data, size=len(data), mtime_ns=0)
    media = media_type(found.head)
    assert media is not None
    details = media_output(Path("/x"), found, media).details
    assert isinstance(details, dict)
    return details


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + bytes(9)


def pdf(*objects: bytes) -> bytes:
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % (number, item) for number, item in enumerate(objects, 1))
    return b"%PDF-1.7\n" + body + b"trailer << /Root 1 0 R >>\n%%EOF"


def tree(count: int) -> bytes:
    return pdf(b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [3 0 R] /Count %d >>" % count)


def test_an_image_tells_its_size() -> None:
    details = output_details(png(8000, 20))
    assert (8000, 20) == (details["width"], details["height"])


def test_an_image_of_unknown_size_is_let_through() -> None:
    assert "width" not in output_details(b"\xff\xd8\xff\xe0 broken")


@pytest.mark.parametrize("size", [(8001, 10), (10, 8001)])
def test_an_image_with_too_many_pixels_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ToolRejected, match="the limit is 8,000 for each edge"):
        output_details(png(*size))


def test_a_pdf_tells_its_pages() -> None:
    assert 100 == output_details(tree(100))["pages"]


def test_a_pdf_of_unknown_length_is_let_through() -> None:
    assert "pages" not in output_details(b"%PDF-1.7\nbroken")


def test_a_pdf_with_too_many_pages_is_refused() -> None:
    with pytest.raises(ToolRejected, match="too many pages to show: 101, the limit is 100"):
        output_details(tree(101))


def packed(content: bytes) -> bytes:
    data = zlib.compress(content)
    return b"<< /Type /ObjStm /N 1 /First 4 /Filter /FlateDecode /Length %d >>\nstream\r\n%s\nendstream" % (
        len(data),
        data,
    )


@pytest.mark.parametrize(
    ("data", "pages"),
    [
        (tree(7), 7),
        (pdf(b"<< /Count 9 /Kids [] /Type /Pages >>"), 9),
        (pdf(b"<< /Type /Pages /Count 3 >>", b"<< /Type /Pages /Count 12 >>"), 12),
        (pdf(b"<< /Type /Outlines /Count 500 >>", b"<< /Type /Pages /Count 2 >>"), 2),
        (pdf(b"<< /Resources << /Count 77 >> /Count 3 /Type /Pages >>"), 3),
        (pdf(b"<< /Linearized 1 /L 1234 /N 42 /O 5 >>"), 42),
        (pdf(packed(b"2 0 << /Type /Pages /Count 44 >>")), 44),
        (pdf(b"<< /Type /ObjStm >>\nstream\nnot packed\nendstream"), None),
        (pdf(b"<< /Type /Page >>"), None),
        (b"", None),
    ],
)
def test_pages_are_counted_by_the_root_of_their_tree(data: bytes, pages: int | None) -> None:
    assert pages == count_pages(data)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_counted_without_trouble(one: bytes, other: bytes) -> None:
    count_pages(one + b"/Type /Pages" + other + b"/Type /ObjStm stream\n" + other)


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", [b"/Type /Pages ", b"/Count 1 ", b"/Type /ObjStm stream\n", b"/Linearized ", b"/Type /Pages /Count 1 "]
)
def test_a_hostile_file_costs_little_time(part: bytes) -> None:
    count_pages(b"%PDF-1.7" + part * (5_000_000 // len(part)))


@pytest.mark.slow
def test_an_object_stream_that_unpacks_to_a_flood_is_bounded() -> None:
    assert count_pages(pdf(packed(bytes(30_000_000)))) is None
