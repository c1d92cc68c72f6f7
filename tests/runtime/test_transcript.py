"""Journal lines: every record survives its line, and other programs' lines are understood."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atrio.runtime.messages import (
    Block,
    DocumentBlock,
    ImageBlock,
    RawBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UserMessage,
)
from atrio.runtime.records import (
    BlockRecord,
    QueueRecord,
    Record,
    ResponseEndRecord,
    ResultRecord,
    RunEndRecord,
    RunStartRecord,
    SystemRecord,
    ToolStartRecord,
    UserRecord,
    WithdrawRecord,
)
from atrio.runtime.transcript import LineWriter, records_from_line

NOW = datetime(2026, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)


def writer(parent: str | None = None) -> LineWriter:
    return LineWriter(session_id="s", cwd="/w", version="1.2.3", parent=parent)


def line(record: Record) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(writer().line(record, NOW))
    return value


def round_trip(record: Record) -> tuple[Record, ...]:
    return records_from_line(line(record))


def block_record(block: Block, **changes: Any) -> BlockRecord:
    return attrs.evolve(BlockRecord(uuid="u", message_id="m", model="claude", block=block), **changes)


# --- round trip -----------------------------------------------------------------------------------

WHOLE = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(WHOLE, max_size=12)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
EXTRA = st.dictionaries(st.sampled_from(["cache_control", "citations", "index", "caller"]), JSON, max_size=2)
RAW = OBJECTS.map(lambda data: RawBlock({**data, "type": "server_tool_use"}))
TEXT_BLOCKS = st.builds(TextBlock, TEXTS, extra=EXTRA)
IMAGES = st.builds(ImageBlock, OBJECTS, extra=EXTRA)
DOCUMENTS = st.builds(DocumentBlock, OBJECTS, extra=EXTRA)
CALLS = st.builds(ToolUseBlock, TEXTS, TEXTS, OBJECTS, extra=EXTRA) | st.builds(
    ToolUseBlock, TEXTS, TEXTS, st.just({}), invalid_json=TEXTS, extra=EXTRA
)
PARTS = st.lists(TEXT_BLOCKS | IMAGES | DOCUMENTS | RAW, max_size=3).map(tuple)
RESULTS = st.builds(ToolResultBlock, TEXTS, TEXTS | PARTS, st.booleans(), extra=EXTRA)
BLOCKS = st.one_of(
    TEXT_BLOCKS,
    IMAGES,
    DOCUMENTS,
    RAW,
    CALLS,
    RESULTS,
    st.builds(ThinkingBlock, TEXTS, TEXTS, extra=EXTRA),
    st.builds(RedactedThinkingBlock, TEXTS, extra=EXTRA),
)
COUNTS = st.integers(0, 10**9)
USAGES = st.builds(
    Usage,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cache_creation_input_tokens=COUNTS,
    cache_read_input_tokens=COUNTS,
    reported=st.just(True),
    extra=st.dictionaries(st.sampled_from(["service_tier", "cache_creation"]), JSON.filter(lambda v: v is not None)),
) | st.builds(Usage, extra=st.just({"service_tier": "standard"}))
ORIGINS = st.sampled_from(["prompt", "tool_results", "steer", "hook", "recovery", "attachment", "interruption"])
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        UserMessage,
        uuid=TEXTS,
        content=st.lists(BLOCKS.filter(lambda b: getattr(b, "invalid_json", None) is None), max_size=3).map(tuple),
        origin=ORIGINS,
        hidden=st.booleans(),
        pinned=st.booleans(),
    ).map(lambda message: UserRecord(message=message)),
    st.builds(
        QueueRecord,
        uuid=TEXTS,
        message=st.builds(
            UserMessage, uuid=TEXTS, content=st.builds(TextBlock, TEXTS).map(lambda b: (b,)), origin=ORIGINS
        ),
        run_id=TEXTS,
        priority=st.sampled_from(["now", "next", "later"]),
        scope=TEXTS,
    ),
    st.builds(BlockRecord, uuid=TEXTS, message_id=TEXTS, model=TEXTS, block=BLOCKS, requested_model=TEXTS),
    st.builds(
        ResponseEndRecord,
        uuid=TEXTS,
        message_id=TEXTS,
        model=TEXTS,
        stop_reason=st.none() | TEXTS,
        usage=USAGES,
        incomplete=st.booleans(),
        beside_block=st.just(False),
    ),
    st.builds(ToolStartRecord, uuid=TEXTS, call_id=TEXTS, name=TEXTS, idempotent=st.booleans()),
    st.builds(ResultRecord, uuid=TEXTS, block=RESULTS, name=TEXTS, details=JSON),
    st.builds(WithdrawRecord, uuid=TEXTS, message_id=TEXTS, reason=TEXTS),
    st.builds(SystemRecord, uuid=TEXTS, subtype=st.just("informational"), text=TEXTS, data=JSON),
    st.builds(RunStartRecord, uuid=TEXTS, run_id=TEXTS, model=TEXTS),
    st.builds(
        RunEndRecord, uuid=TEXTS, run_id=TEXTS, terminal_reason=TEXTS, errors=st.lists(TEXTS, max_size=2).map(tuple)
    ),
)


@pytest.mark.slow
@settings(max_examples=300)
@given(RECORDS)
def test_a_record_survives_its_line(record: Record) -> None:
    assert (record,) == round_trip(record)


@pytest.mark.slow
@given(RECORDS)
def test_a_record_is_one_line(record: Record) -> None:
    data = writer().line(record, NOW)
    assert data.endswith(b"\n")
    assert 1 == data.count(b"\n")


ODD = st.recursive(
    st.none()
    | st.text(max_size=5)
    | st.binary(max_size=3)
    | st.integers()
    | st.floats()
    | st.just(Path("/a"))
    | st.just(UserMessage(uuid="u", content=(TextBlock("\ud800"),)))
    | st.just(object()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.tuples(st.integers()), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(ODD)
def test_details_of_any_kind_are_recorded_and_stay_what_they_became(details: Any) -> None:
    record = ResultRecord(uuid="u", block=ToolResultBlock("t", "x"), name="T", details=details)
    (read,) = round_trip(record)
    assert isinstance(read, ResultRecord)
    assert (read,) == round_trip(read)


class Hostile:
    """Can't even be shown."""

    def __str__(self) -> str:
        raise KeyError("no")


