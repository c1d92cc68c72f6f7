"""Full compaction: whether, the request for the summary, its answer, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from atrio.runtime.context import (
    CompactHistory,
    ContextLimits,
    ContextPlan,
    NewHistory,
    RestoredFile,
    RestoredSkill,
    Summary,
    SummaryRejected,
    Verdict,
    autocompact,
    is_blocked,
    new_history,
    pinned_tokens,
    read_summary,
    shortened,
    strip_media,
    summary_request,
)
from atrio.runtime.context.pins import current_task_list
from atrio.runtime.context.restore import head_of
from atrio.runtime.history import check
from atrio.runtime.messages import (
    AssistantMessage,
    Block,
    ImageBlock,
    Message,
    RawBlock,
    RedactedThinkingBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    text_of,
)
from atrio.runtime.tokens import Estimates, estimate_text
from atrio.runtime.window import ModelWindow, WindowSettings, levels_of

LEVELS = levels_of(ModelWindow(tokens=200_000))
LIMITS = ContextLimits(results_dir="/s")
BOUNDARY = "00000000-0000-0000-0000-000000000001"
IMAGE = ImageBlock({"type": "url", "url": "https://x/y.png"})


def prompt(uuid: str, text: str = "Do it.", *more: Block, pinned: bool = False) -> UserMessage:
    return UserMessage(uuid=uuid, content=(TextBlock(text), *more), pinned=pinned)


def turn(number: int, result: str, tool: str = "Bash", **input: object) -> list[Message]:
    thinking = ThinkingBlock(f"Step {number}.", "c2ln")
    call = ToolUseBlock(f"c{number}", tool, input)
    return [
        AssistantMessage(uuid=f"a{number}", message_id=f"m{number}", model="m", content=(thinking, call)),
        UserMessage(uuid=f"r{number}", content=(ToolResultBlock(call.id, result),), origin="tool_results"),
    ]


# --- the decision -----------------------------------------------------------------------------------


def verdict(tokens: int = 170_000, history: CompactHistory | None = None, turn: int = 50, **more: Any) -> Verdict:
    return autocompact(tokens, LEVELS, history or CompactHistory(), turn=turn, **more).verdict


def test_compaction_begins_at_the_threshold_by_measured_size_alone() -> None:
    assert Verdict.NOT_NEEDED is verdict(166_999)
    assert Verdict.COMPACT is verdict(167_000)


def test_a_context_that_is_full_again_is_compacted_again() -> None:
    """B062: what the last message is says nothing."""
    assert Verdict.COMPACT is verdict(190_000, CompactHistory(last_turn=49))


def test_three_failures_in_a_row_are_enough() -> None:
    history = CompactHistory().failed().failed()
    assert Verdict.COMPACT is verdict(history=history)
    assert Verdict.BROKEN is verdict(history=history.failed())
    assert Verdict.COMPACT is verdict(history=history.failed().succeeded(40, manual=True))


def test_compactions_that_follow_each_other_at_once_end() -> None:
    history = CompactHistory()
    for at in (10, 11, 12, 13):
        assert Verdict.COMPACT is verdict(history=history, turn=at)
        history = history.succeeded(at)
    assert Verdict.RAPID_REFILL is verdict(history=history, turn=14)
    assert Verdict.COMPACT is verdict(history=history, turn=40)
    assert 0 == history.succeeded(40).rapid


def test_no_compaction_is_tried_where_it_cannot_make_room() -> None:
    """B055: overhead alone exceeded the trigger, and every step compacted."""
    small = levels_of(ModelWindow(tokens=8_000, max_output_tokens=2_000))
    found = autocompact(7_300, small, CompactHistory(), turn=1, fixed_tokens=7_000)
    assert Verdict.NO_ROOM is found.verdict
    assert found.note is not None
    assert "7,000 of 6,000" in found.note


@pytest.mark.parametrize("settings", [WindowSettings(compact=False), WindowSettings(auto_compact=False)])
def test_the_user_can_switch_it_off(settings: WindowSettings) -> None:
    assert Verdict.OFF is verdict(settings=settings)


@pytest.mark.parametrize("source", ["compact", "session_memory", "collapse"])
def test_requests_that_make_room_never_wait_for_room(source: str) -> None:
    assert Verdict.OFF is verdict(source=source)
    assert not is_blocked(190_000, LEVELS, Verdict.OFF, source=source)


def test_with_collapses_in_use_a_full_compaction_waits_until_they_no_longer_suffice() -> None:
    assert Verdict.NOT_NEEDED is verdict(168_000, collapsing=True)
    assert Verdict.COMPACT is verdict(172_000, collapsing=True)


def test_at_the_hard_limit_nothing_is_sent_if_no_compaction_comes() -> None:
    for found in (Verdict.OFF, Verdict.BROKEN, Verdict.RAPID_REFILL, Verdict.NO_ROOM):
        assert is_blocked(177_000, LEVELS, found)
        assert not is_blocked(176_999, LEVELS, found)
        assert not is_blocked(177_000, LEVELS, found, just_compacted=True)
        assert not is_blocked(177_000, LEVELS, found, room_can_be_made=True)
    assert not is_blocked(190_000, LEVELS, Verdict.COMPACT)


# --- the request ------------------------------------------------------------------------------------


def test_the_request_holds_the_conversation_without_thinking_and_pictures_and_asks_at_its_end() -> None:
    only_thinking = AssistantMessage(uuid="t", message_id="t", model="m", content=(RedactedThinkingBlock("x"),))
    mark = SystemMessage(uuid="s", subtype="compact_boundary")
    messages = [mark, prompt("u", "Look.", IMAGE), *turn(1, "out"), only_thinking]
    request = summary_request(messages, run_id=BOUNDARY, max_tokens=20_000, instructions=["Mind the tests.", " "])
    assert ["u", "a1", "r1"] == [message.uuid for message in request.messages[:-1]]
    assert [] == [b for m in request.messages for b in content_of(m) if isinstance(b, ImageBlock | ThinkingBlock)]
    asked = text_of(content_of(request.messages[-1]))
    assert all(f"\n{number}. " in asked for number in range(1, 10))
    assert asked.endswith("Mind the tests.")
    assert estimate_text(asked) + estimate_text(request.system) < 3_000


def content_of(message: Message) -> tuple[Block, ...]:
    return () if isinstance(message, SystemMessage) else message.content


def test_media_give_way_to_a_text_and_the_rest_is_the_same() -> None:
    messages = [prompt("u", "Look.", IMAGE), *turn(1, "out")]
    stripped = strip_media(messages)
    assert (TextBlock("Look."), TextBlock("[image or document]")) == content_of(stripped[0])
    assert messages[1:] == list(stripped[1:])


def test_a_request_that_is_too_long_loses_its_oldest_rounds() -> None:
    messages = [prompt("u"), *(m for n in range(10) for m in turn(n, "word " * 500))]
    estimates = Estimates()
    request = summary_request(messages, run_id=BOUNDARY, max_tokens=1_000)
    fifth = shortened(request, too_many_tokens=None, estimates=estimates)
    assert fifth is not None
    assert ["a1", "a2"] == [m.uuid for m in fifth.messages if isinstance(m, AssistantMessage)][:2]
    assert [] == check(fifth.messages)
    gap = shortened(fifth, too_many_tokens=1_200, estimates=estimates)
    assert gap is not None
    assert estimates.total(fifth.messages) - estimates.total(gap.messages) >= 1_200
    assert [] == check(gap.messages)


def test_the_last_round_is_clipped_and_then_nothing_is_left_to_do() -> None:
    messages = [prompt("u"), *turn(1, "word " * 50_000)]
    estimates = Estimates()
    request = summary_request(messages, run_id=BOUNDARY, max_tokens=1_000)
    steps = []
    following = shortened(request, too_many_tokens=10**9, estimates=estimates)
    while following is not None:
        steps.append(estimates.total(following.messages))
        following = shortened(following, too_many_tokens=10**9, estimates=estimates)
    assert sorted(steps, reverse=True) == steps
    assert steps[-1] < 3_000
    assert len(steps) <= 3


# --- the answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("<analysis>notes</analysis>\n<summary>\n1. The goal\n</summary>", "1. The goal"),
        ("<analysis>say <summary>x</summary>?</analysis><summary>1. The goal</summary>", "1. The goal"),
        ("1. The goal", "1. The goal"),
        ("<analysis>notes</analysis>1. The goal", "1. The goal"),
        ("<summary>Use <analysis>a</analysis> tags.</summary>", "Use <analysis>a</analysis> tags."),
    ],
)
def test_the_summary_is_what_is_left_without_the_notes(text: str, summary: str) -> None:
    assert Summary(summary) == read_summary((TextBlock(text),), "end_turn")


REJECTED: dict[str, tuple[Sequence[Block], str]] = {
    "empty": ((TextBlock(" \n"),), "end_turn"),
    "thinking_only": ((ThinkingBlock("Hm.", "s"),), "end_turn"),
    "cut": ((TextBlock("<analysis>notes</analysis><summary>1. The"),), "max_tokens"),
    "refused": ((TextBlock("I can't."),), "refusal"),
    "tool_calls": ((TextBlock("1. The goal"), ToolUseBlock("c", "Read", {})), "tool_use"),
    "too_long": ((TextBlock("word " * 500),), "end_turn"),
}


@pytest.mark.parametrize("reason", REJECTED)
def test_what_is_no_summary_is_rejected_with_its_reason(reason: str) -> None:
    content, stop_reason = REJECTED[reason]
    answer = read_summary(content, stop_reason, max_tokens=100)
    assert isinstance(answer, SummaryRejected)
    assert reason == answer.reason
    assert answer.message != ""


def test_notes_alone_are_no_summary_and_a_complete_one_may_touch_the_limit() -> None:
    answer = read_summary((TextBlock("<analysis>only notes"),), "end_turn")
    assert isinstance(answer, SummaryRejected)
    assert "empty" == answer.reason
    assert Summary("1.") == read_summary((TextBlock("<summary>1.</summary>"),), "max_tokens")
    server = RawBlock({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})
    assert isinstance(read_summary((server, TextBlock("x")), "end_turn"), SummaryRejected)


# --- the new history --------------------------------------------------------------------------------


def compact(messages: Sequence[Message], **more: Any) -> NewHistory | SummaryRejected:
    given: dict[str, Any] = {
        "boundary_uuid": BOUNDARY,
        "trigger": "manual",
        "pre_tokens": 123,
        "plan": ContextPlan(),
        "shown": messages,
        "limits": LIMITS,
        "levels": LEVELS,
        "estimates": Estimates(),
        **more,
    }
    return new_history(messages, Summary("1. All was well."), **given)


LONG = "many words of output " * 12_000


def session() -> list[Message]:
    return [
        prompt("u", "The first request."),
        *turn(1, "ok", tool="TodoWrite", todos=["a", "b"]),
        prompt("p", "Never touch main.", pinned=True),
        *turn(2, LONG),
        prompt("v", "The last thing said."),
        *turn(3, LONG),
        *turn(4, "short", tool="Read", file_path="/seen"),
    ]


def test_a_new_history_has_boundary_summary_what_is_pinned_what_is_restored_and_the_tail() -> None:
    messages = session()
    built = compact(
        messages,
        files=[RestoredFile(path="/seen", text="s"), RestoredFile(path="/other", text="text of other")],
        skills=[RestoredSkill(name="review", text="How to review.")],
    )
    assert isinstance(built, NewHistory)
    boundary, summary, *rest = built.messages
    assert isinstance(boundary, SystemMessage)
    assert {"trigger": "manual", "preTokens": 123}.items() <= boundary.data.items()
    assert isinstance(summary, UserMessage)
    assert summary.hidden
    assert text_of(summary.content).endswith("1. All was well.")
    assert ["u", "p", "v"] == [m.uuid for m in rest[:3]]
    assert [messages[0], messages[3], messages[6]] == rest[:3]
    texts = [text_of(content_of(message)) for message in rest[3:6]]
    assert 'The current task list:\n{"todos":["a","b"]}' == texts[0]
    assert "How to review." in texts[1]
    assert "text of other" in texts[2]
    assert ["a4", "r4"] == [m.uuid for m in rest[6:]]
    assert built.written == (boundary, summary, *rest[3:6])
    assert [] == check(built.messages)
    assert 'The current task list:\n{"todos":["a","b"]}' in [text_of(content_of(m)) for m in built.messages]
    assert '{"todos":["a","b"]}' == current_task_list(built.messages, LIMITS.task_list_tools)


def test_a_second_compaction_keeps_the_same_things() -> None:
    first = compact(session())
    assert isinstance(first, NewHistory)
    later = [*first.messages, *turn(5, LONG), *turn(6, LONG)]
    second = compact(later, boundary_uuid="00000000-0000-0000-0000-000000000002", shown=later)
    assert isinstance(second, NewHistory)
    kept = [m.uuid for m in second.messages if m.uuid in ("u", "p", "v")]
    assert ["u", "p", "v"] == kept
    assert '{"todos":["a","b"]}' == current_task_list(second.messages, LIMITS.task_list_tools)
    assert 1 == sum(text_of(content_of(m)).startswith("The current task list") for m in second.messages)
    assert 1 == sum("All was well" in text_of(content_of(m)) for m in second.messages)


def test_a_pinned_result_keeps_its_call() -> None:
    messages = [prompt("u"), *turn(1, "the secret is 42"), *turn(2, LONG), *turn(3, LONG)]
    pinned = messages[2]
    assert isinstance(pinned, UserMessage)
    messages[2] = attrs.evolve(pinned, pinned=True)
    built = compact(messages)
    assert isinstance(built, NewHistory)
    assert messages[1] in built.messages
    assert messages[2] in built.messages
    assert [] == check(built.messages)


def test_the_task_list_of_the_caller_wins() -> None:
    built = compact(session(), task_list="- [ ] a")
    assert isinstance(built, NewHistory)
    assert "- [ ] a" == current_task_list(built.messages, LIMITS.task_list_tools)


def test_restored_things_keep_to_their_limits_and_to_the_room_there_is() -> None:
    files = [RestoredFile(path=f"/f{n}", text=f"line {n} of it\n" * 9_000) for n in range(9)]
    skills = [RestoredSkill(name=f"s{n}", text="do this and that\n" * 9_000) for n in range(9)]
    messages = [*session(), *turn(8, LONG), *turn(9, LONG)]
    built = compact(messages, files=files, skills=skills)
    assert isinstance(built, NewHistory)
    sizes = [estimate_text(text_of(content_of(m))) for m in built.written[3:]]
    assert 5 + 5 == len(sizes)
    assert max(sizes) <= 5_000
    small = levels_of(ModelWindow(tokens=30_000))
    tight = compact(messages, files=files, skills=skills, levels=small)
    assert isinstance(tight, NewHistory)
    assert tight.tokens < small.auto


def test_a_summary_that_saves_nothing_is_refused() -> None:
    built = compact([prompt("u"), *turn(1, "ok")])
    assert isinstance(built, SummaryRejected)
    assert "no_gain" == built.reason


def test_the_pinned_part_of_a_history_is_known_before() -> None:
    messages = session()
    estimates = Estimates()
    assert sum(map(estimates.of, (messages[0], messages[3], messages[6]))) == pinned_tokens(messages, estimates)


def test_a_head_is_cut_at_a_line_and_says_so() -> None:
    text = "a line of text\n" * 2_000
    head = head_of(text, 500)
    assert estimate_text(head) <= 500
    assert head.splitlines()[-2] == "a line of text"
    assert "left out" in head
    assert text == head_of(text, 10**6)
