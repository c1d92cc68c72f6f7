"""What each step does, in small histories."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from atrio.runtime.context import Collapse, ContextLimits, ContextPlan, Persist, context_management, project, report
from atrio.runtime.context.collapse import collapse
from atrio.runtime.context.microcompact import CLEARED, microcompact
from atrio.runtime.context.snip import snip
from atrio.runtime.context.step import Moment
from atrio.runtime.context.tool_budget import budget_results
from atrio.runtime.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UserMessage,
)
from atrio.runtime.tokens import Estimates
from atrio.runtime.window import Level, ModelWindow, levels_of

LIMITS = ContextLimits(results_dir="/s/tool-results", keep_rounds=1)
LEVELS = levels_of(ModelWindow(tokens=20_000))
FULL = Moment(tokens=9_990, levels=LEVELS)
COLD = Moment(levels=LEVELS, now=10_000.0, last_response_at=1_000.0)
IMAGE = ImageBlock({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="})


def prompt(uuid: str, text: str = "Do it.", *, pinned: bool = False) -> UserMessage:
    return UserMessage(uuid=uuid, content=(TextBlock(text),), pinned=pinned)


def turn(number: int, *results: str, tool: str = "Bash", error: bool = False, **input: object) -> list[Message]:
    """A response with a call for each result, and the results."""
    ids = [f"c{number}-{n}" for n in range(len(results))]
    return [
        AssistantMessage(
            uuid=f"a{number}",
            message_id=f"m{number}",
            model="m",
            content=tuple(ToolUseBlock(id, tool, input or {"n": id}) for id in ids),
        ),
        UserMessage(
            uuid=f"r{number}",
            content=tuple(ToolResultBlock(id, text, error) for id, text in zip(ids, results, strict=True)),
            origin="tool_results",
        ),
    ]


def results_of(messages: Sequence[Message]) -> dict[str, object]:
    return {
        block.tool_use_id: block.content
        for message in messages
        if isinstance(message, UserMessage)
        for block in message.content
        if isinstance(block, ToolResultBlock)
    }


def uuids(messages: Sequence[Message]) -> list[str]:
    return [message.uuid for message in messages]


# --- tool-result budget -----------------------------------------------------------------------------


def test_a_result_over_the_limit_is_to_be_written_and_its_beginning_stays() -> None:
    text = "line\n" * 12_000
    messages = [prompt("u"), *turn(1, text, "short")]
    result = budget_results(messages, ContextPlan(), LIMITS, moment=FULL, estimates=Estimates())
    assert (Persist(call_id="c1-0", path="/s/tool-results/c1-0.txt", text=text),) == result.persist
    shown = results_of(result.messages)
    assert "short" == shown["c1-1"]
    assert isinstance(replaced := shown["c1-0"], str)
    assert replaced == result.plan.persisted["c1-0"]
    assert "/s/tool-results/c1-0.txt" in replaced
    assert len(replaced) < 2_300


def test_the_largest_results_of_a_message_go_first_until_the_rest_fits() -> None:
    texts = ["x " * 22_000, "y " * 24_000, "z " * 23_000, "v " * 21_000, "w " * 20_000]
    messages = [prompt("u"), *turn(1, *texts)]
    result = budget_results(messages, ContextPlan(), LIMITS, moment=FULL, estimates=Estimates())
    assert ["c1-1"] == [item.call_id for item in result.persist]


def test_a_tool_without_a_limit_gives_way_only_where_nothing_else_can() -> None:
    reads = turn(1, *["x " * 45_000] * 2, tool="Read")
    alone = budget_results([prompt("u"), *reads], ContextPlan(), LIMITS, moment=FULL, estimates=Estimates())
    assert () == alone.persist
    many = turn(1, *["x " * 45_000] * 4, tool="Read")
    result = budget_results([prompt("u"), *many], ContextPlan(), LIMITS, moment=FULL, estimates=Estimates())
    assert 2 == len(result.persist)


def test_a_result_once_seen_whole_stays_whole() -> None:
    messages = [prompt("u"), *turn(1, "x " * 24_000)]
    estimates = Estimates()
    first = budget_results(messages, ContextPlan(), LIMITS, moment=FULL, estimates=estimates)
    stricter = attrs.evolve(LIMITS, result_chars=5_000)
    later = [*messages, *turn(2, "y " * 24_000)]
    second = budget_results(later, first.plan, stricter, moment=FULL, estimates=estimates)
    assert ["c2-0"] == list(second.plan.persisted)
    assert messages == list(second.messages[:3])


def test_pictures_beside_a_text_that_goes_stay() -> None:
    call, answer = turn(1, "-")
    assert isinstance(answer, UserMessage)
    block = ToolResultBlock("c1-0", (TextBlock("x " * 30_000), IMAGE))
    answer = attrs.evolve(answer, content=(block,))
    result = budget_results([prompt("u"), call, answer], ContextPlan(), LIMITS, moment=FULL, estimates=Estimates())
    shown = results_of(result.messages)["c1-0"]
    assert isinstance(shown, tuple)
    assert [TextBlock, ImageBlock] == [type(part) for part in shown]


def test_pinned_results_are_left_alone() -> None:
    call, answer = turn(1, "x " * 60_000)
    assert isinstance(answer, UserMessage)
    messages = [prompt("u"), call, attrs.evolve(answer, pinned=True)]
    assert () == budget_results(messages, ContextPlan(), LIMITS, moment=FULL, estimates=Estimates()).persist


# --- snip -------------------------------------------------------------------------------------------


def history_with_repeats() -> list[Message]:
    return [
        prompt("u"),
        *turn(1, "old " * 1_500, tool="Read", file_path="/a"),
        *turn(2, "no such file", error=True),
        *turn(3, "new " * 1_500, tool="Read", file_path="/a"),
        *turn(4, "ok"),
    ]


def test_calls_made_again_and_failed_ones_go_when_room_is_short() -> None:
    result = snip(history_with_repeats(), ContextPlan(), LIMITS, moment=FULL, estimates=Estimates())
    assert ["u", "a3", "r3", "a4", "r4"] == uuids(result.messages)
    assert {"a1", "r1", "a2", "r2"} == result.plan.snipped
    assert result.notes != ()


def test_nothing_goes_while_there_is_room_or_too_little_would_come_of_it() -> None:
    messages = history_with_repeats()
    calm = snip(messages, ContextPlan(), LIMITS, moment=FULL.less(8_000), estimates=Estimates())
    assert (messages, ContextPlan()) == (list(calm.messages), calm.plan)
    greedy = attrs.evolve(LIMITS, snip_min_share=0.9)
    assert messages == list(snip(messages, ContextPlan(), greedy, moment=FULL, estimates=Estimates()).messages)


def test_a_good_result_is_not_given_up_for_a_later_failure() -> None:
    messages = [
        prompt("u"),
        *turn(1, "good " * 1_500, tool="Read", file_path="/a"),
        *turn(2, "failed " * 1_000, tool="Read", error=True, file_path="/a"),
        *turn(3, "ok"),
    ]
    result = snip(messages, ContextPlan(), LIMITS, moment=FULL, estimates=Estimates())
    assert ["u", "a1", "r1", "a3", "r3"] == uuids(result.messages)


def test_what_a_user_wants_left_out_goes_unless_it_is_pinned_or_half_a_call() -> None:
    messages = [prompt("u"), prompt("p", pinned=True), *turn(1, "x"), *turn(2, "y"), prompt("v")]
    plan = ContextPlan().snip(["u", "p", "a1", "r1", "a2", "v"])
    result = snip(messages, plan, LIMITS, moment=Moment(), estimates=Estimates())
    assert ["u", "p", "a2", "r2", "v"] == uuids(result.messages)
    assert (frozenset({"a1", "r1"}), frozenset()) == (result.plan.snipped, result.plan.snip_requests)


# --- microcompact -----------------------------------------------------------------------------------


def test_after_a_long_pause_all_but_the_newest_results_are_cleared() -> None:
    messages = [prompt("u"), *(m for n in range(8) for m in turn(n, "some output\n" * 50))]
    result = microcompact(messages, ContextPlan(), LIMITS, moment=COLD, estimates=Estimates())
    shown = results_of(result.messages)
    assert [CLEARED] * 3 == list(shown.values())[:3]
    assert CLEARED not in list(shown.values())[3:]
    warm = attrs.evolve(COLD, last_response_at=9_000.0)
    assert () == microcompact(messages, ContextPlan(), LIMITS, moment=warm, estimates=Estimates()).notes
    kept = microcompact(messages, result.plan, LIMITS, moment=warm, estimates=Estimates())
    assert result.messages == kept.messages


def test_results_that_are_short_in_a_file_or_of_other_tools_are_not_cleared() -> None:
    limits = attrs.evolve(LIMITS, microcompact_keep=1)
    messages = [
        prompt("u"),
        *turn(1, "ok"),
        *turn(2, "preview " * 300),
        *turn(3, "x " * 500, tool="Task"),
        *turn(4, "y " * 500),
        *turn(5, "z"),
    ]
    plan = ContextPlan(persisted={"c2-0": "preview " * 300})
    result = microcompact(messages, plan, limits, moment=COLD, estimates=Estimates())
    assert {"c4-0"} == result.plan.cleared


def test_the_api_is_asked_to_clear_for_itself() -> None:
    edits = context_management(100_000, thinking=True)["edits"]
    assert ["clear_thinking_20251015", "clear_tool_uses_20250919"] == [edit["type"] for edit in edits]
    assert {"type": "input_tokens", "value": 60_000} == edits[1]["clear_at_least"]


# --- collapse ---------------------------------------------------------------------------------------


def test_staged_summaries_are_committed_oldest_first_until_it_is_enough() -> None:
    messages = [prompt("u"), *(m for n in range(4) for m in turn(n, f"{n} output " * 500))]
    plan = ContextPlan()
    for n in (0, 2):
        plan = plan.stage(Collapse(first_uuid=f"a{n}", last_uuid=f"r{n}", summary=f"Step {n} worked."))
    calm = collapse(messages, plan, LIMITS, moment=Moment(levels=LEVELS), estimates=Estimates())
    assert (messages, plan) == (list(calm.messages), calm.plan)
    moment = Moment(tokens=LEVELS.collapse, levels=LEVELS)
    result = collapse(messages, plan, LIMITS, moment=moment, estimates=Estimates())
    assert ["u", "a0-collapse", "a1", "r1", "a2", "r2", "a3", "r3"] == uuids(result.messages)
    assert (1, 1) == (len(result.plan.staged), len(result.plan.collapses))
    drained = collapse(messages, result.plan.drain(), LIMITS, moment=Moment(levels=LEVELS), estimates=Estimates())
    assert ["u", "a0-collapse", "a1", "r1", "a2-collapse", "a3", "r3"] == uuids(drained.messages)
    assert not drained.plan.draining


def test_what_is_pinned_stays_beside_the_summary_of_its_part() -> None:
    messages = [prompt("u"), *turn(0, "x " * 900), prompt("p", pinned=True), *turn(1, "y " * 900), prompt("v")]
    plan = ContextPlan().stage(Collapse(first_uuid="a0", last_uuid="r1", summary="Both done.")).drain()
    result = collapse(messages, plan, LIMITS, moment=Moment(levels=LEVELS), estimates=Estimates())
    assert ["u", "a0-collapse", "p", "v"] == uuids(result.messages)


def test_summaries_that_tear_a_call_save_nothing_or_have_lost_their_part_are_dropped() -> None:
    messages = [prompt("u"), *turn(0, "x " * 900), *turn(1, "ok"), prompt("v")]
    for first, last, text in [("a0", "a0", "s"), ("a1", "r1", "long " * 500), ("gone", "r1", "s"), ("r1", "a1", "s")]:
        plan = ContextPlan().stage(Collapse(first_uuid=first, last_uuid=last, summary=text)).drain()
        result = collapse(messages, plan, LIMITS, moment=Moment(levels=LEVELS), estimates=Estimates())
        assert messages == list(result.messages)
        assert (ContextPlan(), 1) == (result.plan, len(result.notes))


# --- together ---------------------------------------------------------------------------------------


def with_usage(message: Message, tokens: int) -> Message:
    assert isinstance(message, AssistantMessage)
    return attrs.evolve(message, usage=Usage(input_tokens=tokens, output_tokens=1, reported=True))


def test_what_a_step_frees_is_taken_off_what_the_server_reported() -> None:
    messages = history_with_repeats()
    messages[-2] = with_usage(messages[-2], 9_000)
    estimates = Estimates()
    view = project(messages, ContextPlan(), limits=LIMITS, levels=LEVELS, estimates=estimates)
    assert view.prefix_broken
    assert view.freed["snip"] == estimates.total(messages) - estimates.total(view.messages)
    assert 9_000 - view.freed["snip"] < view.tokens < 9_100 - view.freed["snip"] * 0.9
    again = project(messages, view.plan, limits=LIMITS, levels=LEVELS, estimates=estimates)
    assert (view.messages, False) == (again.messages, again.prefix_broken)


def test_a_large_new_result_counts_as_its_preview() -> None:
    messages = [prompt("u"), *turn(1, "x " * 200_000)]
    messages[1] = with_usage(messages[1], 5_000)
    view = project(messages, ContextPlan(), limits=LIMITS, levels=LEVELS, estimates=Estimates())
    assert 1 == len(view.persist)
    assert view.tokens < 6_500


def test_thinking_is_never_touched() -> None:
    thinking = ThinkingBlock("Hm. " * 400, "c2ln")
    call, answer = turn(1, "x " * 900)
    assert isinstance(call, AssistantMessage)
    call = attrs.evolve(call, content=(thinking, *call.content))
    messages = [prompt("u"), call, answer, *turn(2, "y"), *turn(3, "z")]
    view = project(
        messages, ContextPlan(), limits=LIMITS, levels=LEVELS, estimates=Estimates(), now=9e9, last_response_at=1.0
    )
    assert call is view.messages[1]


def test_the_report_says_what_fills_the_window() -> None:
    messages = [prompt("u"), *turn(1, "x " * 900, tool="Read"), *turn(2, "y " * 90)]
    tool = {"name": "Read", "description": "Reads.", "input_schema": {}}
    shown = report(
        messages,
        system=("You are an agent.",),
        tools=(tool,),
        instructions={"/p/CLAUDE.md": "Be brief."},
        levels=LEVELS,
        measured_tokens=8_000,
    )
    assert ["system prompt", "tools", "instructions", "user messages", "tool calls", "results"] == [
        part.name for part in shown.parts
    ]
    assert ["Read", "Bash"] == [item.name for item in shown.parts[-1].items]
    assert 8_000 - 10 < shown.tokens < 8_000 + 10
    assert Level.NORMAL is shown.level
    assert shown.to_json()["free"] == LEVELS.auto - shown.tokens