def cycle() -> list[Any]:
    inner: list[Any] = []
    inner += [inner, inner]
    return inner


def deep() -> Any:
    value: Any = 1
    for _ in range(600):
        value = [value]
    return value


@pytest.mark.parametrize(
    "details",
    [Hostile(), [Hostile(), "\udc00"], cycle(), deep(), [10**5000], {1 << 80: {(): 1}}],
    ids=["unshowable", "unshowable and half", "cycle", "deep", "huge", "keys"],
)
def test_hostile_details_keep_no_record_from_being_written(details: Any) -> None:
    (read,) = round_trip(ResultRecord(uuid="u", block=ToolResultBlock("t", "x"), name="T", details=details))
    assert isinstance(read, ResultRecord)
    assert "x" == read.block.content


def test_half_surrogate_pairs_are_replaced_and_the_rest_kept() -> None:
    (read,) = round_trip(block_record(ToolUseBlock("t", "T", {"a\ud800": ["b\udfff", "\ud83d\ude00"]})))
    assert block_record(ToolUseBlock("t", "T", {"a\ufffd": ["b\ufffd", "\U0001f600"]})) == read


def test_a_field_named_like_the_mark_of_invalid_json_is_kept() -> None:
    record = block_record(ToolUseBlock("t", "T", {}, invalid_json="{", extra={"invalid_json": 1, "invalidJson": 2}))
    assert (record,) == round_trip(record)


# --- shapes ---------------------------------------------------------------------------------------


def test_a_block_line_has_the_shape_that_transcript_readers_know() -> None:
    expected = {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/w",
        "sessionId": "s",
        "version": "1.2.3",
        "schema": 1,
        "timestamp": "2026-03-04T05:06:07.089Z",
        "type": "assistant",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [{"type": "text", "text": "hi"}],
            "stop_reason": None,
            "stop_sequence": None,
        },
        "uuid": "u",
    }
    assert expected == line(block_record(TextBlock("hi")))


def test_a_result_line_has_the_shape_that_transcript_readers_know() -> None:
    value = line(ResultRecord(uuid="u", block=ToolResultBlock("t", "no", True), name="Read", details={"n": 1}))
    assert "user" == value["type"]
    content = [{"type": "tool_result", "tool_use_id": "t", "content": "no", "is_error": True}]
    assert {"role": "user", "content": content} == value["message"]
    assert {"n": 1} == value["toolUseResult"]


def test_usage_is_in_one_line_of_a_response() -> None:
    end = ResponseEndRecord(
        uuid="e", message_id="m", model="claude", stop_reason="end_turn", usage=Usage(output_tokens=3, reported=True)
    )
    assert "usage" not in line(block_record(TextBlock("hi")))["message"]
    assert 3 == line(end)["message"]["usage"]["output_tokens"]
    assert "usage" not in line(attrs.evolve(end, usage=Usage()))["message"]


