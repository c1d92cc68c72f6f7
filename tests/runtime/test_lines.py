"""Output lines: whole objects from events, and bytes that any reader can take."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.events import (
    ActivitySummary,
    AssistantBlock,
    Event,
    Heartbeat,
    Lagged,
    MessageWithdrawn,
    ModelChanged,
    Notice,
    PermissionDenied,
    PromptSuggested,
    RequestStarted,
    RetryScheduled,
    RunEnded,
    RunStarted,
    StallWarning,
    StreamEvent,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    ToolUseSummary,
    TurnEnded,
    UserMessageAdded,
    stamp,
)
from atrio.runtime.lines import LINE_LIMIT, EventLines, encode_line, result_line
from atrio.runtime.messages import ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock, Usage, UserMessage
from atrio.runtime.redact import Redactor
from atrio.runtime.result import Denial, ModelUsage, Result, TerminalReason
from atrio.runtime.state import derive_id

RUN = "6f1c7a52-6a52-4c5e-9a43-3a3f0b0f3f10"
SESSION = "0d6c2f6e-9b1c-4a08-8f4e-2f6f5b7f0c11"
NOTHING_SECRET = Redactor({})

PLAIN = EventLines(session_id=SESSION, run_id=RUN, version="1.0", api_key_source="none")
FULL = attrs.evolve(PLAIN, verbose=True, partial_messages=True)


def line_id(seq: int) -> str:
    return derive_id(RUN, "line", seq)


def stamped(event: Event, seq: int = 7) -> Event:
    stamp(event, seq)
    return event


def the_line(event: Event, lines: EventLines = PLAIN) -> dict[str, Any]:
    (line,) = lines.line_of(stamped(event))
    return line


def common(uuid: str | None = None) -> dict[str, Any]:
    return {"session_id": SESSION, "uuid": uuid or line_id(7)}


PROMPT = UserMessage(uuid="u-0", content=(TextBlock("go"),))


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            ActivitySummary(text="Reading a.py"),
            {"type": "system", "subtype": "activity_summary", "summary": "Reading a.py"},
        ),
        (
            ToolUseSummary(call_ids=("t1", "t2"), text="Found it"),
            {"type": "tool_use_summary", "summary": "Found it", "preceding_tool_use_ids": ["t1", "t2"]},
        ),
        (
            PromptSuggested(run_id=RUN, text="run the tests"),
            {"type": "prompt_suggestion", "suggestion": "run the tests"},
        ),
    ],
)
def test_summaries_are_told_to_whoever_asked_for_them(event: Event, line: dict[str, Any]) -> None:
    assert {**line, **common()} == the_line(event)


def test_a_run_opens_with_what_it_runs_with() -> None:
    event = RunStarted(
        run_id=RUN,
        session_id=SESSION,
        model="m",
        cwd="/work",
        tools=("Read", "Bash"),
        permission_mode="default",
        prompt=PROMPT,
    )

    assert {
        "type": "system",
        "subtype": "init",
        "cwd": "/work",
        "tools": ["Read", "Bash"],
        "mcp_servers": [],
        "model": "m",
        "permissionMode": "default",
        "sandbox": "",
        "slash_commands": [],
        "apiKeySource": "none",
        "atrio_version": "1.0",
        "output_style": "default",
        "agents": [],
        "skills": [],
        "plugins": [],
        **common(),
    } == the_line(event)


def test_an_assistant_line_holds_exactly_one_block() -> None:
    event = AssistantBlock(
        uuid="a-1",
        message_id="msg_1",
        model="m",
        index=1,
        block=ToolUseBlock("toolu_1", "Read", {"file_path": "a"}),
        usage=Usage(input_tokens=5, output_tokens=2, extra={"service_tier": "standard"}),
    )

    assert {
        "type": "assistant",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "a"}}],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 5,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 2,
                "service_tier": "standard",
            },
        },
        "parent_tool_use_id": None,
        **common("a-1"),
    } == the_line(event)


def test_a_tool_result_comes_with_its_details() -> None:
    event = ToolEnded(
        uuid="r-1",
        call_id="toolu_1",
        name="Read",
        result=ToolResultBlock("toolu_1", "no such file", is_error=True),
        duration=0.1,
        details={"path": "a"},
    )
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such file", "is_error": True}

    assert {
        "type": "user",
        "message": {"role": "user", "content": [block]},
        "parent_tool_use_id": None,
        "tool_use_result": {"path": "a"},
        **common("r-1"),
    } == the_line(event)


def test_messages_that_atrio_wrote_itself_are_synthetic() -> None:
    hidden = UserMessage(uuid="u-1", content=(TextBlock("go on"),), origin="recovery", hidden=True)

    assert {
        "type": "user",
        "message": {"role": "user", "content": [{"type": "text", "text": "go on"}]},
        "parent_tool_use_id": None,
        "isSynthetic": True,
        **common("u-1"),
    } == the_line(UserMessageAdded(message=hidden))
    assert "isSynthetic" not in the_line(UserMessageAdded(message=PROMPT))


def test_results_are_not_shown_twice() -> None:
    joined = UserMessage(uuid="u-2", content=(ToolResultBlock("toolu_1", "x"),), origin="tool_results")

    assert [] == PLAIN.line_of(UserMessageAdded(message=joined))


def test_the_stream_is_shown_only_on_demand() -> None:
    raw = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}
    event = TextDelta(raw, 0, "hi")

    assert [] == PLAIN.line_of(event)
    assert {"type": "stream_event", "event": raw, "parent_tool_use_id": None, **common()} == the_line(event, FULL)


@pytest.mark.parametrize(
    ("kind", "category"),
    [("overloaded", "overloaded"), ("unreachable", "unknown"), ("prompt_too_long", "invalid_request")],
)
def test_a_retry_names_its_cause_in_words_that_readers_know(kind: str, category: str) -> None:
    event = RetryScheduled(
        attempt=2, max_attempts=10, delay=1.25, until=5.0, status=529, kind=kind, message="Overloaded"
    )

    assert {
        "type": "system",
        "subtype": "api_retry",
        "attempt": 2,
        "max_retries": 10,
        "retry_delay_ms": 1250,
        "error_status": 529,
        "error": category,
        "error_kind": kind,
        "error_message": "Overloaded",
        **common(),
    } == the_line(event)


def test_denials_and_tombstones_are_system_lines() -> None:
    denied = PermissionDenied(call_id="toolu_1", name="Bash", input={"command": "rm x"}, reason="no rule")
    void = MessageWithdrawn(message_id="msg_1", uuids=("a-1",), reason="cut")

    assert {
        "type": "system",
        "subtype": "permission_denied",
        "tool_name": "Bash",
        "tool_use_id": "toolu_1",
        "tool_input": {"command": "rm x"},
        "message": "no rule",
        **common(),
    } == the_line(denied)
    assert {
        "type": "system",
        "subtype": "message_withdrawn",
        "message_id": "msg_1",
        "uuids": ["a-1"],
        "reason": "cut",
        **common(),
    } == the_line(void)


@pytest.mark.parametrize(
    ("event", "level", "content"),
    [
        (Notice(level="error", source="streamer", text="it failed"), "error", "streamer: it failed"),
        (Heartbeat(reason="the rate limit", until=None), "info", "still waiting for the rate limit"),
        (
            StallWarning(level="event", idle=45.0, limit=90.0),
            "warning",
            "the model has sent nothing for 45 s; the attempt is cut at 90 s",
        ),
        (ModelChanged(old="a", new="b", reason="overload"), "warning", "the model is now b instead of a: overload"),
        (Lagged(dropped=3), "warning", "3 stream events were left out: this output is read too slowly"),
    ],
)
def test_notices_are_informational_and_only_for_the_verbose(event: Event, level: str, content: str) -> None:
    assert [] == PLAIN.line_of(event)
    assert {
        "type": "system",
        "subtype": "informational",
        "level": level,
        "content": content,
        **common(),
    } == the_line(event, FULL)


@pytest.mark.parametrize(
    "event",
    [
        RequestStarted(turn=1, attempt=1, model="m"),
        ToolStarted(call_id="c", name="n", input={}),
        ToolProgress("c", "n", "half"),
        TurnEnded(turn=1, transition="next_turn"),
    ],
)
def test_what_other_lines_say_already_has_none_of_its_own(event: Event) -> None:
    assert [] == FULL.line_of(event)


# --- the result -----------------------------------------------------------------------------------

SUCCESS = Result(
    subtype="success",
    terminal_reason=TerminalReason.COMPLETED,
    session_id=SESSION,
    run_id=RUN,
    text="done",
    num_turns=2,
    duration=1.5,
    duration_api=1.25,
    time_to_first_token=0.5,
    stop_reason="end_turn",
    usage=Usage(input_tokens=10, output_tokens=4, reported=True),
    model_usage={
        "m": ModelUsage(
            usage=Usage(input_tokens=10, output_tokens=4, extra={"server_tool_use": {"web_search_requests": 2}}),
            cost_usd=0.25,
            context_window=200_000,
        )
    },
    cost_usd=0.25,
    permission_denials=(Denial(tool_name="Bash", tool_use_id="toolu_1", tool_input={"command": "x"}, reason="no"),),
)


def test_a_result_has_every_field_that_readers_know() -> None:
    expected = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "duration_ms": 1500,
        "duration_api_ms": 1250,
        "num_turns": 2,
        "result": "done",
        "stop_reason": "end_turn",
        "session_id": SESSION,
        "total_cost_usd": 0.25,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 4,
        },
        "modelUsage": {
            "m": {
                "inputTokens": 10,
                "outputTokens": 4,
                "cacheReadInputTokens": 0,
                "cacheCreationInputTokens": 0,
                "webSearchRequests": 2,
                "costUSD": 0.25,
                "contextWindow": 200_000,
                "maxOutputTokens": None,
            }
        },
        "permission_denials": [{"tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": {"command": "x"}}],
        "terminal_reason": "completed",
        "uuid": derive_id(RUN, "line", "result"),
        "ttft_ms": 500,
    }

    assert expected == result_line(SUCCESS)
    assert [expected] == PLAIN.line_of(RunEnded(result=SUCCESS))


def test_a_failure_has_errors_in_place_of_a_text() -> None:
    failed = attrs.evolve(
        SUCCESS,
        subtype="error_during_execution",
        terminal_reason=TerminalReason.API_ERROR,
        errors=("overloaded",),
        api_error_status=529,
        error_kind="overloaded",
        cost_usd=None,
    )
    line = result_line(failed)

    assert "result" not in line
    assert (True, ["overloaded"], 529, "overloaded", None) == (
        line["is_error"],
        line["errors"],
        line["api_error_status"],
        line["error_kind"],
        line["total_cost_usd"],
    )


# --- bytes ----------------------------------------------------------------------------------------


def test_half_surrogate_pairs_are_replaced() -> None:
    data = encode_line({"type": "x", "text": "a\ud83db", "list": ["\udcff"]}, NOTHING_SECRET)

    assert {"type": "x", "text": "a\N{REPLACEMENT CHARACTER}b", "list": ["\N{REPLACEMENT CHARACTER}"]} == json.loads(
        data.decode("utf-8", "strict")
    )


def test_secrets_are_taken_out() -> None:
    redactor = Redactor.for_environment({"ANTHROPIC_API_KEY": 'top"secret-value'})

    data = encode_line({"type": "x", "text": 'it is top"secret-value!'}, redactor)

    assert {"type": "x", "text": "it is [redacted:ANTHROPIC_API_KEY]!"} == json.loads(data)


def test_what_json_has_no_form_for_becomes_text() -> None:
    @attrs.frozen
    class Details:
        count: int
        kinds: frozenset[str]

    data = encode_line({"type": "x", "d": Details(2**70, frozenset({"a"})), "e": ValueError("no")}, NOTHING_SECRET)

    assert {"type": "x", "d": {"count": 2**70, "kinds": ["a"]}, "e": "no"} == json.loads(data)


def test_a_line_is_bounded_and_says_what_is_missing() -> None:
    image = ImageBlock({"type": "base64", "media_type": "image/png", "data": "A" * 6_000_000})
    event = ToolEnded(
        uuid="r-1",
        call_id="toolu_1",
        name="Read",
        result=ToolResultBlock("toolu_1", (image, TextBlock("b" * 10_000))),
        duration=0.1,
        details=["c"] * 300_000,
    )

    data = encode_line(the_line(event), NOTHING_SECRET)
    shown, text = json.loads(data)["message"]["content"][0]["content"]

    assert len(data) <= LINE_LIMIT
    assert {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "", "omitted_chars": 6_000_000},
    } == shown
    assert text["text"].endswith("... [5,904 more characters left out]")


def test_a_result_is_never_cut() -> None:
    long = attrs.evolve(SUCCESS, text="x" * (2 * LINE_LIMIT))

    assert long.text == json.loads(encode_line(result_line(long), NOTHING_SECRET))["result"]


@given(st.text(st.characters(codec=None)), st.text())
def test_a_line_is_one_line_for_every_reader_and_means_the_same(text: str, key: str) -> None:
    data = encode_line({"type": "x", "value": {key: text}}, NOTHING_SECRET)
    decoded = data.decode("utf-8", "strict")
    clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    assert 1 == len(decoded.splitlines())
    assert {"type": "x", "value": {key: clean}} == json.loads(decoded)


def test_stream_events_keep_their_raw_form() -> None:
    raw = {"type": "ping", "extra": [1, 2.5, None]}

    assert raw == the_line(StreamEvent(raw), FULL)["event"]
