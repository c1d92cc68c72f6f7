"""Every transition and every terminal reason, over the real actors, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.agents import Probe, sleeping, stage
from trio.testing import MockClock

from atrio.actors import Dependencies, Prepared, StopContext, StopDecision, ToolCall, ToolDecision, ToolHook
from atrio.actors.testing import Fault, ScriptedModel, Turn, text, thinking, tool
from atrio.runtime import notes
from atrio.runtime.errors import ConfigError, ContextExhausted
from atrio.runtime.events import Heartbeat, MessageWithdrawn, ModelChanged, Notice, RequestStarted, TurnEnded
from atrio.runtime.messages import Message, TextBlock, ToolResultBlock, UserMessage
from atrio.runtime.model import ModelFailure
from atrio.runtime.result import TerminalReason

DONE = Turn(text("All done."))
TOO_LONG = Fault.status(400, type="invalid_request_error", message="prompt is too long: 210000 tokens > 200000 maximum")
BAD_IMAGE = Fault.status(
    400, type="invalid_request_error", message="messages.0.content.0: image exceeds 5 MB maximum: 9 MB"
)


def deps(**changes: Any) -> Dependencies:
    return Dependencies(jitter=lambda: 0.0, **changes)


def summary(log: list[str] | None = None, *, fails: bool = False) -> Any:
    """A compaction that leaves one message."""

    async def compact(messages: tuple[Message, ...], level: str, failure: ModelFailure) -> tuple[Message, ...]:
        if log is not None:
            log.append(f"{level}: {failure.kind.value}")
        await trio.sleep(1)
        if fails:
            raise RuntimeError("the summary is empty")
        return (
            UserMessage(uuid=f"summary-{len(messages)}-{trio.current_time()}", content=(TextBlock("So far: ..."),)),
        )

    return compact


# --- compaction ladders -----------------------------------------------------------------------------


async def test_reactive_compact_retry(tmp_path: Path, autojump_clock: MockClock) -> None:
    log: list[str] = []
    model = ScriptedModel([DONE], faults={1: TOO_LONG})
    async with stage(tmp_path, model, deps=deps(autocompact=summary(log))) as on:
        result = await on.run()
        assert result.is_success
        assert ["reactive: prompt_too_long"] == log
        assert ["reactive_compact_retry"] == [event.transition for event in on.of(TurnEnded)]
        assert [{"type": "text", "text": "So far: ..."}] == [
            {key: value for key, value in block.items() if key != "cache_control"}
            for block in model.requests[1].messages[0]["content"]
        ]
        assert () == result.errors


async def test_prompt_too_long_after_one_compaction_that_was_not_enough(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    log: list[str] = []
    model = ScriptedModel([DONE], faults=lambda number, request: TOO_LONG)
    async with stage(tmp_path, model, deps=deps(autocompact=summary(log))) as on:
        result = await on.run()
        assert TerminalReason.PROMPT_TOO_LONG is result.terminal_reason
        assert 1 == len(log)
        assert 2 == len(model.requests)
        assert "prompt is too long" in result.errors[0]


@pytest.mark.parametrize("compact", [None, summary(fails=True)], ids=["none", "failing"])
async def test_prompt_too_long_when_no_room_can_be_made(
    tmp_path: Path, autojump_clock: MockClock, compact: Any
) -> None:
    model = ScriptedModel([DONE], repeat_last=True, faults={1: TOO_LONG})
    async with stage(tmp_path, model, deps=deps(autocompact=compact)) as on:
        result = await on.run()
        assert TerminalReason.PROMPT_TOO_LONG is result.terminal_reason
        assert ["compaction"] == [notice.source for notice in on.of(Notice)]
        assert (await on.run("again")).is_success


async def test_a_request_that_is_too_large_is_compacted(tmp_path: Path, autojump_clock: MockClock) -> None:
    log: list[str] = []
    model = ScriptedModel([DONE], faults={1: Fault.status(413)})
    async with stage(tmp_path, model, deps=deps(autocompact=summary(log))) as on:
        assert (await on.run()).is_success
        assert ["reactive: request_too_large"] == log


async def test_a_media_error_goes_straight_to_compaction(tmp_path: Path, autojump_clock: MockClock) -> None:
    log: list[str] = []
    model = ScriptedModel([DONE], faults={1: BAD_IMAGE})
    async with stage(tmp_path, model, deps=deps(autocompact=summary(log))) as on:
        assert (await on.run()).is_success
        assert ["reactive: media_error"] == log


async def test_image_error_when_compaction_does_not_help(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([DONE], faults=lambda number, request: BAD_IMAGE)
    async with stage(tmp_path, model, deps=deps(autocompact=summary())) as on:
        assert TerminalReason.IMAGE_ERROR is (await on.run()).terminal_reason
        assert 2 == len(model.requests)


async def test_a_context_overflow_shrinks_the_output_first(tmp_path: Path, autojump_clock: MockClock) -> None:
    message = "input length and `max_tokens` exceed context limit: 194000 + 8000 > 200000, decrease input length"
    model = ScriptedModel([DONE], faults={1: Fault.status(400, type="invalid_request_error", message=message)})
    async with stage(tmp_path, model) as on:
        assert (await on.run()).is_success
        assert [8000, 5000] == [request.body["max_tokens"] for request in model.requests]


async def test_a_context_overflow_that_cannot_shrink_is_compacted(tmp_path: Path, autojump_clock: MockClock) -> None:
    log: list[str] = []
    message = "input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000, decrease input length"
    model = ScriptedModel([DONE], faults={1: Fault.status(400, type="invalid_request_error", message=message)})
    async with stage(tmp_path, model, deps=deps(autocompact=summary(log))) as on:
        assert (await on.run()).is_success
        assert ["reactive: context_overflow"] == log


async def test_a_compaction_that_breaks_the_history_is_refused(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def breaks(messages: tuple[Message, ...], level: str, failure: ModelFailure) -> tuple[Message, ...]:
        return (*messages, messages[-1])

    model = ScriptedModel([DONE], faults={1: TOO_LONG})
    async with stage(tmp_path, model, deps=deps(autocompact=breaks)) as on:
        assert TerminalReason.PROMPT_TOO_LONG is (await on.run()).terminal_reason


async def test_an_abort_reaches_a_compaction(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([DONE], faults={1: TOO_LONG})
    async with stage(tmp_path, model, deps=deps(autocompact=summary())) as on:
        async with on.session.submit("go") as run:
            with trio.move_on_after(0.5):
                await run.wait()
        async for event in run:
            on.take(event)
        assert TerminalReason.ABORTED_STREAMING is run.result.terminal_reason
        assert 0.5 == trio.current_time()


async def test_the_task_budget_is_what_a_compaction_leaves_of_it(tmp_path: Path, autojump_clock: MockClock) -> None:
    first = Turn(tool("Probe", {"name": "a"}), usage={"input_tokens": 30_000, "output_tokens": 2_000})
    model = ScriptedModel([first, DONE], faults={2: TOO_LONG})
    async with stage(tmp_path, model, Probe(), deps=deps(autocompact=summary()), task_budget=100_000) as on:
        await on.run()
    budgets = [request.body["output_config"]["task_budget"] for request in model.requests]
    assert [None, None, 68_000] == [budget.get("remaining") for budget in budgets]
    assert {100_000} == {budget["total"] for budget in budgets}
    assert "task-budgets" in model.requests[0].headers["anthropic-beta"]


async def test_collapse_drain_retry(tmp_path: Path, autojump_clock: MockClock) -> None:
    log: list[str] = []

    async def prepare(messages: tuple[Message, ...]) -> Prepared:
        return Prepared(messages=messages, staged_collapses=0 if log else 2)

    model = ScriptedModel([DONE], faults={1: TOO_LONG})
    async with stage(tmp_path, model, deps=deps(prepare=prepare, autocompact=summary(log))) as on:
        assert (await on.run()).is_success
        assert ["drain: prompt_too_long"] == log
        assert ["collapse_drain_retry"] == [event.transition for event in on.of(TurnEnded)]


async def test_a_drain_that_was_not_enough_is_followed_by_a_compaction(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    log: list[str] = []

    async def prepare(messages: tuple[Message, ...]) -> Prepared:
        return Prepared(messages=messages, staged_collapses=2)

    model = ScriptedModel([DONE], faults={1: TOO_LONG, 2: TOO_LONG})
    async with stage(tmp_path, model, deps=deps(prepare=prepare, autocompact=summary(log))) as on:
        assert (await on.run()).is_success
        assert ["drain: prompt_too_long", "reactive: prompt_too_long"] == log


async def test_what_the_model_sees_may_be_less_than_the_history(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def prepare(messages: tuple[Message, ...]) -> Prepared:
        return Prepared(messages=messages, view=messages[-1:])

    model = ScriptedModel([Turn(text("one")), Turn(text("two"))])
    async with stage(tmp_path, model, deps=deps(prepare=prepare)) as on:
        await on.run("first")
        await on.run("second")
        assert [1, 1] == [len(request.messages) for request in model.requests]
        assert ["first", "second"] == on.prompts()


@pytest.mark.parametrize("kind", ["blocking_limit", "rapid_refill_breaker"])
async def test_a_context_that_cannot_be_made_to_fit(tmp_path: Path, autojump_clock: MockClock, kind: str) -> None:
    async def prepare(messages: tuple[Message, ...]) -> Prepared:
        raise ContextExhausted(kind, "no room is left")

    async with stage(tmp_path, ScriptedModel([DONE]), deps=deps(prepare=prepare)) as on:
        result = await on.run()
        assert TerminalReason(kind) is result.terminal_reason
        assert ("no room is left",) == result.errors


# --- fallback models --------------------------------------------------------------------------------


async def test_model_fallback_retry_after_three_overloads_in_a_row(tmp_path: Path, autojump_clock: MockClock) -> None:
    def busy(number: int, request: Any) -> Fault | None:
        return Fault.status(529) if request["model"] == "scripted-1" else None

    model = ScriptedModel([Turn(thinking("hm"), tool("Probe", {"name": "a"})), DONE], faults=busy)
    async with stage(tmp_path, model, Probe(), fallback_models=["second", "third"]) as on:
        result = await on.run()
        assert result.is_success
        assert ["scripted-1"] * 3 + ["second"] * 2 == [request.body["model"] for request in model.requests]
        assert [("scripted-1", "second")] == [(event.old, event.new) for event in on.of(ModelChanged)]
        # the next submission begins with the agent's own model again
        await on.run("again")
        assert "scripted-1" == model.requests[5].body["model"]


async def test_each_fallback_gets_its_turn_and_the_last_one_decides(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([DONE], faults=lambda number, request: Fault.status(529))
    async with stage(tmp_path, model, fallback_models=["second", "third"]) as on:
        result = await on.run()
        assert TerminalReason.API_ERROR is result.terminal_reason
        models = [request.body["model"] for request in model.requests]
        assert ["scripted-1"] * 3 + ["second"] * 3 + ["third"] * 11 == models


@pytest.mark.parametrize("status", [401, 402, 403, 400])
async def test_no_fallback_for_what_another_model_cannot_heal(
    tmp_path: Path, autojump_clock: MockClock, status: int
) -> None:
    model = ScriptedModel([DONE], faults=lambda number, request: Fault.status(status))
    async with stage(tmp_path, model, fallback_models=["second"]) as on:
        assert not (await on.run()).is_success
        assert ["scripted-1"] == [request.body["model"] for request in model.requests]


async def test_a_model_that_is_gone_is_fallen_back_from_at_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([DONE], faults={1: Fault.status(404)})
    async with stage(tmp_path, model, fallback_models=["second"]) as on:
        assert (await on.run()).is_success
        assert ["scripted-1", "second"] == [request.body["model"] for request in model.requests]


async def test_thinking_of_the_first_model_is_not_sent_to_the_second(tmp_path: Path, autojump_clock: MockClock) -> None:
    def by(body: Any) -> Turn:
        return DONE if len(body["messages"]) > 1 else Turn(thinking("hm"), tool("Probe", {"name": "a"}))

    model = ScriptedModel(by=by, faults={2: Fault.status(404)})
    async with stage(tmp_path, model, Probe(), fallback_models=["second"]) as on:
        assert (await on.run()).is_success
        kinds = [[block["type"] for block in request.messages[1]["content"]] for request in model.requests[1:]]
        assert [["thinking", "tool_use"], ["tool_use"]] == kinds


def test_more_than_three_fallbacks_are_refused() -> None:
    from atrio.actors import Agent

    with pytest.raises(ValueError, match="fallback_models"):
        Agent(model="m", fallback_models=["a", "b", "c", "d"])


# --- waiting out ------------------------------------------------------------------------------------


async def test_unattended_waits_as_long_as_the_provider_says_and_says_so(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([DONE], faults={1: Fault.status(429, retry_after=3600)})
    async with stage(tmp_path, model, options={"unattended": True}) as on:
        assert (await on.run()).is_success
        assert 3600 == trio.current_time()
        beats = [when for event, when in zip(on.events, on.times, strict=True) if isinstance(event, Heartbeat)]
        assert 119 == len(beats)
        assert [30.0, 60.0, 90.0] == beats[:3]
        assert {3600.0} == {event.until for event in on.of(Heartbeat)}


async def test_unattended_outlasts_any_number_of_overloads(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([DONE], faults=lambda number, request: Fault.status(529) if number <= 40 else None)
    async with stage(tmp_path, model, options={"unattended": True}) as on:
        assert (await on.run()).is_success
        assert 41 == len(model.requests)


async def test_attended_a_wait_of_an_hour_ends_the_run_with_the_servers_words(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([DONE], faults={1: Fault.status(429, retry_after=3600, message="come back later")})
    async with stage(tmp_path, model) as on:
        result = await on.run()
        assert TerminalReason.API_ERROR is result.terminal_reason
        assert "come back later" in result.errors[0]
        assert trio.current_time() < 1


# --- without streaming ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "times"),
    [(Fault.cut(700), 11), (Fault.stall(700), 2), (Fault.garbage(4), 3)],
    ids=["cut", "stall", "garbage"],
)
async def test_a_stream_that_keeps_failing_is_asked_for_once_without_streaming(
    tmp_path: Path, autojump_clock: MockClock, fault: Fault, times: int
) -> None:
    def only_streams(number: int, request: Any) -> Fault | None:
        return fault if request.get("stream") else None

    model = ScriptedModel([Turn(text("A text that comes in many pieces. " * 10))], faults=only_streams)
    async with stage(tmp_path, model) as on:
        result = await on.run()
        assert result.is_success
        assert [True] * times + [False] == [request.streaming for request in model.requests]
        assert times == len(on.of(MessageWithdrawn))


# --- the answer's end -------------------------------------------------------------------------------


async def test_stop_hook_blocking(tmp_path: Path, autojump_clock: MockClock) -> None:
    seen: list[StopContext] = []

    async def check(context: StopContext) -> StopDecision | None:
        seen.append(context)
        return None if context.active else StopDecision(block="the tests were not run")

    model = ScriptedModel([Turn(text("first")), Turn(text("second"))])
    async with stage(tmp_path, model, stop_hooks=[check]) as on:
        result = await on.run()
        assert TerminalReason.COMPLETED is result.terminal_reason
        assert ["stop_hook_blocking"] == [event.transition for event in on.of(TurnEnded)]
        assert [("first", False), ("second", True)] == [(context.text, context.active) for context in seen]
        assert ["go", notes.stop_hook_feedback(["the tests were not run"])] == on.prompts()


async def test_a_stop_hook_may_block_eight_times(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def never_content(context: StopContext) -> StopDecision:
        return StopDecision(block="more")

    model = ScriptedModel([DONE], repeat_last=True)
    async with stage(tmp_path, model, stop_hooks=[never_content]) as on:
        assert (await on.run()).is_success
        assert 9 == len(model.requests)
        assert any("overridden" in notice.text for notice in on.of(Notice))


async def test_stop_hook_prevented_beats_blocking(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def block(context: StopContext) -> StopDecision:
        return StopDecision(block="more")

    async def prevent(context: StopContext) -> StopDecision:
        return StopDecision(prevent="enough for today")

    async with stage(tmp_path, ScriptedModel([DONE]), stop_hooks=[block, prevent]) as on:
        result = await on.run()
        assert TerminalReason.STOP_HOOK_PREVENTED is result.terminal_reason
        assert result.is_success


async def test_stop_hooks_that_fail_or_hang_have_no_say(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def fails(context: StopContext) -> StopDecision:
        raise RuntimeError("boom")

    async def hangs(context: StopContext) -> StopDecision:
        await trio.sleep_forever()
        return StopDecision(block="never")

    async with stage(tmp_path, ScriptedModel([DONE]), stop_hooks=[fails, hangs]) as on:
        assert (await on.run()).is_success
        assert 2 == len([notice for notice in on.of(Notice) if notice.source == "stop hook"])
        assert 60 == trio.current_time()


async def test_stop_hooks_do_not_run_after_an_api_error(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def hook(context: StopContext) -> StopDecision:
        raise AssertionError("asked")

    async with stage(tmp_path, ScriptedModel([DONE], faults={1: Fault.status(400)}), stop_hooks=[hook]) as on:
        assert TerminalReason.API_ERROR is (await on.run()).terminal_reason
        assert [] == on.of(Notice)


async def test_token_budget_continuation_until_the_target(tmp_path: Path, autojump_clock: MockClock) -> None:
    turn = Turn(text("some work"), usage={"input_tokens": 10, "output_tokens": 4_000})
    model = ScriptedModel([turn], repeat_last=True)
    async with stage(tmp_path, model, token_target=10_000) as on:
        assert (await on.run()).is_success
        assert ["token_budget_continuation"] * 2 == [event.transition for event in on.of(TurnEnded)]


async def test_a_token_target_ends_when_little_more_comes(tmp_path: Path, autojump_clock: MockClock) -> None:
    turn = Turn(text("nothing more"), usage={"input_tokens": 10, "output_tokens": 100})
    model = ScriptedModel([turn], repeat_last=True)
    async with stage(tmp_path, model, token_target=100_000) as on:
        assert (await on.run()).is_success
        assert 4 == len(model.requests)


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


async def test_structured_output(tmp_path: Path, autojump_clock: MockClock) -> None:
    turns = [Turn(text("It is Oslo.")), Turn(tool("StructuredOutput", {"city": 1})), _answer({"city": "Oslo"})]
    model = ScriptedModel(turns)
    async with stage(tmp_path, model, output_schema=SCHEMA) as on:
        result = await on.run()
        assert TerminalReason.COMPLETED is result.terminal_reason
        assert {"city": "Oslo"} == result.structured_output
        assert notes.STRUCTURED_OUTPUT_MISSING in on.prompts()


def _answer(value: Any) -> Turn:
    return Turn(tool("StructuredOutput", value))


async def test_structured_output_that_is_no_object_at_its_top(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([_answer({"value": [1, 2]})])
    async with stage(tmp_path, model, output_schema={"type": "array", "items": {"type": "integer"}}) as on:
        assert [1, 2] == (await on.run()).structured_output


@pytest.mark.parametrize("turn", [Turn(text("no")), _answer({"city": 1})], ids=["text", "wrong"])
async def test_structured_output_retry_exhausted(tmp_path: Path, autojump_clock: MockClock, turn: Turn) -> None:
    model = ScriptedModel([turn], repeat_last=True)
    async with stage(tmp_path, model, output_schema=SCHEMA) as on:
        result = await on.run()
        assert TerminalReason.STRUCTURED_OUTPUT_RETRY_EXHAUSTED is result.terminal_reason
        assert "error_max_structured_output_retries" == result.subtype
        assert 6 == len(model.requests)


async def test_a_schema_that_is_none_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="output schema"):
        async with stage(tmp_path, ScriptedModel([DONE]), output_schema={"type": "nonsense"}):
            pass


async def test_a_refusal_ends_the_run_and_is_named(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with stage(tmp_path, ScriptedModel([Turn(text("I won't."), stop_reason="refusal")])) as on:
        result = await on.run()
        assert (TerminalReason.COMPLETED, "refusal") == (result.terminal_reason, result.stop_reason)


async def test_a_pause_is_sent_back_unchanged(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([Turn(text("wait"), stop_reason="pause_turn"), DONE], strict=False, validate=False)
    async with stage(tmp_path, model) as on:
        assert (await on.run()).is_success
        assert ["user", "assistant"] == [message["role"] for message in model.requests[1].messages]


async def test_endless_pauses_come_to_an_end(tmp_path: Path, autojump_clock: MockClock) -> None:
    turn = Turn(text("wait"), stop_reason="pause_turn")
    model = ScriptedModel([turn], repeat_last=True, strict=False, validate=False)
    async with stage(tmp_path, model) as on:
        await on.run()
        assert 9 == len(model.requests)


# --- tools ------------------------------------------------------------------------------------------


async def test_malformed_tool_use_exhausted(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([Turn(tool("Probe", '{"name": "a'))], repeat_last=True)
    async with stage(tmp_path, model, Probe(), max_repeats=None) as on:
        assert TerminalReason.MALFORMED_TOOL_USE_EXHAUSTED is (await on.run()).terminal_reason
        assert 4 == len(model.requests)


async def test_one_good_call_clears_the_malformed_ones(tmp_path: Path, autojump_clock: MockClock) -> None:
    bad, good = Turn(tool("Probe", '{"name": "a')), Turn(tool("Probe", {"name": "a"}))
    model = ScriptedModel([bad, bad, bad, good, bad, bad, bad, DONE])
    async with stage(tmp_path, model, Probe(), max_repeats=None) as on:
        assert (await on.run()).is_success


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["AAA", "ABAB"])
async def test_no_progress_is_pointed_out_and_then_ends_the_run(
    tmp_path: Path, autojump_clock: MockClock, names: list[str]
) -> None:
    turns = [Turn(tool("Probe", {"name": names[n % len(names)]})) for n in range(50)]
    model = ScriptedModel(turns)
    async with stage(tmp_path, model, Probe()) as on:
        result = await on.run()
        assert TerminalReason.MODEL_ERROR is result.terminal_reason
        assert "no progress" in result.errors[0]
        assert 10 + len(names) == len(model.requests)
        assert [notes.no_progress(6)] == [prompt for prompt in on.prompts() if prompt != "go"]


async def test_polling_whose_result_changes_is_progress(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def behave(name: str, ctx: Any) -> str:
        return f"at {trio.current_time()} {len(probe.log)}"

    probe = Probe(behave=behave)
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"})) for _ in range(30)] + [DONE])
    async with stage(tmp_path, model, probe) as on:
        assert (await on.run()).is_success


async def test_the_no_progress_detector_has_an_off_switch(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"})) for _ in range(30)] + [DONE])
    async with stage(tmp_path, model, Probe(), max_repeats=None) as on:
        assert (await on.run()).is_success
        assert ["go"] == on.prompts()


class Says(ToolHook):
    """A tool hook with one answer, before or after."""

    def __init__(self, *, before: ToolDecision | None = None, after: ToolDecision | None = None) -> None:
        self.says_before, self.says_after = before, after
        self.calls: list[ToolCall] = []

    async def before(self, call: ToolCall) -> ToolDecision | None:
        self.calls.append(call)
        return self.says_before

    async def after(self, call: ToolCall, result: ToolResultBlock) -> ToolDecision | None:
        return self.says_after


@pytest.mark.parametrize("when", ["before", "after"])
async def test_hook_stopped(tmp_path: Path, autojump_clock: MockClock, when: str) -> None:
    hook = Says(**{when: ToolDecision(stop="that is enough")})
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"}), tool("Probe", {"name": "b"}))])
    async with stage(tmp_path, model, Probe(), tool_hooks=[hook]) as on:
        result = await on.run()
        assert TerminalReason.HOOK_STOPPED is result.terminal_reason
        assert 2 == len(on.results())
        assert 1 == len(model.requests)


async def test_tool_deferred(tmp_path: Path, autojump_clock: MockClock) -> None:
    probe = Probe()
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"}, "t1")), DONE])
    async with stage(tmp_path, model, probe, tool_hooks=[Says(before=ToolDecision(defer=True))]) as on:
        result = await on.run()
        assert TerminalReason.TOOL_DEFERRED is result.terminal_reason
        assert [("Probe", "t1")] == [(call.tool_name, call.tool_use_id) for call in result.deferred]
        assert [] == probe.log


async def test_a_hook_may_deny_allow_or_change_a_call(tmp_path: Path, autojump_clock: MockClock) -> None:
    probe = Probe(permission="ask")
    for decision, ran in [
        (ToolDecision(deny="not here"), []),
        (ToolDecision(allow=True), ["a"]),
        (ToolDecision(allow=True, input={"name": "b"}), ["b"]),
        (ToolDecision(allow=True, deny="no"), []),
        (None, []),
    ]:
        probe.log.clear()
        model = ScriptedModel([Turn(tool("Probe", {"name": "a"})), DONE])
        folder = tmp_path / str(id(decision))
        folder.mkdir()
        async with stage(folder, model, probe, tool_hooks=[Says(before=decision)]) as on:
            assert (await on.run()).is_success
            assert ran == [name for name, what, _ in probe.log if what == "+"]


async def test_a_tool_hook_that_fails_or_hangs_has_no_say(tmp_path: Path, autojump_clock: MockClock) -> None:
    class Broken(ToolHook):
        async def before(self, call: ToolCall) -> ToolDecision | None:
            raise RuntimeError("boom")

        async def after(self, call: ToolCall, result: ToolResultBlock) -> ToolDecision | None:
            await trio.sleep_forever()
            return None

    model = ScriptedModel([Turn(tool("Probe", {"name": "a"})), DONE])
    async with stage(tmp_path, model, Probe(), tool_hooks=[Broken()]) as on:
        assert (await on.run()).is_success
        assert 60 == trio.current_time()


# --- budgets ----------------------------------------------------------------------------------------


async def test_budget_exhausted_in_money(tmp_path: Path, autojump_clock: MockClock) -> None:
    turn = Turn(tool("Probe", {"name": "a"}), usage={"input_tokens": 100_000, "output_tokens": 1_000})
    model = ScriptedModel([turn], repeat_last=True, model="claude-sonnet-4-5")
    async with stage(tmp_path, model, Probe(), model="claude-sonnet-4-5", max_budget_usd=0.5) as on:
        result = await on.run()
        assert TerminalReason.BUDGET_EXHAUSTED is result.terminal_reason
        assert "error_max_budget_usd" == result.subtype
        assert 2 == len(model.requests)
        assert result.cost_usd == pytest.approx(0.63)


async def test_a_budget_without_a_price_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_budget_usd"):
        async with stage(tmp_path, ScriptedModel([DONE]), max_budget_usd=1):
            pass


async def test_a_budget_whose_price_turns_out_unknown_ends_the_run(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([Turn(tool("Probe", {}))], repeat_last=True, model="somebody-elses")
    async with stage(tmp_path, model, Probe(), model="claude-sonnet-4-5", max_budget_usd=1) as on:
        result = await on.run()
        assert TerminalReason.BUDGET_EXHAUSTED is result.terminal_reason
        assert "unknown" in result.errors[0]


@pytest.mark.parametrize("slow", ["stream", "tool", "wait"])
async def test_budget_exhausted_in_time(tmp_path: Path, autojump_clock: MockClock, slow: str) -> None:
    turns = {"stream": Turn(text("x", after=100)), "tool": Turn(tool("Probe", {"name": "s"})), "wait": DONE}
    faults = {1: Fault.status(429, retry_after=100)} if slow == "wait" else None
    model = ScriptedModel([turns[slow], DONE], faults=faults, repeat_last=True)
    async with stage(tmp_path, model, Probe(behave=sleeping(s=100.0)), max_seconds=20) as on:
        result = await on.run()
        assert TerminalReason.BUDGET_EXHAUSTED is result.terminal_reason
        assert "error_during_execution" == result.subtype
        assert ("the time of 20 s is used up",) == result.errors
        assert 20 == trio.current_time()


async def test_turn_setup_failed(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def prepare(messages: tuple[Message, ...]) -> Prepared:
        raise OSError("the instruction file is gone")

    async with stage(tmp_path, ScriptedModel([DONE]), deps=deps(prepare=prepare)) as on:
        result = await on.run()
        assert TerminalReason.TURN_SETUP_FAILED is result.terminal_reason
        assert "the instruction file is gone" in result.errors[0]


async def test_requests_count_from_one_within_a_turn(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with stage(tmp_path, ScriptedModel([Turn(tool("Probe", {})), DONE]), Probe()) as on:
        await on.run()
        assert [(1, 1), (2, 1)] == [(event.turn, event.attempt) for event in on.of(RequestStarted)]
