"""The collector keeps head and tail, and its text is the same wherever the bytes are cut."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.tools.output import OutputCollector, TextCleaner


async def collect(
    path: Path, *chunks: bytes, visible_chars: int = 100, file_limit_bytes: int = 10_000
) -> OutputCollector:
    output = OutputCollector(path=path, visible_chars=visible_chars, file_limit_bytes=file_limit_bytes)
    for chunk in chunks:
        await output.add(chunk)
    await output.finish()
    return output


async def test_short_output_stays_in_memory(tmp_path: Path) -> None:
    output = await collect(tmp_path / "results" / "o.txt", b"one\n", b"two\n")
    assert "one\ntwo\n" == output.text()
    assert output.saved_to is None
    assert [] == os.listdir(tmp_path)


async def test_long_output_shows_head_and_tail_and_is_whole_in_the_file(tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(100)]
    path = tmp_path / "results" / "o.txt"
    output = await collect(path, *(line.encode() for line in lines))
    text = output.text()
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 98\nline 99\n")
    left_out = sum(map(len, lines)) - sum(len(line) for line in lines if line in text.splitlines(keepends=True))
    assert f"\n[... {left_out:,} characters left out; full output in {path}]\n" in text
    assert "".join(lines) == path.read_text()
    assert path == output.saved_to
    assert 0o600 == path.stat().st_mode & 0o777


async def test_one_endless_line_is_cut_too(tmp_path: Path) -> None:
    output = await collect(tmp_path / "o.txt", b"x" * 1_000)
    assert len(output.text()) < 300
    assert "[... 900 characters left out" in output.text()


async def test_the_file_is_limited_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "o.txt"
    output = await collect(path, *["ä".encode() * 500] * 20, file_limit_bytes=1_001)
    written = path.read_text()
    assert written.startswith("ä" * 500 + "\n[... cut here: this file is limited to 1,001 bytes]")
    assert f"the first 1,001 bytes of the output are in {path}" in output.text()


async def test_a_flood_grows_neither_memory_nor_file(tmp_path: Path) -> None:
    path = tmp_path / "o.txt"
    output = OutputCollector(path=path, file_limit_bytes=200_000)
    chunk = b"y\n" * 32_768
    for _ in range(200):
        await output.add(chunk)
    await output.finish()
    assert 200 * len(chunk) == output.total_chars
    assert len(output.text()) < 30_500
    assert path.stat().st_size < 200_100


async def test_a_file_that_cannot_be_written_is_told_and_fails_nothing(tmp_path: Path) -> None:
    blocker = tmp_path / "blocker"
    blocker.write_text("")
    output = await collect(blocker / "o.txt", b"x" * 1_000)
    assert f"the full output could not be saved to {blocker / 'o.txt'}: File exists" in output.text()
    assert output.saved_to is None


async def test_an_earlier_output_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "o.txt"
    path.write_text("old" * 1_000)
    await collect(path, b"x" * 1_000)
    assert "x" * 1_000 == path.read_text()


async def test_no_descriptor_stays_open_between_two_writes(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    output = OutputCollector(path=tmp_path / "o.txt", visible_chars=10)
    await output.add(b"x" * 400_000)
    assert (tmp_path / "o.txt").exists()
    assert before == len(os.listdir("/proc/self/fd"))


async def test_the_last_lines_are_those_of_the_whole_output(tmp_path: Path) -> None:
    output = await collect(tmp_path / "o.txt", b"".join(b"line %d\n" % number for number in range(100)))
    assert "line 98\nline 99" == output.last_lines(2, 1_000)
    assert "99" == output.last_lines(2, 3)
    assert "" == (await collect(tmp_path / "p.txt")).last_lines(2, 1_000)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07a", "a"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b(Ba\x1b7", "a"),
        (b"a\0b", "ab"),
        (b"a\xff\xfeb", "a\ufffd\ufffdb"),
        (b"\xe2\x82", "\ufffd"),
        (b"10%\r20%\r\n", "10%\r20%\r\n"),
        (b"a\x1b", "a\x1b"),
        (b"\x1b[" + b"0" * 10_000, "\x1b[" + "0" * 10_000),
    ],
)
def test_escape_sequences_and_nuls_are_dropped_and_text_is_kept(data: bytes, expected: str) -> None:
    assert expected == TextCleaner().feed(data, final=True)


_BYTES = st.lists(
    st.sampled_from(
        [b"\x1b", b"[", b"31", b"m", b"]", b"0;t", b"\x07", b"\\", b"(", b"B", b"\xe2", b"\x82", b"\xac", b"\0"]
    )
    | st.binary(max_size=4)
).map(b"".join)


@given(_BYTES, st.lists(st.integers(min_value=0, max_value=40)))
def test_the_text_does_not_depend_on_where_the_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    cleaner = TextCleaner()
    text = ""
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(places):
        text += cleaner.feed(data[start:end])
    text += cleaner.feed(b"", final=True)
    assert TextCleaner().feed(data, final=True) == text
