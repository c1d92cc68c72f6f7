"""Write creates files, and replaces only what the session knows as it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import trio
import trio.testing

from atrio.runtime.errors import ToolError, ToolRejected
from atrio.runtime.tool import ToolContext, ToolOutput, Workspace
from atrio.tools.files import LOAD_LIMIT_BYTES
from atrio.tools.read import Read
from atrio.tools.write import Write

READ = Read()
WRITE = Write()


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


async def read(ctx: ToolContext, path: str) -> None:
    await READ.run(READ.parse({"file_path": path}), ctx)


async def write(ctx: ToolContext, path: str, content: str) -> ToolOutput:
    input = WRITE.parse({"file_path": path, "content": content})
    await WRITE.check(input, ctx)
    return await WRITE.run(input, ctx)


async def rewritten(ctx: ToolContext, before: bytes, content: str) -> bytes:
    (ctx.cwd / "a.txt").write_bytes(before)
    await read(ctx, "a.txt")
    await write(ctx, "a.txt", content)
    return (ctx.cwd / "a.txt").read_bytes()


async def test_a_new_file_and_its_folders_are_created(ctx: ToolContext) -> None:
    output = await write(ctx, "x/y/a.txt", "one\ntwo")
    path = ctx.cwd / "x/y/a.txt"
    assert b"one\ntwo" == path.read_bytes()
    assert f"Created {path} (2 lines)." == output.content
    assert {"type": "create", "filePath": str(path), "numLines": 2, "size": 7} == output.details
    assert 0o666 & ~_umask() == stat.S_IMODE(path.stat().st_mode)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


async def test_what_was_written_may_be_written_again(ctx: ToolContext) -> None:
    await write(ctx, "a.txt", "1\n")
    output = await write(ctx, "a.txt", "2\n")
    assert isinstance(output.content, str)
    assert output.content.startswith("Updated")
    assert "2\n" == (ctx.cwd / "a.txt").read_text()


async def test_an_unread_file_is_not_replaced(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_text("precious")
    with pytest.raises(ToolRejected, match="has not been read"):
        await write(ctx, "a.txt", "x")
    assert "precious" == (ctx.cwd / "a.txt").read_text()


async def test_a_file_changed_since_is_not_replaced(ctx: ToolContext) -> None:
    path = ctx.cwd / "a.txt"
    path.write_text("old")
    await read(ctx, "a.txt")
    before = path.stat()
    path.write_text("new")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # neither time nor size tell
    with pytest.raises(ToolRejected, match="changed since it was read"):
        await write(ctx, "a.txt", "x")


async def test_a_change_after_the_check_is_seen(ctx: ToolContext) -> None:
    input = WRITE.parse({"file_path": "a.txt", "content": "mine"})
    await WRITE.check(input, ctx)
    (ctx.cwd / "a.txt").write_text("theirs")
    with pytest.raises(ToolRejected):
        await WRITE.run(input, ctx)
    assert "theirs" == (ctx.cwd / "a.txt").read_text()


async def test_a_touched_file_counts_as_unchanged(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_text("old")
    await read(ctx, "a.txt")
    os.utime(ctx.cwd / "a.txt", ns=(1, 1))
    await write(ctx, "a.txt", "new")
    assert "new" == (ctx.cwd / "a.txt").read_text()


async def test_a_huge_file_is_replaced_by_time_and_size(ctx: ToolContext) -> None:
    path = ctx.cwd / "a.txt"
    with path.open("wb") as file:
        file.write(b"x\n" * 40_000)
        file.truncate(LOAD_LIMIT_BYTES + 1)
    await read(ctx, "a.txt")
    await write(ctx, "a.txt", "small")
    assert "small" == path.read_text()


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32", "cp1252", "utf-8"])
async def test_an_encoding_is_kept(ctx: ToolContext, codec: str) -> None:
    assert "süß\n".encode(codec) == await rewritten(ctx, "öde\n".encode(codec), "süß\n")


async def test_a_mark_in_the_content_is_not_doubled(ctx: ToolContext) -> None:
    assert b"\xef\xbb\xbfb" == await rewritten(ctx, b"\xef\xbb\xbfa", "\ufeffb")


async def test_what_an_old_encoding_cannot_hold_becomes_utf8(ctx: ToolContext) -> None:
    assert "漢\r\nö".encode() == await rewritten(ctx, "ä\r\nö".encode("cp1252"), "漢\nö")


async def test_crlf_is_kept_for_content_without_cr(ctx: ToolContext) -> None:
    assert b"c\r\nd\r\n" == await rewritten(ctx, b"a\r\nb\r\n", "c\nd\n")


async def test_content_with_cr_is_written_as_given(ctx: ToolContext) -> None:
    assert b"c\r\nd\n" == await rewritten(ctx, b"a\r\nb\r\n", "c\r\nd\n")


async def test_half_a_surrogate_pair_does_not_fail(ctx: ToolContext) -> None:
    await write(ctx, "a.txt", "x\ud83dy")
    assert "x?y" == (ctx.cwd / "a.txt").read_text()


async def test_mode_and_links_stay(ctx: ToolContext) -> None:
    path = ctx.cwd / "script"
    path.write_text("a")
    path.chmod(0o751)
    (ctx.cwd / "link").symlink_to("script")
    await read(ctx, "link")
    await write(ctx, "link", "b")
    assert (ctx.cwd / "link").is_symlink()
    assert "b" == path.read_text()
    assert 0o751 == stat.S_IMODE(path.stat().st_mode)


async def test_a_link_to_nothing_creates_its_target(ctx: ToolContext) -> None:
    (ctx.cwd / "link").symlink_to("target")
    await write(ctx, "link", "b")
    assert "b" == (ctx.cwd / "target").read_text()


async def test_no_temporary_file_stays(ctx: ToolContext) -> None:
    await write(ctx, "a.txt", "x")
    assert ["a.txt"] == [path.name for path in ctx.cwd.iterdir()]


async def test_a_failed_write_leaves_the_old_file_and_no_other(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ctx.cwd / "a.txt").write_text("old")
    await read(ctx, "a.txt")

    def fail(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ToolError, match="No space left"):
        await write(ctx, "a.txt", "new")
    assert {"a.txt": "old"} == {path.name: path.read_text() for path in ctx.cwd.iterdir()}


async def test_a_file_that_cannot_be_replaced_is_written_into(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ctx.cwd / "a.txt").write_text("old")
    await read(ctx, "a.txt")

    def fail(*paths: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(os, "replace", fail)  # a mount point, as containers make of single files
    await write(ctx, "a.txt", "new")
    assert {"a.txt": "new"} == {path.name: path.read_text() for path in ctx.cwd.iterdir()}


async def test_a_write_protected_file_is_left_alone(ctx: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    (ctx.cwd / "a.txt").write_text("old")
    (ctx.cwd / "a.txt").chmod(0o444)
    await read(ctx, "a.txt")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # so that it holds for root too
    with pytest.raises(ToolRejected, match="write-protected"):
        await write(ctx, "a.txt", "new")
    assert "old" == (ctx.cwd / "a.txt").read_text()


async def test_directories_and_paths_through_files_are_refused(ctx: ToolContext) -> None:
    (ctx.cwd / "file").touch()
    for path in (".", "new/", "file/x"):
        with pytest.raises(ToolError):
            await write(ctx, path, "x")


async def test_a_cancelled_write_is_whole(ctx: ToolContext) -> None:
    input = WRITE.parse({"file_path": "a.txt", "content": "x" * 1_000_000})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(WRITE.run, input, ctx)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    path = ctx.cwd / "a.txt"
    assert 1_000_000 == path.stat().st_size
    assert path in ctx.files


def test_declarations() -> None:
    input = WRITE.parse({"file_path": "a", "content": ""})
    assert "edit" == WRITE.permission
    assert not WRITE.concurrency_safe(input)
    assert "a" == WRITE.specifier(input)
    assert ["file_path", "content"] == WRITE.input_schema["required"]
