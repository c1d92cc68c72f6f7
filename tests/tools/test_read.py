"""Read shows text with numbers, bounded; images and PDFs; and says what stands in the way."""

from __future__ import annotations

import base64
import itertools
import os
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from atrio.runtime.errors import InvalidToolInput, ToolError, ToolRejected
from atrio.runtime.messages import DocumentBlock, ImageBlock
from atrio.runtime.tool import ToolContext, ToolOutput, Workspace
from atrio.tools.files import LOAD_LIMIT_BYTES
from atrio.tools.read import MAX_RESULT_CHARS, LineWindow, Read

READ = Read()
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    return ToolContext(
        session_id="s",
        run_id="r",
        call_id="c",
        workspace=Workspace(cwd=tmp_path),
        results_dir=tmp_path / "results",
        progress=lambda text, data=None: None,
    )


async def read(ctx: ToolContext, path: str, **more: int) -> ToolOutput:
    return await READ.run(READ.parse({"file_path": path, **more}), ctx)


async def text_of(ctx: ToolContext, path: str, **more: int) -> str:
    content = (await read(ctx, path, **more)).content
    assert isinstance(content, str)
    return content


async def error_of(ctx: ToolContext, path: str, **more: int) -> str:
    with pytest.raises(ToolError) as caught:
        await read(ctx, path, **more)
    return str(caught.value)


async def test_lines_are_numbered_and_right_aligned(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_text("one\n\ntwo")
    assert "     1\tone\n     2\t\n     3\ttwo" == await text_of(ctx, "a.txt")


async def test_only_cr_and_lf_end_a_line(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_bytes("a\u2028b\x0cc\x85\r\nd\re\n".encode())
    shown = await text_of(ctx, "a.txt")
    assert "     1\ta\u2028b\x0cc\x85\n     2\td\n     3\te" == shown.partition("\n[")[0]


async def test_a_range_is_shown_and_the_way_on_named(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 11)))
    shown = await text_of(ctx, "a.txt", offset=3, limit=2)
    assert shown.startswith("     3\t3\n     4\t4\n[Lines 3-4 of 10 lines. Read on with offset=5,")


