"""What is sent of a history, whatever is in it; and what `check` finds."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atrio.actors.testing import violations_of
from atrio.runtime.history import (
    BEGINNING,
    EMPTY_TURN,
    LOST_RESULT,
    MAX_MEDIA,
    OMITTED_MEDIA,
    check,
    repair_pairs,
    wire_messages,
)
from atrio.runtime.messages import (
    AssistantMessage,
    Block,
    DocumentBlock,
    ImageBlock,
    JsonObject,
    Message,
    RawBlock,
    RedactedThinkingBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    block_from_wire,
)
from atrio.runtime.sendable import LOST_MEDIA, NO_OUTPUT

MODEL = "m-1"
NUMBERS = itertools.count()
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


def user(*content: Block | str, uuid: str = "") -> UserMessage:
    return UserMessage(uuid=uuid or f"u{next(NUMBERS)}", content=blocks(content))


def assistant(*content: Block | str, model: str = MODEL, requested: str = "", error: str | None = None) -> Message:
    return AssistantMessage(
        uuid=f"a{next(NUMBERS)}",
        message_id="msg",
        model=model,
        content=blocks(content),
        requested_model=requested,
        api_error=error,
    )


def blocks(content: Sequence[Block | str]) -> tuple[Block, ...]:
    return tuple(TextBlock(part) if isinstance(part, str) else part for part in content)


def call(id: str, name: str = "Read") -> ToolUseBlock:
    return ToolUseBlock(id, name, {})


def result(id: str, content: str = "ok") -> ToolResultBlock:
    return ToolResultBlock(id, content)


def sent(*messages: Message, model: str = MODEL) -> list[tuple[str, list[JsonObject]]]:
    wire = wire_messages(messages, model=model)
    assert [] == problems_of(wire)
    return [(message["role"], message["content"]) for message in wire]


def problems_of(wire: list[JsonObject]) -> list[str]:
    return violations_of({"model": "m", "max_tokens": 1, "messages": wire})


def text(value: str) -> JsonObject:
    return {"type": "text", "text": value}


def used(id: str, name: str = "Read") -> JsonObject:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def answered(id: str, content: str = "ok") -> JsonObject:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def lost(id: str) -> JsonObject:
    return {**answered(id, LOST_RESULT), "is_error": True}


# --- pairs --------------------------------------------------------------------------------------------------------


def test_a_valid_history_is_sent_as_it_is() -> None:
    assert [
        ("user", [text("go")]),
        ("assistant", [text("I look"), used("a"), used("b")]),
        ("user", [answered("a"), answered("b"), text("steer")]),
        ("assistant", [text("done")]),
    ] == sent(
        user("go"),
        assistant("I look", call("a"), call("b")),
        user(result("a"), result("b"), "steer"),
        assistant("done"),
    )


def test_calls_without_a_result_get_one_in_call_order() -> None:
    wire = sent(user("go"), assistant(call("a"), call("b"), call("c")), user(result("b"), "next"))

    assert ("user", [lost("a"), answered("b"), lost("c"), text("next")]) == wire[-1]


def test_calls_at_the_very_end_are_answered() -> None:
    assert ("user", [lost("a")]) == sent(user("go"), assistant(call("a")))[-1]


def test_results_without_a_call_are_dropped() -> None:
    assert [("user", [text("go")])] == sent(user(result("x"), "go"))
    assert ("user", [text(EMPTY_TURN)]) == sent(user("go"), assistant("hi"), user(result("x")))[-1]


def test_results_that_come_too_late_are_replaced() -> None:
    wire = sent(user("go"), assistant(call("a")), user("what?"), assistant("well"), user(result("a"), "next"))

    assert [("user", [lost("a"), text("what?")]), ("assistant", [text("well")]), ("user", [text("next")])] == wire[2:]


def test_results_go_first_once_and_in_call_order() -> None:
    wire = sent(
        user("go"), assistant(call("a"), call("b")), user("look", result("b"), result("a"), result("b", "again"))
    )

    assert ("user", [answered("a"), answered("b"), text("look")]) == wire[-1]


def test_results_spread_over_user_messages_are_found() -> None:
    wire = sent(user("go"), assistant(call("a"), call("b")), user(result("a")), user("x", result("b")))

    assert ("user", [answered("a"), answered("b"), text("x")]) == wire[-1]


def test_messages_of_one_response_become_one_turn() -> None:
    wire = sent(user("go"), assistant("a"), assistant(call("x")), assistant(call("y")), user(result("x"), result("y")))

    assert ("assistant", [text("a"), used("x"), used("y")]) == wire[1]


def test_an_id_that_comes_again_is_sent_under_another() -> None:
    wire = sent(user("go"), assistant(call("a")), user(result("a", "1")), assistant(call("a")), user(result("a", "2")))

    assert [used("a")] == wire[1][1]
    assert [("assistant", [used("a_2")]), ("user", [answered("a_2", "2")])] == wire[3:]


def test_the_same_call_twice_in_a_turn_is_sent_once() -> None:
    wire = sent(user("go"), assistant(call("a"), call("a")), user(result("a", "1"), result("a", "2")))

    assert [("assistant", [used("a")]), ("user", [answered("a", "1")])] == wire[1:]


def test_ids_and_names_that_the_api_refuses_are_sent_as_others() -> None:
    wire = sent(
        user("go"),
        assistant(call("a.b", "my tool!"), call("a:b", ""), call("", "x" * 300)),
        user(result("a:b", "2"), result("a.b", "1"), result("", "3")),
    )

    assert [used("a_b", "my_tool_"), used("a_b_2", "unnamed_tool"), used("call", "x" * 200)] == wire[1][1]
    assert [answered("a_b", "1"), answered("a_b_2", "2"), answered("call", "3")] == wire[2][1]


# --- turns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("messages", [[], [SystemMessage(uuid="s", subtype="x")], [assistant("x", error="boom")]])
def test_a_history_without_anything_to_send_begins_all_the_same(messages: list[Message]) -> None:
    assert [("user", [text(BEGINNING)])] == sent(*messages)


def test_a_history_that_begins_with_the_model_gets_a_beginning() -> None:
    assert [("user", [text(BEGINNING)]), ("assistant", [text("hi")])] == sent(assistant("hi"))


def test_our_own_notes_and_marks_are_not_sent() -> None:
    mark = SystemMessage(uuid="s", subtype="compact_boundary", text="x")

    assert [("user", [text("a"), text("b")])] == sent(user("a"), mark, assistant("API error", error="x"), user("b"))


def test_empty_texts_are_left_out() -> None:
    wire = sent(user("", "a", " \n"), assistant("", call("x")), user(result("x")), assistant(" "), user("b"))

    assert [text("a")] == wire[0][1]
    assert [used("x")] == wire[1][1]
    assert [text(EMPTY_TURN)] == wire[3][1]


def test_white_space_at_the_very_end_of_the_model_is_cut() -> None:
    assert ("assistant", [text("so")]) == sent(user("a"), assistant("so \n"))[-1]
    assert ("assistant", [text("so \n")]) == sent(user("a"), assistant("so \n"), user("b"))[1]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (ToolResultBlock("a", "", is_error=True), {"content": NO_OUTPUT, "is_error": True}),
        (ToolResultBlock("a", (), is_error=True), {"content": NO_OUTPUT, "is_error": True}),
        (ToolResultBlock("a", (TextBlock(" "),), is_error=True), {"content": NO_OUTPUT, "is_error": True}),
        (ToolResultBlock("a", ""), {"content": ""}),
        (ToolResultBlock("a", (TextBlock(""), TextBlock("x"))), {"content": [text("x")]}),
        (ToolResultBlock("a", (ImageBlock({"type": "base64", "data": ""}),)), {"content": [text(LOST_MEDIA)]}),
        (ToolResultBlock("a", (RawBlock({"type": "tool_use"}), TextBlock("x"))), {"content": [text("x")]}),
    ],
    ids=str,
)
def test_results_hold_only_what_can_be_sent(block: ToolResultBlock, expected: JsonObject) -> None:
    wire = sent(user("go"), assistant(call("a")), user(block))

    assert [{"type": "tool_result", "tool_use_id": "a", **expected}] == wire[-1][1]


@pytest.mark.parametrize(
    "block",
    [
        call("x"),
        ThinkingBlock("t", "s"),
        RedactedThinkingBlock("d"),
        RawBlock({"type": "server_tool_use", "id": "x"}),
        RawBlock({"type": "tool_result", "tool_use_id": 5}),
        RawBlock({"type": "thinking", "thinking": "t"}),
        RawBlock({"type": None}),
        RawBlock({}),
    ],
    ids=str,
)
def test_what_a_user_can_not_say_is_left_out(block: Block) -> None:
    assert [("user", [text("a")])] == sent(user("a", block))


def test_media_that_can_not_be_sent_leave_a_note() -> None:
    bad: list[Block] = [
        ImageBlock({}),
        ImageBlock({"type": "base64", "media_type": "image/tiff", "data": "x"}),
        ImageBlock({"type": "url", "url": ""}),
        DocumentBlock({"type": "base64", "media_type": "application/pdf"}),
        RawBlock({"type": "image", "source": "x"}),
    ]

    assert [text(LOST_MEDIA)] * 5 == sent(user(*bad))[0][1]
    assert [text(LOST_MEDIA)] == sent(user("a"), assistant(ImageBlock(PNG)))[1][1]


def test_unknown_blocks_are_sent_untouched() -> None:
    raw = {"type": "hologram", "b": [{"text": ""}], "a": None}

    assert [raw] == sent(user("a"), assistant(RawBlock(copy.deepcopy(raw))), user("b"))[1][1]


# --- thinking -----------------------------------------------------------------------------------------------------

THINKING = ThinkingBlock("  let me\u2028 see\n", "EqQB/+=", extra={"new": 1})
REDACTED = RedactedThinkingBlock("EmwK==")


@pytest.mark.parametrize(("model", "requested"), [(MODEL, ""), ("m-1-20250101", MODEL), ("", "")])
def test_thinking_goes_back_byte_for_byte_to_the_model_that_wrote_it(model: str, requested: str) -> None:
    wire = sent(user("a"), assistant(THINKING, REDACTED, "b", model=model, requested=requested), user("c"))

    assert [
        {"type": "thinking", "thinking": "  let me\u2028 see\n", "signature": "EqQB/+=", "new": 1},
        {"type": "redacted_thinking", "data": "EmwK=="},
        text("b"),
    ] == wire[1][1]


def test_thinking_of_another_model_is_dropped_whole() -> None:
    messages = (user("a"), assistant(THINKING, REDACTED, "b"), user("c"))

    assert [text("b")] == sent(*messages, model="other")[1][1]
    assert [text(EMPTY_TURN)] == sent(user("a"), assistant(THINKING), user("c"), model="other")[1][1]


def test_thinking_without_a_signature_is_dropped() -> None:
    assert [text("b")] == sent(user("a"), assistant(ThinkingBlock("x", ""), "b"), user("c"))[1][1]


def test_a_turn_does_not_end_in_thinking() -> None:
    assert [text("b")] == sent(user("a"), assistant("b", THINKING, REDACTED), user("c"))[1][1]
    assert [text(EMPTY_TURN)] == sent(user("a"), assistant(THINKING), user("c"))[1][1]


# --- media --------------------------------------------------------------------------------------------------------


def media(count: int, start: int = 0) -> list[Block]:
    return [
        ImageBlock({"type": "url", "url": f"https://x/{n}"}) if n % 2 else DocumentBlock({"type": "url", "url": f"{n}"})
        for n in range(start, start + count)
    ]


def test_100_media_are_sent() -> None:
    assert all(block["type"] != "text" for block in sent(user(*media(MAX_MEDIA)))[0][1])


def test_the_oldest_media_make_room_wherever_they_are() -> None:
    inner = cast("tuple[ImageBlock, ...]", tuple(media(50, 100)))
    wire = sent(user(*media(2)), assistant(call("a")), user(ToolResultBlock("a", inner), *media(51, 200)))

    kept = [block["type"] for block in wire[2][1][0]["content"]]
    assert [text(OMITTED_MEDIA)] * 2 == wire[0][1]
    assert ["text", *["image", "document"] * 24, "image"] == kept
    assert OMITTED_MEDIA == wire[2][1][0]["content"][0]["text"]
    assert MAX_MEDIA == 49 + sum(block["type"] in ("image", "document") for block in wire[2][1])


def test_the_history_itself_keeps_its_media() -> None:
    messages = [user(*media(150))]
    before = copy.deepcopy(messages)
    sent(*messages)

    assert before == messages


# --- any history --------------------------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "c", "", "a b", "\u00e9"])
NAMES = st.sampled_from(["Read", "", "a b", "x" * 201, "\u00e9"])
TEXTS = st.sampled_from(["", " ", "a", "b \n", "\u2028", "x\ud83d"])
SOURCES: st.SearchStrategy[JsonObject] = st.sampled_from(
    [PNG, {}, {"type": "base64"}, {"type": "url", "url": "u"}, {"type": "file", "file_id": "f"}, {"type": 5}]
)
RAWS: st.SearchStrategy[JsonObject] = st.sampled_from(
    [
        {"type": "hologram", "x": 1},
        {"type": "server_tool_use", "id": "s", "name": "n", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "tool_use", "id": 1},
        {"type": "tool_result"},
        {"type": "text", "text": None},
        {"type": "thinking"},
        {"type": "image"},
        {"type": ""},
        {},
    ]
)
SIMPLE = st.one_of(
    st.builds(TextBlock, TEXTS),
    st.builds(ImageBlock, SOURCES),
    st.builds(DocumentBlock, SOURCES),
    st.builds(RawBlock, RAWS),
)
BLOCKS: st.SearchStrategy[Block] = st.one_of(
    SIMPLE,
    st.builds(ToolUseBlock, IDS, NAMES, st.just({})),
    st.builds(ToolResultBlock, IDS, st.one_of(TEXTS, st.lists(SIMPLE, max_size=2).map(tuple)), st.booleans()),
    st.builds(ThinkingBlock, TEXTS, st.sampled_from(["", "s"])),
    st.builds(RedactedThinkingBlock, st.sampled_from(["", "d"])),
)
CONTENT = st.lists(BLOCKS, max_size=5).map(tuple)
UUIDS = st.uuids().map(str)
MESSAGES: st.SearchStrategy[list[Message]] = st.lists(
    st.one_of(
        st.builds(UserMessage, uuid=UUIDS, content=CONTENT),
        st.builds(
            AssistantMessage,
            uuid=UUIDS,
            message_id=st.just("m"),
            model=st.sampled_from([MODEL, "other", ""]),
            content=CONTENT,
            api_error=st.sampled_from([None, None, "x"]),
        ),
        st.builds(SystemMessage, uuid=UUIDS, subtype=st.just("x")),
    ),
    max_size=7,
)


def read_back(wire: Sequence[JsonObject]) -> list[Message]:
    """The messages that a wire history would be if it came from a journal."""
    messages: list[Message] = []
    for number, message in enumerate(wire):
        content = tuple(block_from_wire(block) for block in message["content"])
        if message["role"] == "user":
            messages.append(UserMessage(uuid=f"{number}", content=content))
        else:
            messages.append(AssistantMessage(uuid=f"{number}", message_id="m", model=MODEL, content=content))
    return messages


@pytest.mark.slow
@settings(max_examples=300)
@given(MESSAGES)
def test_whatever_the_history_is_the_api_takes_it(messages: list[Message]) -> None:
    wire = wire_messages(messages, model=MODEL)

    assert [] == problems_of(wire)
    assert [] == check(read_back(wire))
    assert wire == wire_messages(read_back(wire), model=MODEL)


@pytest.mark.slow
@given(MESSAGES, MESSAGES)
def test_what_was_sent_is_the_beginning_of_what_is_sent_next(messages: list[Message], more: list[Message]) -> None:
    """Up to the last turn, which later messages may still join; or the one before, where made-up results are last."""
    before = wire_messages(messages, model=MODEL)
    after = wire_messages([*messages, *more], model=MODEL)

    assert before[:-2] == after[: max(0, len(before) - 2)]


@pytest.mark.slow
@given(MESSAGES)
def test_repaired_pairs_hold_and_stay(messages: list[Message]) -> None:
    repaired = repair_pairs(messages)

    assert repaired == repair_pairs(repaired)
    wrong = [problem for problem in check(repaired) if "result" in problem and "holds a tool_result" not in problem]
    assert [] == wrong


def test_a_valid_history_is_repaired_to_itself() -> None:
    messages = (user("go"), assistant(call("a")), user(result("a"), "x"), assistant("b"))

    assert messages == repair_pairs(messages)
    assert all(before is after for before, after in zip(messages, repair_pairs(messages), strict=True))


def test_the_repair_answers_calls_before_whatever_follows() -> None:
    first, calls = user("go"), assistant("x", call("a"), call("b"))
    repaired = repair_pairs((first, calls, assistant("next", call("c"))))

    assert [] == check(repaired)
    answers = repaired[2]
    assert isinstance(answers, UserMessage)
    assert ("tool_results", f"{calls.uuid}-answers") == (answers.origin, answers.uuid)
    assert ["a", "b"] == [block.tool_use_id for block in answers.content if isinstance(block, ToolResultBlock)]


# --- check --------------------------------------------------------------------------------------------------------


def twice(message: UserMessage) -> list[Message]:
    return [message, message]


@pytest.mark.parametrize(
    ("messages", "problems"),
    [
        ([user("a"), assistant(call("x")), user(result("x"), "b")], []),
        ([SystemMessage(uuid="s", subtype="x"), user("a"), assistant("e", error="x"), user("b")], []),
        ([assistant("a")], ["message 0: a history begins with a user message"]),
        ([user()], ["message 0: it has no content"]),
        (twice(user("a", uuid="u")), ["message 1: uuid u is used twice"]),
        ([user("a"), assistant(call("x"))], ["at the end: calls x have no result"]),
        ([user("a"), assistant(call("x")), user("b")], ["message 2: no result for x"]),
        ([user("a"), assistant(call("x")), assistant("b")], ["message 2: calls x before it have no result"]),
        ([user("a"), assistant("b"), user(result("x"))], ["message 2: a result for x, which is no open call"]),
        ([user("a"), assistant(call("x")), user(result("x"), result("x"))], ["message 2: two results for x"]),
        (
            [user("a"), assistant(call("x")), user("b", result("x"))],
            ["message 2: the result of x comes after other content"],
        ),
        (
            [user("a"), assistant(call("x")), user(result("x")), assistant(call("x")), user(result("x"))],
            ["message 3: call id x is used twice"],
        ),
        (
            [user("a"), assistant(call("x"), call("x")), user(result("x"))],
            ["message 1: call id x is used twice"],
        ),
        ([user(call("x"))], ["message 0: a user message holds a tool_use"]),
        ([user("a"), assistant(result("x"))], ["message 1: an assistant message holds a tool_result"]),
    ],
)
def test_check_names_the_place_and_the_fault(messages: list[Message], problems: list[str]) -> None:
    assert problems == check(messages)
