"""The assembler: every oddity of real streams by name, whole item lists compared; then anything at all."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from atrio.runtime.assembler import MessageAssembler
from atrio.runtime.events import InputJsonDelta, StreamEvent, TextDelta, ThinkingDelta
from atrio.runtime.messages import (
    Block,
    JsonObject,
    RawBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    Usage,
    block_to_wire,
)
from atrio.runtime.model import (
    BlockCompleted,
    FailureKind,
    IncompleteBlock,
    MessageEnded,
    MessageStarted,
    ModelFailure,
    StreamFailed,
    StreamItem,
)
from atrio.runtime.sse import ServerSentEvent
from atrio.runtime.whole import body_items

USAGE = {"input_tokens": 10, "output_tokens": 1}
COUNTED = Usage(input_tokens=10, output_tokens=1, reported=True)
ENDED = Usage(input_tokens=10, output_tokens=5, reported=True)


def start(**fields: Any) -> JsonObject:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": USAGE}
    return {"type": "message_start", "message": {**message, **fields}}


def begin(index: object, content: object) -> JsonObject:
    return {"type": "content_block_start", "index": index, "content_block": content}


def delta(index: object, kind: str, **fields: Any) -> JsonObject:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def text(index: object, value: object) -> JsonObject:
    return delta(index, "text_delta", text=value)


def piece(index: object, value: object) -> JsonObject:
    return delta(index, "input_json_delta", partial_json=value)


def stop(index: object) -> JsonObject:
    return {"type": "content_block_stop", "index": index}


def end(reason: str | None = "end_turn", usage: object = None) -> JsonObject:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": {"output_tokens": 5} if usage is None else usage,
    }


STOP: JsonObject = {"type": "message_stop"}
TEXT: JsonObject = {"type": "text", "text": ""}


def tool(id: str = "toolu_1", name: str = "Read", **fields: Any) -> JsonObject:
    return {"type": "tool_use", "id": id, "name": name, "input": {}, **fields}


def event(raw: object) -> ServerSentEvent:
    name = raw.get("type") if isinstance(raw, dict) else None
    return ServerSentEvent(name if isinstance(name, str) else "message", orjson.dumps(raw))


def assemble(*events: object, finish: bool = True) -> list[StreamItem]:
    """What the events give; dicts are encoded, bytes are data of an event without a name."""
    assembler = MessageAssembler()
    items: list[StreamItem] = []
    for one in events:
        if isinstance(one, ServerSentEvent):
            items += assembler.feed(one)
        else:
            items += assembler.feed(ServerSentEvent("message", one) if isinstance(one, bytes) else event(one))
    if finish:
        items += assembler.finish()
    return items


def blocks_of(items: Sequence[StreamItem]) -> list[Block]:
    return [item.block for item in items if isinstance(item, BlockCompleted)]


def ended(items: Sequence[StreamItem]) -> MessageEnded:
    (item,) = [item for item in items if isinstance(item, MessageEnded)]
    assert item is items[-1]
    return item


def failed(items: Sequence[StreamItem]) -> ModelFailure:
    (item,) = [item for item in items if isinstance(item, StreamFailed)]
    assert item is items[-1]
    return item.failure


def one_block(content: JsonObject, *deltas: JsonObject, reason: str = "end_turn") -> list[StreamItem]:
    return assemble(start(), begin(0, content), *deltas, stop(0), end(reason), STOP)


# --- the ordinary -------------------------------------------------------------------------------------------------


def test_a_whole_message_gives_one_item_for_each_event() -> None:
    call = tool(input={})
    events = [
        start(),
        begin(0, {"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="sig"),
        stop(0),
        {"type": "ping"},
        begin(1, TEXT),
        text(1, "Hel"),
        text(1, "lo"),
        stop(1),
        begin(2, call),
        piece(2, '{"a": '),
        piece(2, "1}"),
        stop(2),
        end("tool_use"),
        STOP,
    ]

    assert [
        MessageStarted("msg_1", "m", COUNTED, events[0]),
        StreamEvent(events[1]),
        ThinkingDelta(events[2], 0, "hm"),
        StreamEvent(events[3]),
        BlockCompleted(0, ThinkingBlock("hm", "sig"), events[4]),
        StreamEvent(events[5]),
        StreamEvent(events[6]),
        TextDelta(events[7], 1, "Hel"),
        TextDelta(events[8], 1, "lo"),
        BlockCompleted(1, TextBlock("Hello"), events[9]),
        StreamEvent(events[10]),
        InputJsonDelta(events[11], 2, '{"a": '),
        InputJsonDelta(events[12], 2, "1}"),
        BlockCompleted(2, ToolUseBlock("toolu_1", "Read", {"a": 1}), events[13]),
        StreamEvent(events[14]),
        MessageEnded("tool_use", ENDED, events[15]),
    ] == assemble(*events)


def test_a_block_is_handed_on_with_its_stop_event() -> None:
    assembler = MessageAssembler()
    for raw in (start(), begin(0, tool()), piece(0, "{}")):
        assembler.feed(event(raw))

    assert [BlockCompleted(0, ToolUseBlock("toolu_1", "Read", {}), stop(0))] == list(assembler.feed(event(stop(0))))


def test_interleaved_blocks_stay_apart() -> None:
    items = assemble(
        start(), begin(0, TEXT), begin(1, tool()), text(0, "a"), piece(1, '{"x"'), text(0, "b"), stop(0),
        piece(1, ":2}"), stop(1), end("tool_use"), STOP,
    )  # fmt: skip

    assert [TextBlock("ab"), ToolUseBlock("toolu_1", "Read", {"x": 2})] == blocks_of(items)
    assert () == ended(items).notes


# --- oddities of the wire -----------------------------------------------------------------------------------------


def test_spaces_before_the_last_brace_are_nothing() -> None:
    items = assemble(start(), b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}   }')

    assert StreamEvent(begin(0, TEXT)) == items[1]


def test_a_stop_sequence_may_end_a_message_without_blocks() -> None:
    assert [
        MessageStarted("msg_1", "m", COUNTED, start()),
        StreamEvent(end("stop_sequence")),
        MessageEnded("stop_sequence", ENDED, STOP),
    ] == assemble(start(), end("stop_sequence"), STOP)


def test_hidden_thinking_is_a_signature_without_text() -> None:
    items = one_block({"type": "thinking", "thinking": ""}, delta(0, "signature_delta", signature="s"))

    assert [ThinkingBlock("", "s")] == blocks_of(items)


def test_redacted_thinking_comes_whole() -> None:
    assert [RedactedThinkingBlock("x==")] == blocks_of(one_block({"type": "redacted_thinking", "data": "x=="}))


@pytest.mark.parametrize("pieces", [[], [""], ["", ""], [" "], ["\n", " "], ["{}"], ["", "{", "}"]])
def test_a_call_without_arguments_has_an_empty_input(pieces: list[str]) -> None:
    items = one_block(tool(), *(piece(0, one) for one in pieces), reason="tool_use")

    assert [ToolUseBlock("toolu_1", "Read", {})] == blocks_of(items)
    assert () == ended(items).notes


@pytest.mark.parametrize("input", [None, "", " ", "{}", {}])
def test_a_call_whose_start_has_no_object_has_an_empty_input(input: object) -> None:
    assert [ToolUseBlock("toolu_1", "Read", {})] == blocks_of(one_block(tool(input=input)))


def test_a_first_empty_piece_loses_nothing() -> None:
    assert [ToolUseBlock("toolu_1", "Read", {"a": 1})] == blocks_of(
        one_block(tool(), piece(0, ""), piece(0, '{"a":1}'))
    )


@pytest.mark.parametrize(
    "deltas", [[], [piece(0, "")], [piece(0, "{}")], [piece(0, '{"a":1}')], [piece(0, {"a": 1})]], ids=str
)
def test_a_call_whose_start_has_the_input_keeps_it(deltas: list[JsonObject]) -> None:
    assert [ToolUseBlock("toolu_1", "Read", {"a": 1})] == blocks_of(one_block(tool(input={"a": 1}), *deltas))


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("json_text", ['{"a": "b', "{}", ""])
def test_a_call_without_its_stop_under_an_output_limit_is_incomplete(reason: str, json_text: str) -> None:
    items = assemble(start(), begin(0, tool()), piece(0, json_text), end(reason), STOP)

    incomplete = IncompleteBlock(0, "tool_use", json_text, name="Read", id="toolu_1")
    assert [] == blocks_of(items)
    assert MessageEnded(reason, ENDED, STOP, incomplete=(incomplete,)) == ended(items)


def test_a_text_without_its_stop_under_an_output_limit_is_kept() -> None:
    items = assemble(start(), begin(0, TEXT), text(0, "half a sen"), end("max_tokens"), STOP)

    assert [TextBlock("half a sen")] == blocks_of(items)
    assert ("content block 0 has no content_block_stop",) == ended(items).notes


def test_thinking_without_its_stop_is_incomplete() -> None:
    items = assemble(start(), begin(0, {"type": "thinking", "thinking": ""}), delta(0, "thinking_delta", thinking="a"))

    assert FailureKind.TRUNCATED is failed(items).kind
    items = assemble(
        start(), begin(0, {"type": "thinking"}), delta(0, "thinking_delta", thinking="a"), end("max_tokens"), STOP
    )
    assert (IncompleteBlock(0, "thinking", "a"),) == ended(items).incomplete


def test_a_whole_call_without_its_stop_is_complete_when_nothing_was_cut() -> None:
    items = assemble(start(), begin(0, tool()), piece(0, '{"a":1}'), end("tool_use"), STOP)

    assert [ToolUseBlock("toolu_1", "Read", {"a": 1})] == blocks_of(items)


@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use", "mcp_tool_use", "newer_tool_use"])
def test_a_call_with_cut_json_and_no_stop_is_incomplete(kind: str) -> None:
    items = assemble(start(), begin(0, {**tool(), "type": kind}), piece(0, '{"a'), end("tool_use"), STOP)

    assert [] == blocks_of(items)
    assert (IncompleteBlock(0, kind, '{"a', name="Read", id="toolu_1"),) == ended(items).incomplete


def test_citations_come_before_their_text() -> None:
    one, two = {"type": "char_location", "n": 1}, {"type": "char_location", "n": 2}
    items = one_block(
        {"type": "text", "text": "", "citations": []},
        delta(0, "citations_delta", citation=one),
        text(0, "cited"),
        delta(0, "citations_delta", citation=two),
    )

    assert [TextBlock("cited", extra={"citations": [one, two]})] == blocks_of(items)
    assert () == ended(items).notes


def test_results_of_server_tools_come_whole_and_untouched() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    result = {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "u", "encrypted_content": "Eo8D=="}],
    }
    items = assemble(
        start(), begin(0, use), piece(0, '{"query":'), piece(0, '"x"}'), stop(0), begin(1, result), stop(1),
        end("pause_turn"), STOP,
    )  # fmt: skip

    assert [RawBlock({**use, "input": {"query": "x"}}), RawBlock(result)] == blocks_of(items)
    assert "pause_turn" == ended(items).stop_reason


def test_a_message_may_start_with_the_result_of_the_message_before() -> None:
    result = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_0", "content": {"type": "x"}}

    assert [RawBlock(result)] == blocks_of(one_block(result))


def test_content_may_sit_in_message_start() -> None:
    content = [{"type": "text", "text": "a"}, tool(input={"x": 1}, caller={"type": "code_execution"})]
    first = start(content=content, stop_reason="tool_use")

    assert [
        MessageStarted("msg_1", "m", COUNTED, first),
        BlockCompleted(0, TextBlock("a")),
        BlockCompleted(1, ToolUseBlock("toolu_1", "Read", {"x": 1}, extra={"caller": {"type": "code_execution"}})),
        MessageEnded("tool_use", COUNTED, STOP),
    ] == assemble(first, STOP)


def test_content_in_message_start_goes_before_the_blocks_behind_it() -> None:
    items = assemble(start(content=[{"type": "text", "text": "a"}]), begin(1, TEXT), text(1, "b"), stop(1), end(), STOP)

    assert [TextBlock("a"), TextBlock("b")] == blocks_of(items)


def test_content_in_message_start_that_is_streamed_again_counts_once() -> None:
    items = assemble(
        start(content=[tool(input={"a": 1})]), begin(0, tool()), piece(0, '{"a":1}'), stop(0), end("tool_use"), STOP
    )

    assert [ToolUseBlock("toolu_1", "Read", {"a": 1})] == blocks_of(items)
    assert ("message_start held blocks that were streamed as well",) == ended(items).notes


def test_done_marks_comments_and_pings_are_nothing() -> None:
    items = assemble(
        {"type": "ping"}, start(), begin(0, TEXT), {"type": "ping"}, text(0, "a"), stop(0), b"[DONE]", b"", b"ok",
        end(), STOP, b"[DONE]", {"type": "ping"},
    )  # fmt: skip

    assert [TextBlock("a")] == blocks_of(items)
    assert ("an event that is no JSON object was passed over: b'ok'",) == ended(items).notes


@pytest.mark.parametrize(
    "block",
    [
        {"type": "hologram", "depth": [1, {"a": None}], "z": 1, "a": 2.5},
        {"type": "container_upload", "file_id": "f"},
        {"no_type": True},
        {"type": None, "x": 1},
        {"type": ["list"]},
        {},
    ],
    ids=str,
)
def test_an_unknown_block_comes_back_byte_for_byte(block: JsonObject) -> None:
    (built,) = blocks_of(one_block(block))

    assert orjson.dumps(block) == orjson.dumps(block_to_wire(built))


def test_deltas_of_unknown_types_are_merged_into_their_block() -> None:
    items = one_block(
        {"type": "compaction", "content": None},
        delta(0, "compaction_delta", content="sum"),
        delta(0, "compaction_delta", content="mary", parts=[1]),
        delta(0, "compaction_delta", parts=[2], whole={"a": 1}),
    )

    expected = {"type": "compaction", "content": "summary", "parts": [1, 2], "whole": {"a": 1}}
    assert [RawBlock(expected)] == blocks_of(items)
    assert ("a delta of unknown type compaction_delta was merged into a compaction block",) == ended(items).notes


def test_known_deltas_in_an_unknown_block_are_its_fields() -> None:
    items = one_block({"type": "poem", "text": ""}, text(0, "a"), text(0, "b"), piece(0, '{"c":1}'))

    assert [RawBlock({"type": "poem", "text": "ab", "input": {"c": 1}})] == blocks_of(items)


def test_unknown_fields_of_known_blocks_go_back_with_them() -> None:
    items = one_block({**TEXT, "new": {"a": 1}}, text(0, "a"))

    assert {"type": "text", "text": "a", "new": {"a": 1}} == block_to_wire(blocks_of(items)[0])


def test_unknown_events_are_carried_through() -> None:
    raw = {"type": "weather_report", "error": {"message": "no error of the stream"}}

    assert [StreamEvent(raw)] == assemble(start(), raw, finish=False)[1:]


# --- faults met elsewhere -----------------------------------------------------------------------------------------


def test_a_cut_terminal_frame_is_a_complete_message() -> None:
    begun = (start(), begin(0, TEXT), text(0, "a"), stop(0), end())
    note = "the stream ended without message_stop"

    assert MessageEnded("end_turn", ENDED, notes=(note,)) == ended(assemble(*begun))
    items = assemble(*begun, ServerSentEvent("message_stop", b'{"type":"messa'))
    assert "end_turn" == ended(items).stop_reason
    assert [TextBlock("a")] == blocks_of(items)


def test_a_clean_close_inside_a_call_is_a_failure() -> None:
    items = assemble(start(), begin(0, tool()), piece(0, '{"a"'), piece(0, ":"))

    assert [] == blocks_of(items)
    message = "the response ended inside content block 0 (tool_use), before its message was complete"
    assert ModelFailure(kind=FailureKind.TRUNCATED, message=message, retryable=True) == failed(items)


@pytest.mark.parametrize("events", [[], [{"type": "ping"}], [start()], [start(), STOP], [STOP]], ids=str)
def test_a_stream_without_any_content_is_a_failure(events: list[JsonObject]) -> None:
    assert FailureKind.TRUNCATED is failed(assemble(*events)).kind


@pytest.mark.parametrize(
    ("raw", "kind", "message"),
    [
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "r"},
            FailureKind.OVERLOADED,
            "Overloaded",
        ),
        ({"error": {"message": "boom", "type": "api_error"}}, FailureKind.SERVER_ERROR, "boom"),
        ({"error": "boom"}, FailureKind.SERVER_ERROR, "boom"),
        ({"type": "error"}, FailureKind.SERVER_ERROR, "the server gave no reason"),
        ({"type": "error", "error": None}, FailureKind.SERVER_ERROR, "the server gave no reason"),
        ({"type": "stream_error", "error": {"message": "x"}}, FailureKind.SERVER_ERROR, "x"),
        (ServerSentEvent("error", b'{"message":"x"}'), FailureKind.SERVER_ERROR, "x"),
        (ServerSentEvent("error", b'{"type":"rate_limit_error","message":"x"}'), FailureKind.RATE_LIMIT, "x"),
        (ServerSentEvent("error", b"{}"), FailureKind.SERVER_ERROR, "the server gave no reason"),
        (ServerSentEvent("error", b"Bad Gateway"), FailureKind.SERVER_ERROR, "Bad Gateway"),
        (ServerSentEvent("error", b""), FailureKind.SERVER_ERROR, "the server gave no reason"),
    ],
    ids=str,
)
@pytest.mark.parametrize("before", [[], [start()], [start(), begin(0, TEXT), text(0, "a")]], ids=len)
def test_an_error_inside_the_stream_is_a_failure(
    raw: object, kind: FailureKind, message: str, before: list[JsonObject]
) -> None:
    failure = failed(assemble(*before, raw, STOP))

    assert (kind, message, True) == (failure.kind, failure.message, failure.retryable)


def test_an_error_after_the_end_of_the_message_spoils_nothing() -> None:
    error = {"type": "error", "error": {"type": "api_error", "message": "late"}}
    items = assemble(start(), begin(0, TEXT), text(0, "a"), stop(0), end(), error)

    assert MessageEnded("end_turn", ENDED, notes=("after the end of the message: late",)) == ended(items)


def test_an_error_keeps_its_request_id() -> None:
    raw = {"type": "error", "error": {"type": "api_error", "message": "x"}, "request_id": "req_1"}

    assert "req_1" == failed(assemble(raw)).request_id


INPUT: JsonObject = {
    "text": 'a "quoted" \\ \n \t \u00e9 \u2028 \U0001f600 \x7f',
    "list": [1, -2.5e3, None, True, {}],
    "\U0001f600": "",
}


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_json_in_fragments_is_parsed_once_whole(size: int, ascii_only: bool) -> None:
    source = json.dumps(INPUT, ensure_ascii=ascii_only)
    pieces = [piece(0, source[n : n + size]) for n in range(0, len(source), size)]

    assert [ToolUseBlock("toolu_1", "Read", INPUT)] == blocks_of(one_block(tool(), *pieces))


def surrogate_halves(text: str) -> list[bytes]:
    """Each UTF-16 unit of a text as a JSON escape of its own."""
    units = text.encode("utf-16-be")
    return [b"\\u%02x%02x" % (units[n], units[n + 1]) for n in range(0, len(units), 2)]


def test_characters_cut_in_two_by_the_server_are_whole_again() -> None:
    head = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"'
    items = assemble(start(), begin(0, TEXT), *(head + half + b'"}}' for half in surrogate_halves("\U0001f600!")))

    assert ["\ufffd", "\ufffd", "!"] == [item.text for item in items if isinstance(item, TextDelta)]
    assert all("\ufffd" in repr(item.raw) for item in items if isinstance(item, TextDelta) and item.text != "!")
    items = assemble(
        start(), begin(0, TEXT), *(head + half + b'"}}' for half in surrogate_halves("\U0001f600!")), stop(0), end()
    )
    assert [TextBlock("\U0001f600!")] == blocks_of(items)


def test_call_input_cut_inside_a_character_is_whole_again() -> None:
    head = b'{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"'
    halves = surrogate_halves('{"a":"\U0001f600"}')
    items = assemble(start(), begin(0, tool()), *(head + half + b'"}}' for half in halves), stop(0), end("tool_use"))

    assert [ToolUseBlock("toolu_1", "Read", {"a": "\U0001f600"})] == blocks_of(items)


def test_half_a_character_is_replaced() -> None:
    items = assemble(
        start(),
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"\\ud83d"}}',
        stop(0),
        begin(1, tool()),
        piece(1, '{"\\ud83d": "\\ude00"}'),
        stop(1),
        end("tool_use"),
        STOP,
    )

    assert [TextBlock("\ufffd"), ToolUseBlock("toolu_1", "Read", {"\ufffd": "\ufffd"})] == blocks_of(items)


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    raw = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\xffb"}}'

    assert [TextBlock("a\ufffdb")] == blocks_of(assemble(start(), begin(0, TEXT), raw, stop(0), end()))


@pytest.mark.parametrize(
    "source", ['{"a": ', "[1]", '"text"', "null", "{'a': 1}", '{"a":1}{"b":2}', "{" * 500, "\x00", "<x>"]
)
def test_input_that_is_no_json_object_is_kept_as_text_for_the_model(source: str) -> None:
    items = one_block(tool(), piece(0, source), reason="tool_use")

    assert [ToolUseBlock("toolu_1", "Read", {}, invalid_json=source)] == blocks_of(items)


def test_input_that_could_not_be_sent_back_is_kept_as_text() -> None:
    source = '{"a":' * 300 + "1" + "}" * 300

    assert [ToolUseBlock("toolu_1", "Read", {}, invalid_json=source)] == blocks_of(one_block(tool(), piece(0, source)))


@pytest.mark.parametrize("source", ['{"a": NaN}', '{"a": -Infinity}', '{"a": "x\ny"}', '{"a": 1' + "0" * 400 + "}"])
def test_input_that_is_nearly_json_is_understood_and_can_be_sent(source: str) -> None:
    (block,) = blocks_of(one_block(tool(), piece(0, source)))

    assert isinstance(block, ToolUseBlock)
    assert (None, ["a"]) == (block.invalid_json, list(block.input))
    orjson.dumps(block_to_wire(block))


# --- usage --------------------------------------------------------------------------------------------------------


def usage_of(first: object, *later: object) -> Usage:
    begun = start() if first is ... else start(usage=first)
    items = assemble(begun, begin(0, TEXT), stop(0), *(end(usage=usage) for usage in later), STOP)
    return ended(items).usage


def test_null_counts_change_nothing() -> None:
    later = {"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 43, "server_tool_use": None}

    assert Usage(input_tokens=10, output_tokens=43, reported=True) == usage_of(..., later)


@pytest.mark.parametrize("usage", [None, [], "x", 7, {}, {"input_tokens": "9", "output_tokens": -1}], ids=str)
def test_usage_that_is_missing_or_no_usage_is_unknown(usage: object) -> None:
    event = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    items = assemble(start(usage=usage), begin(0, TEXT), text(0, "a"), stop(0), event, STOP)

    assert Usage() == ended(items).usage


def test_counts_are_running_totals() -> None:
    first = {"input_tokens": 9, "cache_read_input_tokens": 1}

    assert Usage(input_tokens=9, cache_read_input_tokens=1, output_tokens=20, reported=True) == usage_of(
        first, {**first, "output_tokens": 16}, {"output_tokens": 20}
    )


def test_input_may_grow_within_a_stream_and_new_fields_are_kept() -> None:
    usage = usage_of({"input_tokens": 2479}, {"input_tokens": 404_500, "server_tool_use": {"web_search_requests": 9}})

    assert Usage(input_tokens=404_500, reported=True, extra={"server_tool_use": {"web_search_requests": 9}}) == usage


# --- indices, doubles, gaps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [None, "0", True, 1.0, [], {}], ids=str)
def test_events_without_a_usable_index_belong_to_the_last_block(index: object) -> None:
    items = assemble(
        start(), begin(index, tool("a")), piece(index, '{"x"'), piece(index, ":1}"), stop(index),
        begin(index, tool("b")), piece(index, '{"y":2}'), stop(index), end("tool_use"), STOP,
    )  # fmt: skip

    assert [ToolUseBlock("a", "Read", {"x": 1}), ToolUseBlock("b", "Read", {"y": 2})] == blocks_of(items)


def test_calls_that_share_an_index_stay_apart() -> None:
    items = assemble(
        start(), begin(0, tool("A")), piece(0, '{"x":1}'), begin(0, tool("B")), piece(1, '{"y":2}'), stop(0),
        end("tool_use"), STOP,
    )  # fmt: skip

    assert [ToolUseBlock("A", "Read", {"x": 1}), ToolUseBlock("B", "Read", {"y": 2})] == blocks_of(items)


@pytest.mark.parametrize("first", [1, 7, -3])
def test_the_first_index_need_not_be_0(first: int) -> None:
    items = assemble(start(), begin(first, tool()), piece(first, "{}"), stop(first), end("tool_use"), STOP)

    assert [ToolUseBlock("toolu_1", "Read", {})] == blocks_of(items)


def test_the_same_id_twice_in_a_message_gives_two_blocks() -> None:
    """Ids are made unique where blocks join the conversation (`admit_block`)."""
    items = assemble(start(), begin(0, tool()), stop(0), begin(1, tool()), stop(1), end("tool_use"), STOP)

    assert ["toolu_1", "toolu_1"] == [block.id for block in blocks_of(items) if isinstance(block, ToolUseBlock)]


@pytest.mark.parametrize("content", [tool(), TEXT, {"type": "x"}], ids=str)
def test_a_start_that_is_repeated_begins_nothing(content: JsonObject) -> None:
    once = assemble(start(), begin(0, content), stop(0), end(), STOP)
    twice = assemble(start(), begin(0, content), begin(0, content), stop(0), end(), STOP)

    assert blocks_of(once) == blocks_of(twice)
    assert ("content block 0 was begun twice",) == ended(twice).notes


def test_a_call_that_is_begun_again_half_way_runs_once() -> None:
    items = assemble(
        start(), begin(0, tool()), piece(0, '{"a"'), begin(0, tool()), piece(0, ":1}"), stop(0), end("tool_use"), STOP
    )

    assert [ToolUseBlock("toolu_1", "Read", {"a": 1})] == blocks_of(items)


def test_a_text_without_a_start_is_a_text() -> None:
    items = assemble(text(0, "a"), text(0, "b"), stop(0), end(), STOP)

    assert MessageStarted("", "", Usage(), {}) == items[0]
    assert [TextBlock("ab")] == blocks_of(items)
    notes = ("a text block without content_block_start", "the stream has no message_start")
    assert notes == ended(items).notes


def test_a_late_message_start_is_welcome() -> None:
    items = assemble(begin(0, TEXT), text(0, "a"), start(), stop(0), end(), STOP)

    assert [TextBlock("a")] == blocks_of(items)
    assert ENDED == ended(items).usage


def test_the_same_message_start_twice_is_one() -> None:
    items = assemble(start(), start(), begin(0, TEXT), text(0, "a"), stop(0), end(), STOP)

    assert 1 == sum(isinstance(item, MessageStarted) for item in items)
    assert [TextBlock("a")] == blocks_of(items)


def test_a_second_message_inside_the_first_is_a_failure() -> None:
    items = assemble(start(), begin(0, TEXT), start(id="msg_2"), text(0, "a"))

    assert FailureKind.MALFORMED is failed(items).kind


def test_deltas_and_stops_for_closed_blocks_are_noted_and_change_nothing() -> None:
    items = assemble(
        start(), begin(0, tool()), piece(0, "{}"), stop(0), piece(0, '{"late":1}'), stop(0), text(0, "x"),
        end("tool_use"), STOP,
    )  # fmt: skip

    assert [ToolUseBlock("toolu_1", "Read", {})] == blocks_of(items)
    assert (
        "a input_json_delta for a content block that is not open",
        "a content_block_stop for a block that is not open",
        "a text_delta for a content block that is not open",
    ) == ended(items).notes


@pytest.mark.parametrize(
    ("content", "stray", "expected"),
    [
        (tool(), text(0, "x"), ToolUseBlock("toolu_1", "Read", {})),
        (tool(), delta(0, "signature_delta", signature="x"), ToolUseBlock("toolu_1", "Read", {})),
        (TEXT, piece(0, "{}"), TextBlock("")),
        (TEXT, delta(0, "thinking_delta", thinking="x"), TextBlock("")),
        ({"type": "thinking"}, text(0, "x"), ThinkingBlock("", "")),
        ({"type": "redacted_thinking", "data": "d"}, text(0, "x"), RedactedThinkingBlock("d")),
    ],
    ids=str,
)
def test_a_stray_delta_leaves_no_field_that_the_api_would_refuse(
    content: JsonObject, stray: JsonObject, expected: Block
) -> None:
    items = one_block(content, stray)

    assert [expected] == blocks_of(items)
    assert 1 == len(ended(items).notes)


@pytest.mark.parametrize(
    "bad",
    [
        text(0, None),
        text(0, 5),
        delta(0, "text_delta"),
        delta(0, "citations_delta", citation=None),
        {"type": "content_block_delta", "index": 0},
        {"type": "content_block_delta", "index": 0, "delta": None},
    ],
    ids=str,
)
def test_a_delta_without_its_value_changes_nothing(bad: JsonObject) -> None:
    items = one_block(TEXT, text(0, "a"), bad, text(0, "b"))

    assert [TextBlock("ab")] == blocks_of(items)
    assert 1 == len(ended(items).notes)


@pytest.mark.parametrize("whole", [False, True])
def test_a_text_in_the_start_event_is_continued_or_repeated(whole: bool) -> None:
    parts = ["Hello", " you"] if whole else [" you"]

    assert [TextBlock("Hello you")] == blocks_of(
        one_block({"type": "text", "text": "Hello"}, *(text(0, part) for part in parts))
    )


@pytest.mark.parametrize("data", [b'{"type":"content_block_delta","ind', b"{", b'{"a":' * 2000, b"{" + b'"a":[' * 400])
def test_data_that_is_no_json_is_a_failure(data: bytes) -> None:
    failure = failed(assemble(start(), begin(0, TEXT), data))

    assert (FailureKind.MALFORMED, True) == (failure.kind, failure.retryable)
    assert len(failure.message) < 400


def test_an_event_nested_too_deep_with_half_a_character_is_a_failure() -> None:
    data = b'{"a":' + b"[" * 900 + b'"\\ud83d"' + b"]" * 900 + b"}"

    assert FailureKind.MALFORMED is failed(assemble(start(), data)).kind


def test_notes_are_few_and_short() -> None:
    many = [delta(0, f"{n}_delta" + "x" * 1000, a=n) for n in range(50)]
    notes = ended(one_block(TEXT, *many)).notes

    assert 20 == len(notes)
    assert max(map(len, notes)) < 350


def test_after_the_end_nothing_comes() -> None:
    assembler = MessageAssembler()
    for raw in (start(), begin(0, TEXT), text(0, "a"), stop(0), end(), STOP):
        assembler.feed(event(raw))

    assert [] == [item for raw in (start(), text(0, "b"), STOP) for item in assembler.feed(event(raw))]
    assert [] == list(assembler.finish())


# --- without streaming --------------------------------------------------------------------------------------------

WHOLE_BLOCKS: Sequence[JsonObject] = (
    {"type": "text", "text": "a\u2028\U0001f600"},
    {"type": "text", "text": "", "citations": [{"type": "x"}]},
    {"type": "thinking", "thinking": "t", "signature": "s"},
    {"type": "thinking", "thinking": "t"},
    {"type": "redacted_thinking", "data": "d"},
    tool("a", input={}),
    tool("b", input={"x": [1]}, caller={"type": "direct"}),
    tool("c", input=None),
    tool("d", input='{"x": 1}'),
    tool("e", input=[1]),
    {"type": "tool_use", "name": "Read"},
    {"type": "server_tool_use", "id": "s", "name": "n", "input": {"q": 1}},
    {"type": "hologram", "x": 1},
    {},
)


def streamed(block: JsonObject, index: int) -> list[JsonObject]:
    """The events that a server would make of a block: its text fields in deltas, other fields in the start."""
    kind = block.get("type")
    if kind == "text":
        cut = [block["text"][:1], block["text"][1:]]
        begun, deltas = {**block, "text": ""}, [text(index, part) for part in cut]
    elif kind == "thinking":
        begun = {**block, "thinking": "", "signature": ""}
        deltas = [delta(index, "thinking_delta", thinking=block["thinking"])]
        if "signature" in block:
            deltas.append(delta(index, "signature_delta", signature=block["signature"]))
    elif kind in ("tool_use", "server_tool_use") and isinstance(block.get("input"), dict):
        source = json.dumps(block["input"])
        begun, deltas = {**block, "input": {}}, [piece(index, source[:3]), piece(index, source[3:])]
    else:
        begun, deltas = block, []
    return [begin(index, begun), *deltas, stop(index)]


def body_of(content: object, reason: str | None = "end_turn") -> bytes:
    message = {**start()["message"], "content": content, "stop_reason": reason}
    return orjson.dumps({**message, "usage": {**USAGE, "output_tokens": 5}})


def test_streaming_and_not_streaming_give_equal_blocks() -> None:
    events = [raw for index, block in enumerate(WHOLE_BLOCKS) for raw in streamed(block, index)]
    items = assemble(start(), *events, end(), STOP)
    whole = body_items(body_of(WHOLE_BLOCKS))

    assert blocks_of(items) == blocks_of(whole)
    assert (ended(items).usage, ended(items).stop_reason) == (ended(whole).usage, ended(whole).stop_reason)


def test_a_whole_answer_gives_the_items_of_a_stream() -> None:
    assert [
        MessageStarted("msg_1", "m", ENDED, {}),
        BlockCompleted(0, TextBlock("a")),
        BlockCompleted(1, ToolUseBlock("t", "Read", {"x": 1})),
        MessageEnded("tool_use", ENDED),
    ] == list(body_items(body_of([{"type": "text", "text": "a"}, 5, tool("t", input={"x": 1})][::2], "tool_use")))


def test_the_last_call_of_a_whole_answer_that_was_cut_does_not_run() -> None:
    items = body_items(body_of([tool("a", input={"x": 1}), tool("b", input={"y": 2})], "max_tokens"))

    assert [ToolUseBlock("a", "Read", {"x": 1})] == blocks_of(items)
    assert (IncompleteBlock(1, "tool_use", '{"y":2}', name="Read", id="b"),) == ended(items).incomplete


def test_half_characters_in_a_whole_answer_are_replaced() -> None:
    body = body_of([{"type": "text", "text": "@"}]).replace(b"@", b"\\ud83d")

    assert [TextBlock("\ufffd")] == blocks_of(body_items(body))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", FailureKind.MALFORMED),
        (b"<html>", FailureKind.MALFORMED),
        (b"[]", FailureKind.MALFORMED),
        (b'{"type":"message"}', FailureKind.MALFORMED),
        (b'{"type":"message","content":"text"}', FailureKind.MALFORMED),
        (b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}', FailureKind.OVERLOADED),
        (b'{"error":"x"}', FailureKind.SERVER_ERROR),
        (b'{"detail":"x"}', FailureKind.SERVER_ERROR),
    ],
    ids=repr,
)
def test_a_whole_answer_that_is_no_message_is_a_failure(body: bytes, kind: FailureKind) -> None:
    (item,) = body_items(body)

    assert isinstance(item, StreamFailed)
    assert kind is item.failure.kind


# --- anything at all ----------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
SESSION: Sequence[JsonObject] = (
    start(),
    *[raw for index, block in enumerate(WHOLE_BLOCKS[:9]) for raw in streamed(block, index)],
    {"type": "ping"},
    end("tool_use"),
    STOP,
    {"type": "error", "error": {"type": "api_error", "message": "x"}},
)
FIELD_PATHS = st.lists(st.integers(0, 5), min_size=1, max_size=3)


def with_wrong_field(raw: JsonObject, path: Sequence[int], value: object) -> JsonObject:
    """The event with one field, found by positions, replaced or (for `...`) taken out."""
    changed = copy.deepcopy(raw)
    place: Any = changed
    for position, step in enumerate(path):
        if not isinstance(place, dict) or not place:
            break
        key = list(place)[step % len(place)]
        if position == len(path) - 1 or not isinstance(place[key], dict):
            if value is ...:
                del place[key]
            else:
                place[key] = value
            break
        place = place[key]
    return changed


BROKEN = st.builds(with_wrong_field, st.sampled_from(SESSION), FIELD_PATHS, JSON | st.just(...))
ANY_EVENTS = st.one_of(
    st.lists(st.sampled_from(SESSION), max_size=30),
    st.permutations(SESSION),
    st.lists(st.sampled_from(SESSION) | BROKEN, max_size=30),
    st.lists(st.sampled_from([n for n in range(len(SESSION))]), max_size=4).map(
        lambda dropped: [raw for n, raw in enumerate(SESSION) if n not in dropped]
    ),
    st.tuples(st.integers(0, len(SESSION) - 1), FIELD_PATHS, JSON).map(
        lambda wrong: [
            with_wrong_field(raw, wrong[1], wrong[2]) if n == wrong[0] else raw for n, raw in enumerate(SESSION)
        ]
    ),
)
TERMINAL = (MessageEnded, StreamFailed)


def raw_of(item: StreamItem) -> Mapping[str, Any] | None:
    return None if isinstance(item, StreamFailed) else item.raw


@pytest.mark.slow
@settings(max_examples=300)
@given(ANY_EVENTS)
@example([start(), begin(0, {"type": "thinking", "thinking": None, "signature": 5}), stop(0), end(), STOP])
def test_whatever_comes_is_items_with_one_end(events: Sequence[JsonObject]) -> None:
    assembler = MessageAssembler()
    items: list[StreamItem] = []
    for raw in events:
        was_over = any(isinstance(item, TERMINAL) for item in items)
        new = list(assembler.feed(event(raw)))
        carried = [item for item in new if raw_of(item) == raw]
        if was_over:
            assert [] == new
        elif not new or not isinstance(new[-1], TERMINAL):
            assert 1 == len(carried)
        items += new
    items += assembler.finish()

    assert 1 == sum(isinstance(item, TERMINAL) for item in items)
    assert isinstance(items[-1], TERMINAL)
    assert sum(isinstance(item, MessageStarted) for item in items) <= 1
    for block in blocks_of(items):
        orjson.dumps(block_to_wire(block))


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from(["message", "error", "ping", "content_block_delta"]), st.binary(max_size=12)))
)
def test_bytes_of_any_kind_raise_nothing(events: list[tuple[str, bytes]]) -> None:
    items = assemble(*(ServerSentEvent(name, data) for name, data in events))

    assert isinstance(items[-1], TERMINAL)


@given(JSON, st.data())
def test_any_cut_of_any_input_gives_that_input(value: object, data: st.DataObject) -> None:
    source = json.dumps({"v": value}, ensure_ascii=data.draw(st.booleans()))
    places = sorted(data.draw(st.lists(st.integers(0, len(source)), max_size=6)))
    edges = [0, *places, len(source)]
    pieces = [piece(0, source[a:b]) for a, b in itertools.pairwise(edges)]

    (block,) = blocks_of(one_block(tool(), *pieces))
    assert isinstance(block, ToolUseBlock)
    assert {"v": value} == block.input