async def test_an_offset_of_zero_is_the_first_line(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_text("x\n")
    assert "     1\tx" == await text_of(ctx, "a.txt", offset=0)


async def test_the_last_lines_need_no_way_on(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_text("1\n2\n3\n")
    assert "     2\t2\n     3\t3" == await text_of(ctx, "a.txt", offset=2, limit=2)


async def test_two_thousand_lines_are_the_default(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_text("x\n" * 2_500)
    assert "[Lines 1-2000 of 2,500 lines." in await text_of(ctx, "a.txt")


async def test_long_lines_are_cut_with_a_mark(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_text("y" * 2_500 + "\nz\n")
    first, second, note = (await text_of(ctx, "a.txt")).split("\n")
    assert f"     1\t{'y' * 2_000} [... 500 more characters of this line]" == first
    assert "     2\tz" == second
    assert "sed" in note


async def test_the_whole_result_is_bounded(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_text(("w" * 1_000 + "\n") * 1_500)
    shown = await text_of(ctx, "a.txt")
    assert len(shown) < MAX_RESULT_CHARS + 500
    assert "of 1,500 lines (the result is limited in size). Read on with offset=" in shown


async def test_an_empty_file_is_called_empty(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").touch()
    assert "exists but is empty" in await text_of(ctx, "a.txt")


async def test_an_offset_beyond_the_end_names_the_line_count(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_text("1\n2\n")
    assert "which has 2 lines" in await error_of(ctx, "a.txt", offset=3)


async def test_a_directory_is_refused_with_a_hint(ctx: ToolContext) -> None:
    text = await error_of(ctx, ".")
    assert "is a directory" in text
    assert "Glob" in text


async def test_a_missing_file_names_similar_ones_and_the_cwd(ctx: ToolContext) -> None:
    (ctx.cwd / "settings.toml").touch()
    text = await error_of(ctx, "setings.toml")
    assert f"Did you mean {ctx.cwd / 'settings.toml'}?" in text
    assert f"working directory is {ctx.cwd}" in text


async def test_a_missing_folder_names_the_good_part(ctx: ToolContext) -> None:
    assert f"the path is good up to {ctx.cwd}" in await error_of(ctx, "no/such/file")


async def test_a_path_through_a_file_is_missing(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").touch()
    assert "does not exist" in await error_of(ctx, "a.txt/b")


async def test_pipes_and_devices_are_refused_without_waiting(ctx: ToolContext) -> None:
    os.mkfifo(ctx.cwd / "pipe")
    with trio.fail_after(5):
        assert "a named pipe" in await error_of(ctx, "pipe")
        assert "a device" in await error_of(ctx, "/dev/zero")


async def test_binary_files_are_refused_with_kind_and_size(ctx: ToolContext) -> None:
    (ctx.cwd / "a.bin").write_bytes(b"\x7fELF\x02\x01\0\0")
    text = await error_of(ctx, "a.bin")
    assert "ELF" in text
    assert "8 bytes" in text


async def test_images_are_shown(ctx: ToolContext) -> None:
    (ctx.cwd / "a.dat").write_bytes(PNG)
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    assert (ImageBlock(source),) == (await read(ctx, "a.dat")).content


@pytest.mark.parametrize(
    ("head", "media"),
    [(b"\xff\xd8\xff\xe0", "image/jpeg"), (b"GIF89a", "image/gif"), (b"RIFF\0\0\0\0WEBP", "image/webp")],
)
async def test_other_images_are_known_by_their_first_bytes(ctx: ToolContext, head: bytes, media: str) -> None:
    (ctx.cwd / "a").write_bytes(head + b"\0" * 8)
    block = (await read(ctx, "a")).content[0]
    assert isinstance(block, ImageBlock)
    assert media == block.source["media_type"]


async def test_an_image_that_the_api_would_refuse_is_refused(ctx: ToolContext) -> None:
    (ctx.cwd / "a.png").write_bytes(PNG + b"\0" * (4 * 2**20))
    assert "too large to show" in await error_of(ctx, "a.png")


async def test_pdfs_are_documents(ctx: ToolContext) -> None:
    (ctx.cwd / "a.pdf").write_bytes(b"%PDF-1.7\n\0")
    block = (await read(ctx, "a.pdf")).content[0]
    assert isinstance(block, DocumentBlock)
    assert "application/pdf" == block.source["media_type"]


@pytest.mark.parametrize("codec", ["utf-16", "utf-32", "utf-8-sig", "cp1252"])
async def test_other_encodings_are_read_and_reported(ctx: ToolContext, codec: str) -> None:
    (ctx.cwd / "a.txt").write_bytes("größe\r\nzwei\r\n".encode(codec))
    lines = (await text_of(ctx, "a.txt")).split("\n")
    assert ["     1\tgröße", "     2\tzwei"] == lines[:2]
    assert "CRLF" in lines[2]


async def test_what_was_read_is_recorded(ctx: ToolContext) -> None:
    path = ctx.cwd / "a.txt"
    path.write_text("1\n2\n")
    (ctx.cwd / "link").symlink_to(path)
    await read(ctx, "link", limit=1)
    assert ctx.files[path.resolve()].partial
    await read(ctx, "link")
    assert not ctx.files[path.resolve()].partial
    await read(ctx, "link", offset=2)
    assert not ctx.files[path.resolve()].partial


async def test_home_is_the_tilde(ctx: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(ctx.cwd))
    (ctx.cwd / "a.txt").write_text("x")
    assert "     1\tx" == await text_of(ctx, "~/a.txt")


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800"])
def test_what_can_be_no_path_is_invalid_input(path: str) -> None:
    with pytest.raises(InvalidToolInput, match="file_path"):
        READ.parse({"file_path": path})


def test_the_schema_has_the_known_names() -> None:
    assert ["file_path", "offset", "limit"] == list(READ.input_schema["properties"])
    assert ["file_path"] == READ.input_schema["required"]


def test_rules_see_the_path(ctx: ToolContext) -> None:
    input = READ.parse({"file_path": "a/b.txt"})
    assert (ctx.cwd / "a/b.txt",) == READ.paths(input, ctx)
    assert "a/b.txt" == READ.specifier(input)
    assert READ.concurrency_safe(input)


@pytest.mark.slow
async def test_a_huge_file_is_streamed_to_the_range(ctx: ToolContext) -> None:
    path = ctx.cwd / "huge.txt"
    line = b"0123456789" * 100 + b"\n"
    count = LOAD_LIMIT_BYTES // len(line) + 2_000
    with path.open("wb") as file:
        file.writelines(line for _ in range(count))
    shown = await text_of(ctx, "huge.txt", offset=count - 1, limit=1)
    assert shown.startswith(f"{count - 1:>6}\t0123")
    assert "Read on" in shown
    assert "Read on" not in await text_of(ctx, "huge.txt", offset=count)
    assert f"which has {count:,} lines" in await error_of(ctx, "huge.txt", offset=count + 1)
    assert "" == ctx.files[path].digest
    assert ctx.files[path].partial


@pytest.mark.slow
async def test_one_endless_line_is_held_in_little_memory(ctx: ToolContext) -> None:
    path = ctx.cwd / "huge.txt"
    with path.open("wb") as file:
        file.write(b"x" * 70_000)
        file.truncate(LOAD_LIMIT_BYTES * 10)  # a hole: no blocks on disk
    shown = await text_of(ctx, "huge.txt")
    assert len(shown) < 3_000
    assert "more characters of this line]" in shown


@pytest.mark.slow
async def test_reading_a_huge_file_can_be_cancelled(ctx: ToolContext) -> None:
    path = ctx.cwd / "huge.txt"
    with path.open("wb") as file:
        file.write(b"x" * 70_000)
        file.truncate(2**40)
    with trio.fail_after(10), trio.move_on_after(0.1) as scope:
        await read(ctx, "huge.txt", offset=5)
    assert scope.cancelled_caught
    assert {} == ctx.files


@settings(max_examples=60)
@given(
    st.text(alphabet="ab\n", max_size=60),
    st.integers(1, 12),
    st.integers(1, 12),
    st.lists(st.integers(0, 60), max_size=6),
)
def test_the_window_is_the_same_however_the_text_is_cut(text: str, first: int, limit: int, cuts: list[int]) -> None:
    window = LineWindow(first=first, limit=limit)
    places = [0, *sorted(cuts), len(text)]
    for start, end in itertools.pairwise(places):
        window.feed(text[start:end])
    window.finish()
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    assert len(lines) == window.total
    assert lines[first - 1 : first - 1 + limit] == [entry.partition("\t")[2] for entry in window.shown]
    assert (len(lines) > first - 1 + limit) == (window.more and bool(window.shown))


async def test_errors_are_rejections(ctx: ToolContext) -> None:
    with pytest.raises(ToolRejected):
        await read(ctx, "nothing")
