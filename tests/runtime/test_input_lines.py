"""Lines that a host writes: what they say, and how bytes become lines."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.input_lines import Control, LineSplitter, Prompt, read_line
from atrio.runtime.messages import ImageBlock, TextBlock

SOURCE = {"type": "base64", "media_type": "image/png", "data": "AAAA"}


def user(content: Any, **more: Any) -> bytes:
    return json.dumps({"type": "user", "message": {"role": "user", "content": content}, **more}).encode()


def test_a_text_and_blocks_are_prompts() -> None:
    said = read_line(user("hello"))
    assert isinstance(said, Prompt)
    assert ((TextBlock("hello"),), None, True) == (said.blocks, said.priority, said.query)
    blocks = [{"type": "text", "text": "look"}, {"type": "image", "source": SOURCE}]
    shown = read_line(user(blocks, priority="now", uuid="u", shouldQuery=False, session_id="", parent_tool_use_id=None))
    assert isinstance(shown, Prompt)
    assert (TextBlock("look"), ImageBlock(SOURCE)) == shown.blocks
    assert ("now", "u", False) == (shown.priority, shown.uuid, shown.query)


def test_requests_of_the_host_have_an_id_and_a_kind() -> None:
    line = {"type": "control_request", "request_id": "r1", "request": {"subtype": "set_model", "model": "m"}}
    asked = Control(request_id="r1", subtype="set_model", request={"subtype": "set_model", "model": "m"})
    assert asked == read_line(json.dumps(line).encode())


@pytest.mark.parametrize("line", [b"", b"  \r", b'{"type":"keep_alive"}', b'{"type":"control_response","response":{}}'])
def test_some_lines_ask_for_nothing(line: bytes) -> None:
    assert read_line(line) is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"hello", "no JSON object"),
        (b"[1]", "no JSON object"),
        (b'{"type":"user"}', "a user line holds"),
        (b'{"type":"user","message":{"role":"assistant","content":"x"}}', "a user line holds"),
        (user(3), "a text or a list"),
        (user([]), "a text or a list"),
        (user([{"type": "tool_result", "tool_use_id": "t", "content": ""}]), "a user can't say"),
        (user([{"type": "text"}]), "a user can't say"),
        (user([7]), "a user can't say"),
        (b'{"type":"control_request","request":{"subtype":"interrupt"}}', "holds a request_id"),
        (b'{"type":"assistant"}', "'assistant' are not understood"),
        (b"{}", "None are not understood"),
        (b'{"type":"user","message":' + b"[" * 5000 + b"]" * 5000 + b"}", "no JSON object"),
    ],
)
def test_what_is_not_understood_is_said_in_a_sentence(line: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_line(line)


def test_half_a_surrogate_pair_is_replaced() -> None:
    said = read_line(rb'{"type":"user","message":{"role":"user","content":"a\ud83d"}}')
    assert isinstance(said, Prompt)
    assert (TextBlock("a\ufffd"),) == said.blocks


@given(st.binary(max_size=200))
def test_any_bytes_are_a_line_or_a_reason(line: bytes) -> None:
    with suppress(ValueError):
        read_line(line)


@given(st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")), max_size=6), st.integers(1, 9))
def test_lines_come_out_whole_however_they_come_in(lines: list[bytes], size: int) -> None:
    data = b"\n".join(lines)
    splitter = LineSplitter()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    found = [line for piece in pieces for line in splitter.feed(piece)] + list(splitter.end())
    assert [line for line in lines if line] == [line for line in found if line]


def test_a_line_that_is_too_long_is_passed_over_alone() -> None:
    splitter = LineSplitter(limit_bytes=4)
    assert [b"ab", None, b"cd"] == [*splitter.feed(b"ab\n123"), *splitter.feed(b"45\ncd"), *splitter.feed(b"\n")]
