"""Turns become the bytes that the Messages API would send."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from httpx_sse import EventSource, ServerSentEvent
from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.testing import Turn, block, raw, text, thinking, tool
from atrio.actors.testing.replies import Frame
from atrio.actors.testing.turns import Part
from atrio.actors.testing.wire import Answer, message_body, signature_of, stream_frames
from atrio.runtime.messages import Usage


def answer(turn: Turn) -> Answer:
    ids = tuple(part.id or f"toolu_{number}" for number, part in enumerate(turn.tools))
    return Answer(turn=turn, model="m", message_id="msg_1", tool_ids=ids, input_tokens=7)


def read(frames: tuple[Frame, ...]) -> list[ServerSentEvent]:
    """The events, as httpx-sse sees them."""
    body = b"".join(frame.data for frame in frames)
    response = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body)
    return list(EventSource(response).iter_sse())


def rebuilt(events: list[ServerSentEvent]) -> list[dict[str, Any]]:
    """The blocks that the deltas make."""
    blocks: dict[int, dict[str, Any]] = {}
    pieces: dict[int, str] = {}
    for event in events:
        data = json.loads(event.data)
        assert event.event == data["type"]
        if event.event == "content_block_start":
            blocks[data["index"]] = data["content_block"]
        elif event.event == "content_block_delta":
            for name, value in data["delta"].items():
                if name == "partial_json":
                    pieces[data["index"]] = pieces.get(data["index"], "") + value
                elif name != "type":
                    blocks[data["index"]][name] += value
    for index, piece in pieces.items():
        blocks[index]["input"] = json.loads(piece or "{}")
    return [blocks[index] for index in sorted(blocks)]


WORDS = st.text(st.characters(codec="utf-8"), max_size=60)
INPUTS = st.dictionaries(WORDS, st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS | st.lists(WORDS))
CHUNKS = st.integers(1, 30)
PARTS: st.SearchStrategy[Part] = (
    st.builds(lambda words, chunk: text(words, chunk=chunk), WORDS, CHUNKS)
    | st.builds(lambda words, chunk: thinking(words, chunk=chunk), WORDS, CHUNKS)
    | st.builds(lambda given, chunk: tool("Read", given, chunk=chunk), INPUTS, CHUNKS)
    | st.just(block({"type": "redacted_thinking", "data": "abc"}))
)


@pytest.mark.slow
@given(st.lists(PARTS, max_size=4))
def test_the_stream_and_the_whole_body_say_the_same(parts: list[Part]) -> None:
    given = answer(Turn(*parts))
    events = read(stream_frames(given))
    body = json.loads(message_body(given))
    assert body["content"] == rebuilt(events)
    closing = json.loads(events[-2].data)
    assert body["stop_reason"] == closing["delta"]["stop_reason"]
    assert body["usage"]["output_tokens"] == closing["usage"]["output_tokens"]


def test_each_event_is_one_frame_in_the_order_of_the_api() -> None:
    frames = stream_frames(answer(Turn(text("ab", chunk=1), tool("Read", {}))))
    assert [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ] == [read((frame,))[0].event for frame in frames]


def test_a_call_without_arguments_sends_one_empty_piece() -> None:
    events = read(stream_frames(answer(Turn(tool("Now")))))
    assert {"type": "input_json_delta", "partial_json": ""} == json.loads(events[3].data)["delta"]


def test_literal_input_is_sent_as_it_is() -> None:
    events = read(stream_frames(answer(Turn(tool("Read", '{"file_pa', unfinished=True), stop_reason="max_tokens"))))
    assert '{"file_pa' == json.loads(events[3].data)["delta"]["partial_json"]
    assert "content_block_stop" not in [event.event for event in events]
    assert "max_tokens" == json.loads(events[-2].data)["delta"]["stop_reason"]


def test_raw_frames_stand_between_blocks_and_take_no_index() -> None:
    frames = stream_frames(answer(Turn(text("a"), raw([b": hello\n\n", b"data: [DONE]\n\n"]), text("b"))))
    assert [b": hello\n\n", b"data: [DONE]\n\n"] == [frame.data for frame in frames[5:7]]
    assert 1 == json.loads(read(frames[7:8])[0].data)["index"]


def test_a_turn_of_raw_frames_alone_is_nothing_else() -> None:
    given = answer(Turn(raw([b"a", b"b"])))
    assert (Frame(0.0, b"a"), Frame(0.0, b"b")) == stream_frames(given)
    assert b"ab" == message_body(given)


def test_blocks_are_complete_at_their_times() -> None:
    turn = Turn(text("abcd", chunk=1), tool("A", after=0.6), tool("B", {"x": "y" * 90}, after=1.2), text("z"), at=3.0)
    frames = stream_frames(answer(turn))
    stops = [frame.at for frame in frames if b"event: content_block_stop" in frame.data]
    assert [0.0, 0.6, 1.2, 1.2] == stops
    assert [3.0, 3.0] == [frame.at for frame in frames[-2:]]
    assert sorted(frame.at for frame in frames) == [frame.at for frame in frames]


def test_pace_lies_between_any_two_frames() -> None:
    frames = stream_frames(answer(Turn(text("ab", chunk=1), pace=0.5)))
    assert [0.5 * number for number in range(len(frames))] == [frame.at for frame in frames]


def test_a_time_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(ValueError, match=r"block 1 of the turn is to be complete after 0\.5 s.*takes 3\.5 s"):
        stream_frames(answer(Turn(text("abc", chunk=1), tool("A", after=0.5), pace=0.5)))


def test_times_that_run_backwards_are_refused() -> None:
    with pytest.raises(ValueError, match=r"complete after 1 s, the one before it after 2 s"):
        Turn(text("a", after=2), text("b", after=1))


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_a_time_is_a_finite_number_of_seconds(wrong: float) -> None:
    with pytest.raises(ValueError, match="give seconds"):
        Turn(text("a"), delay=wrong)
    with pytest.raises(ValueError, match="give seconds"):
        text("a", after=wrong)


def test_a_delta_has_at_least_one_character() -> None:
    with pytest.raises(ValueError, match="at least one character"):
        text("a", chunk=0)


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (Turn(), "end_turn"),
        (Turn(text("a")), "end_turn"),
        (Turn(text("a"), tool("A")), "tool_use"),
        (Turn(tool("A"), stop_reason="pause_turn"), "pause_turn"),
    ],
)
def test_the_stop_reason_follows_from_the_blocks(turn: Turn, reason: str) -> None:
    assert reason == turn.reason


def test_given_usage_is_sent_as_it_is() -> None:
    events = read(stream_frames(answer(Turn(text("a"), usage={"input_tokens": None, "new": 1}))))
    assert {"input_tokens": None, "new": 1} == json.loads(events[0].data)["message"]["usage"]
    assert {"input_tokens": None, "new": 1} == json.loads(events[-2].data)["usage"]
    assert Usage(input_tokens=3, output_tokens=4).to_wire() == Turn(usage=Usage(input_tokens=3, output_tokens=4)).usage


def test_a_signature_changes_with_its_text() -> None:
    assert signature_of("a") == signature_of("a")
    assert signature_of("a") != signature_of("b")