def test_hidden_messages_are_marked_as_meta() -> None:
    message = UserMessage(uuid="u", content=(TextBlock("x"),), origin="hook", hidden=True)
    assert line(UserRecord(message=message))["isMeta"] is True


def test_each_line_names_the_one_before_as_its_parent() -> None:
    chain = writer(parent="p")
    records = [block_record(TextBlock("x"), uuid=uuid) for uuid in ("a", "b", "c")]
    lines = [orjson.loads(chain.line(record, NOW)) for record in records]
    assert [("p", "a"), ("a", "b"), ("b", "c")] == [(each["parentUuid"], each["uuid"]) for each in lines]
    assert "c" == chain.parent


# --- other programs' lines ------------------------------------------------------------------------


def foreign(type: str, content: object, **fields: Any) -> dict[str, Any]:
    return {"type": type, "uuid": "u", "message": {"id": "m", "model": "claude", "content": content}, **fields}


def test_an_assistant_line_with_several_blocks_keeps_all() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "t", "name": "T", "input": {}}]
    expected = (block_record(TextBlock("a")), block_record(ToolUseBlock("t", "T", {})))
    assert expected == records_from_line(foreign("assistant", content))


def test_usage_and_stop_reason_beside_a_block_are_read() -> None:
    value = foreign("assistant", [{"type": "text", "text": "a"}])
    value["message"] |= {"stop_reason": "end_turn", "usage": {"output_tokens": 7, "input_tokens": None}}
    end = ResponseEndRecord(
        uuid="u",
        message_id="m",
        model="claude",
        stop_reason="end_turn",
        usage=Usage(output_tokens=7, reported=True),
        beside_block=True,
    )
    assert (block_record(TextBlock("a")), end) == records_from_line(value)


def test_content_may_be_a_plain_text_and_an_id_may_lack() -> None:
    value = foreign("assistant", "hello")
    del value["message"]["id"]
    assert (block_record(TextBlock("hello"), message_id="u"),) == records_from_line(value)
    prompt = UserRecord(message=UserMessage(uuid="u", content=(TextBlock("hello"),)))
    assert (prompt,) == records_from_line(foreign("user", "hello"))


def test_results_without_a_tools_name_are_results() -> None:
    content = [{"type": "tool_result", "tool_use_id": id, "content": "ok"} for id in "ab"]
    expected = tuple(ResultRecord(uuid="u", block=ToolResultBlock(id, "ok"), name="") for id in "ab")
    assert expected == records_from_line(foreign("user", content))


@pytest.mark.parametrize(
    "value",
    [
        {"type": "summary", "summary": "x", "leafUuid": "y"},
        {"type": "file-history-snapshot", "uuid": "u"},
        {"uuid": "u"},
        {},
        foreign("assistant", "x", isSidechain=True),
        foreign("assistant", "x", isApiErrorMessage=True),
    ],
)
def test_what_is_no_part_of_the_conversation_is_passed_over(value: Mapping[str, Any]) -> None:
    assert () == records_from_line(value)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "user", "uuid": "u"},
        {"type": "assistant", "uuid": "u", "message": "x"},
        {"type": "system", "uuid": "u"},
        {"type": "user", "message": {"content": "x"}},
        foreign("user", [1]),
        foreign("assistant", {"type": "text"}),
    ],
)
def test_a_line_that_claims_to_be_a_record_and_is_none_is_refused(value: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"line|message"):
        records_from_line(value)


def test_an_unknown_origin_counts_as_a_prompt() -> None:
    (record,) = records_from_line(foreign("user", "x", origin={"kind": "human"}))
    assert isinstance(record, UserRecord)
    assert "prompt" == record.message.origin


KEYS = [
    "type",
    "uuid",
    "message",
    "content",
    "id",
    "model",
    "usage",
    "stop_reason",
    "subtype",
    "data",
    "runId",
    "errors",
]
WORDS = ["user", "assistant", "system", "run_ended", "tool_started", "text", "tool_result", "m"]
WILD = st.recursive(
    st.none() | st.integers() | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(KEYS), WILD, max_size=4), st.sampled_from(["user", "assistant", "system"]))
def test_a_wild_line_is_read_or_refused(value: dict[str, Any], type: str) -> None:
    try:
        records = records_from_line({"uuid": "u", **value, "type": type})
    except ValueError:
        return
    for record in records:
        round_trip(record)
