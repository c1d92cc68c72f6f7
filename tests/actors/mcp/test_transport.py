"""Lines out of chunks, and the log of what a server writes to stderr."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.mcp.server_log import MAX_LOG_BYTES, ServerLog

pytest.importorskip("mcp")

from atrio.actors.mcp.transport import _FIRST_ID, _LAST_ID, Line, LineCutter


@given(st.binary(max_size=60), st.integers(1, 7))
def test_chunks_make_the_same_lines_wherever_they_are_cut(data: bytes, size: int) -> None:
    cutter = LineCutter()
    chunks = [data[place : place + size] for place in range(0, len(data), size)]
    lines = [line.data for chunk in chunks for line in cutter.feed(chunk)]
    assert data.split(b"\n")[:-1] == lines


def test_a_line_over_the_limit_keeps_its_beginning_and_its_end() -> None:
    cutter = LineCutter(limit=10)
    lines = [line for chunk in (b"first\nab", b"cdefgh", b"ijkl", b"m\nlast\n") for line in cutter.feed(chunk)]
    assert [
        Line(data=b"first", length=5),
        Line(data=b"abcdefgh", length=13, cut=True, tail=b"ijklm"),
        Line(data=b"last", length=4),
    ] == lines


def test_endless_lines_take_no_memory() -> None:
    cutter = LineCutter(limit=10_000)
    for _ in range(1_000):
        cutter.feed(b"x" * 1_000)
    assert sum(map(len, cutter._pieces)) + len(cutter._tail) <= 10_000 + 2_048


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"id":8}}', 7),
        (b'{"id": 7, "jsonrpc": "2.0", "result": {}}', 7),
        (b'{"result":{"id":8},"jsonrpc":"2.0","id":7}', 7),
        (b'{"result":{},"id":7,"jsonrpc":"2.0"}\r', 7),
        (b'{"jsonrpc":"2.0","result":{"id":8}}', None),
    ],
)
def test_the_request_that_a_long_line_answers_is_found_at_its_ends(line: bytes, id: int | None) -> None:
    found = _FIRST_ID.match(line) or _LAST_ID.search(line)
    assert id == (int(found[1]) if found else None)


async def test_a_log_is_bounded_and_its_tail_is_kept(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "new" / "s.log")
    for _ in range(3 * MAX_LOG_BYTES // 65_536):
        await log.write(b"x" * 65_536)
    await log.write(b"the end\n")
    assert log.tail.endswith("the end")
    assert len(log.tail) <= 2_000
    sizes = [path.stat().st_size for path in (tmp_path / "new").iterdir()]
    assert 2 == len(sizes)
    assert all(size <= MAX_LOG_BYTES for size in sizes)


async def test_a_log_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log = ServerLog(tmp_path / "file" / "s.log")
    await log.write(b"a")
    await log.write(b"b")
    assert "ab" == log.tail
    assert 1 == len(log.notes)
    await trio.lowlevel.checkpoint()


def test_notes_are_kept_once_and_not_without_end() -> None:
    log = ServerLog()
    for number in range(1_000):
        log.note(f"{number % 100} \ud800")
    assert len(set(log.notes)) == len(log.notes) <= 50
    "".join(log.notes).encode()
