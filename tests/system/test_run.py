"""Runs from prompt to result, in memory and in virtual time."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import trio
from tests.support.agents import Probe, sleeping, stage
from trio.testing import MockClock

from atrio.actors.testing import Fault, FaultPlan, ScriptedModel, Turn, text, thinking, tool
from atrio.runtime import notes
from atrio.runtime.errors import SessionBusy, ToolRejected
from atrio.runtime.events import (
    AssistantBlock,
    MessageWithdrawn,
    PermissionDenied,
    RequestStarted,
    ResponseEnded,
    RetryScheduled,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    UserMessageAdded,
)
from atrio.runtime.messages import AssistantMessage, TextBlock, ToolResultBlock, UserMessage
from atrio.runtime.result import TerminalReason
from atrio.runtime.tool import ToolContext, ToolOutput

DONE = Turn(text("All done."))


async def test_a_run_ends_with_its_text_its_usage_and_one_terminal_event(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Turn(text("Hello there."))])
    async with stage(tmp_path, model) as on:
        result = await on.run("say hello")
        assert TerminalReason.COMPLETED is result.terminal_reason
        assert ("success", "Hello there.", 1, "end_turn") == (
            result.subtype,
            result.text,
            result.num_turns,
            result.stop_reason,
        )
        assert result.is_success
        assert result.usage.reported
        assert "Hello there." == "".join(delta.text for delta in on.of(TextDelta))
        assert isinstance(on.events[0], RunStarted)
        assert ["say hello"] == on.prompts()


async def test_a_tool_runs_while_the_model_still_streams(tmp_path: Path, autojump_clock: MockClock) -> None:
    probe = Probe(behave=sleeping(a=1.0))
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"}, after=0.5), text("more", after=3.0)), DONE])
    async with stage(tmp_path, model, probe) as on:
        await on.run()
        ended = on.times[on.events.index(on.of(ResponseEnded)[0])]
        assert [("a", "+", 0.5), ("a", "-", 1.5)] == probe.log
        assert 3.0 <= ended


async def test_results_come_in_call_order_and_progress_at_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def behave(name: str, ctx: ToolContext) -> str:
        ctx.progress(f"{name} begins")
        await trio.sleep({"a": 3.0, "b": 1.0}[name])
        return f"{name} done"

    model = ScriptedModel([Turn(tool("Probe", {"name": "a"}, "ta"), tool("Probe", {"name": "b"}, "tb")), DONE])
    async with stage(tmp_path, model, Probe(behave=behave)) as on:
        await on.run()
        assert [("ta", "a done", False), ("tb", "b done", False)] == on.results()
        kinds = [type(event) for event in on.events if isinstance(event, ToolProgress | ToolEnded)]
        assert [ToolProgress, ToolProgress, ToolEnded, ToolEnded] == kinds
        told = [time for event, time in zip(on.events, on.times, strict=True) if isinstance(event, ToolProgress)]
        assert [0.0, 0.0] == told


async def test_a_writer_waits_for_readers_and_readers_behind_it_wait_for_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    log: list[tuple[str, str, float]] = []
    reader = Probe("Reader", behave=sleeping())
    writer = Probe("Writer", behave=sleeping(), safe=False)
    reader.log = writer.log = log
    names = [("Reader", "r1"), ("Reader", "r2"), ("Writer", "w"), ("Reader", "r3")]
    model = ScriptedModel([Turn(*(tool(kind, {"name": name}) for kind, name in names)), DONE])
    async with stage(tmp_path, model, reader, writer) as on:
        await on.run()
    starts = {name: when for name, what, when in log if what == "+"}
    assert {"r1": 0.0, "r2": 0.0, "w": 1.0, "r3": 2.0} == starts


async def test_no_more_than_ten_calls_run_at_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    probe = Probe(behave=sleeping())
    model = ScriptedModel([Turn(*(tool("Probe", {"name": f"c{n}"}) for n in range(25))), DONE])
    async with stage(tmp_path, model, probe) as on:
        await on.run()
        starts = [when for _, what, when in probe.log if what == "+"]
        assert [0.0] * 10 + [1.0] * 10 + [2.0] * 5 == starts
        assert 25 == len(on.results())


async def test_a_failure_that_says_so_cancels_its_siblings(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def behave(name: str, ctx: ToolContext) -> ToolOutput:
        if name == "bad":
            await trio.sleep(1)
            return ToolOutput("exit status 2", is_error=True, cancel_siblings=True)
        await trio.sleep(5)
        return ToolOutput("fine")

    probe, late = Probe(behave=behave), Probe("Late", safe=False)
    calls = [tool("Probe", {"name": "slow"}, "t1"), tool("Probe", {"name": "bad"}, "t2"), tool("Late", {}, "t3")]
    model = ScriptedModel([Turn(*calls), DONE])
    async with stage(tmp_path, model, probe, late) as on:
        await on.run()
        results = on.results()
        assert [("t1", True), ("t2", True), ("t3", True)] == [(id, is_error) for id, _, is_error in results]
        assert "exit status 2" == results[1][1]
        assert "Probe call before it" in results[0][1]
        assert [] == late.log
        assert ("slow", "x", 1.0) in probe.log


async def test_every_way_a_call_can_fail_is_a_result_the_model_can_act_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def behave(name: str, ctx: ToolContext) -> str:
        if name == "rejects":
            raise ToolRejected("read the file first")
        raise ZeroDivisionError("division by zero")

    calls = [
        tool("Prob", {}, "t1"),
        tool("Probe", {"name": "rejects"}, "t2"),
        tool("Probe", {"name": "crashes"}, "t3"),
        tool("Probe", '{"name": "cut', "t4"),
    ]
    model = ScriptedModel([Turn(*calls), DONE])
    async with stage(tmp_path, model, Probe(behave=behave)) as on:
        result = await on.run()
        assert result.is_success
        told = {id: content for id, content, is_error in on.results() if is_error}
        assert "Did you mean Probe" in told["t1"]
        assert "read the file first" == told["t2"]
        assert "ZeroDivisionError: division by zero" in told["t3"]
        assert '{"name": "cut' in told["t4"]


async def test_a_call_that_no_rule_allows_is_denied_and_listed(tmp_path: Path, autojump_clock: MockClock) -> None:
    probe = Probe(permission="ask")
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"}, "t1")), DONE])
    async with stage(tmp_path, model, probe) as on:
        result = await on.run()
        assert result.is_success
        assert [("Probe", "t1")] == [(denial.tool_name, denial.tool_use_id) for denial in result.permission_denials]
        assert ["t1"] == [event.call_id for event in on.of(PermissionDenied)]
        assert [] == probe.log


@pytest.mark.parametrize(
    ("answer", "runs"), [(True, True), (False, False), ("not today", False), ("sleep", False), ("raise", False)]
)
async def test_an_approval_that_fails_in_any_way_denies(
    tmp_path: Path, autojump_clock: MockClock, answer: bool | str, runs: bool
) -> None:
    async def can_use(name: str, input: object, ctx: ToolContext) -> bool | str:
        if answer == "sleep":
            await trio.sleep_forever()
        if answer == "raise":
            raise RuntimeError("the approver crashed")
        return answer

    probe = Probe(permission="ask")
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"})), DONE])
    async with stage(tmp_path, model, probe, can_use_tool=can_use) as on:
        result = await on.run()
        assert runs is bool(probe.log)
        assert runs is not bool(result.permission_denials)


async def test_the_turn_limit_ends_the_run_after_the_tools_of_the_last_turn(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"}))], repeat_last=True)
    async with stage(tmp_path, model, Probe(), max_turns=3) as on:
        result = await on.run()
        assert TerminalReason.MAX_TURNS is result.terminal_reason
        assert ("error_max_turns", 3) == (result.subtype, result.num_turns)
        assert not result.is_success
        assert 3 == len(on.of(ToolEnded))
        assert 3 == len(model.requests)


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404])
async def test_an_error_that_waiting_cannot_heal_ends_the_run_at_once(
    tmp_path: Path, autojump_clock: MockClock, status: int
) -> None:
    model = ScriptedModel([DONE], faults={1: Fault.status(status)})
    async with stage(tmp_path, model) as on:
        result = await on.run()
        assert TerminalReason.API_ERROR is result.terminal_reason
        assert status == result.api_error_status
        assert result.errors
        assert 1 == len(model.requests)
        assert 0 == trio.current_time()
        # the session is none the worse for it
        assert (await on.run("again")).is_success


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
async def test_an_error_that_passes_is_retried_with_backoff(
    tmp_path: Path, autojump_clock: MockClock, status: int
) -> None:
    model = ScriptedModel([DONE], faults={1: Fault.status(status), 2: Fault.status(status)})
    async with stage(tmp_path, model) as on:
        assert (await on.run()).is_success
        assert [0.5, 1.0] == [event.delay for event in on.of(RetryScheduled)]
        assert 1.5 == trio.current_time()


async def test_the_servers_own_waiting_time_replaces_ours(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([DONE], faults={1: Fault.status(429, retry_after=30)})
    async with stage(tmp_path, model) as on:
        assert (await on.run()).is_success
        assert 30 == trio.current_time()


async def test_ten_retries_are_enough(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([DONE], faults=lambda number, request: Fault.status(500))
    async with stage(tmp_path, model) as on:
        result = await on.run()
        assert TerminalReason.API_ERROR is result.terminal_reason
        assert 11 == len(model.requests)
        assert [0.5, 1, 2, 4, 8, 16, 32, 32, 32, 32] == [event.delay for event in on.of(RetryScheduled)]


async def test_a_cut_before_any_block_is_whole_is_retried_and_what_was_shown_is_withdrawn(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Turn(text("A long text that is cut in the middle." * 20))], faults={1: Fault.cut(900)})
    async with stage(tmp_path, model) as on:
        assert "A long text that is cut in the middle." * 20 == (await on.run()).text
        assert 1 == len(on.of(MessageWithdrawn))
        assert 2 == len(model.requests)
        assert 1 == len([message for message in on.session.messages if isinstance(message, AssistantMessage)])


async def test_a_cut_after_a_call_is_whole_keeps_it_runs_it_and_goes_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    probe = Probe()
    first = Turn(tool("Probe", {"name": "a"}, "t1"), text("cut before this is whole, " * 20, chunk=10))
    model = ScriptedModel([first, DONE], faults={1: Fault.cut(1500)})
    async with stage(tmp_path, model, probe) as on:
        result = await on.run()
        assert result.is_success
        assert [("t1", "a done", False)] == on.results()
        assert 1 == len([1 for _, what, _ in probe.log if what == "+"])
        assert 2 == len(model.requests)
        assert [] == on.of(MessageWithdrawn)


async def test_a_cut_after_a_whole_text_is_never_repeated_but_gone_on_from(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    first = Turn(text("The first part."), text("lost " * 200))
    model = ScriptedModel([first, Turn(text("The rest."))], faults={1: Fault.cut(1500)})
    async with stage(tmp_path, model) as on:
        result = await on.run()
        assert result.is_success
        assert "The rest." == result.text
        assert 2 == len(model.requests)
        assert ["go", notes.RESUME_CUT] == on.prompts()
        assert "The first part." == model.requests[1].messages[1]["content"][0]["text"]


async def test_a_server_that_cuts_after_every_text_ends_the_run(tmp_path: Path, autojump_clock: MockClock) -> None:
    turn = Turn(text("The first part."), text("lost " * 200))
    model = ScriptedModel([turn], repeat_last=True, faults=lambda number, request: Fault.cut(1500))
    async with stage(tmp_path, model) as on:
        result = await on.run()
        assert TerminalReason.API_ERROR is result.terminal_reason
        assert 4 == len(model.requests)


@pytest.mark.parametrize("after_bytes", [0, 1, 200, 500, 900])
async def test_a_server_that_stalls_is_cut_by_the_watchdog_and_asked_again(
    tmp_path: Path, autojump_clock: MockClock, after_bytes: int
) -> None:
    model = ScriptedModel([Turn(text("Some text. " * 50))], faults={1: Fault.stall(after_bytes)})
    async with stage(tmp_path, model) as on:
        assert (await on.run()).is_success
        assert 90 <= trio.current_time() <= 181


async def test_a_server_that_always_stalls_ends_the_run_with_a_reason(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([DONE], faults=lambda number, request: Fault.stall(300))
    async with stage(tmp_path, model) as on:
        result = await on.run()
        assert TerminalReason.API_ERROR is result.terminal_reason
        assert "stalled" == result.error_kind
        assert trio.current_time() < 1000


async def test_a_steering_message_joins_after_the_tools_of_this_turn(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"})), DONE])
    async with stage(tmp_path, model, Probe(behave=sleeping(a=2.0))) as on:
        async with on.session.submit("go") as run:
            async for event in run:
                on.take(event)
                if isinstance(event, ToolStarted):
                    await run.steer("and hurry")
        on.check()
        last_request = model.requests[-1].messages[-1]
        assert ["tool_result", "text"] == [block["type"] for block in last_request["content"]]
        assert ["and hurry"] == [m.message.content[0].text for m in on.of(UserMessageAdded)]  # type: ignore[union-attr]  # a text


async def test_a_steering_message_that_comes_at_the_end_takes_the_place_of_the_end(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Turn(text("done?", after=2.0)), Turn(text("now done"))])
    async with stage(tmp_path, model) as on:
        async with on.session.submit("go") as run:
            async for event in run:
                on.take(event)
                if isinstance(event, RequestStarted) and event.turn == 1:
                    await run.steer("one more thing")
        on.check()
        assert "now done" == run.result.text
        assert ["next_turn"] == [event.transition for event in on.of(TurnEnded)]


async def test_output_limit_is_raised_once_then_resumed_three_times(tmp_path: Path, autojump_clock: MockClock) -> None:
    cut = Turn(text("part"), stop_reason="max_tokens")
    model = ScriptedModel([cut, cut, cut, Turn(text("end"))])
    async with stage(tmp_path, model) as on:
        result = await on.run()
        assert result.is_success
        assert ["max_output_tokens_escalate", "max_output_tokens_recovery", "max_output_tokens_recovery"] == [
            event.transition for event in on.of(TurnEnded)
        ]
        assert [8000, 64000, 64000, 64000] == [request.body["max_tokens"] for request in model.requests]


async def test_output_limit_beyond_three_resumes_ends_the_run(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([Turn(text("part"), stop_reason="max_tokens")], repeat_last=True)
    async with stage(tmp_path, model) as on:
        result = await on.run()
        assert TerminalReason.API_ERROR is result.terminal_reason
        assert 5 == len(model.requests)


async def test_thinking_goes_back_byte_for_byte(tmp_path: Path, autojump_clock: MockClock) -> None:
    first = Turn(thinking("Hm, \u2028 well.", signature="c2ln"), tool("Probe", {"name": "a"}))
    model = ScriptedModel([first, DONE])
    async with stage(tmp_path, model, Probe()) as on:
        await on.run()
        sent = model.requests[1].messages[1]["content"][0]
        assert {"type": "thinking", "thinking": "Hm, \u2028 well.", "signature": "c2ln"} == sent


async def test_one_run_at_a_time(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with stage(tmp_path, ScriptedModel([DONE])) as on, on.session.submit("one") as run:
        with pytest.raises(SessionBusy):
            async with on.session.submit("two"):
                pass
        await run.wait()


async def test_a_long_result_goes_to_a_file_and_a_preview_to_the_model(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def behave(name: str, ctx: ToolContext) -> str:
        return "line\n" * 20_000

    model = ScriptedModel([Turn(tool("Probe", {}, "t1")), DONE])
    # trio.Path works in a thread: real time for it
    async with stage(tmp_path, model, Probe(behave=behave)) as on:
        await on.run()
        content = on.results()[0][1]
        assert len(content) < 4000
        kept = list(tmp_path.rglob("t1.txt"))  # noqa: ASYNC240  # the run is over
        assert ["line\n" * 20_000] == [path.read_text() for path in kept]
        assert str(kept[0]) in content


async def test_requests_share_their_prefix_byte_for_byte(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([Turn(tool("Probe", {"name": str(n)})) for n in range(4)] + [DONE])
    async with stage(tmp_path, model, Probe()) as on:
        await on.run()
    bodies = [request.body for request in model.requests]
    for earlier, later in itertools.pairwise(bodies):
        assert earlier["system"] == later["system"]
        assert earlier["tools"] == later["tools"]
        bare = [_without_marks(message) for message in earlier["messages"]]
        assert bare == [_without_marks(message) for message in later["messages"][: len(bare)]]


def _without_marks(message: dict[str, list[dict[str, object]]]) -> object:
    return [{key: value for key, value in block.items() if key != "cache_control"} for block in message["content"]]


async def test_two_runs_of_a_session_share_one_history(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([Turn(text("one")), Turn(text("two"))])
    async with stage(tmp_path, model) as on:
        first = await on.run("first")
        second = await on.run("second")
        assert ("one", "two") == (first.text, second.text)
        assert ["first", "second"] == on.prompts()
        assert 3 == len(model.requests[1].messages)
        assert second.num_turns == 1


async def test_blocks_are_told_the_moment_they_are_whole(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([Turn(text("one", after=1.0), text("two", after=2.0))])
    async with stage(tmp_path, model) as on:
        await on.run()
        times = [
            (event.block.text, when)
            for event, when in zip(on.events, on.times, strict=True)
            if isinstance(event, AssistantBlock) and isinstance(event.block, TextBlock)
        ]
        assert [("one", 1.0), ("two", 2.0)] == times


async def test_a_rate_limit_in_one_session_is_waited_out_by_all(tmp_path: Path, autojump_clock: MockClock) -> None:
    plan = FaultPlan(lambda number, request: Fault.status(429, retry_after=60) if trio.current_time() < 60 else None)
    model = ScriptedModel(by=lambda body: DONE, faults=plan)
    async with trio.open_nursery() as nursery:
        for number in range(20):

            async def one(number: int = number) -> None:
                async with stage(tmp_path / str(number), model) as on:
                    on.model = ScriptedModel()  # its violations are looked at below, once
                    assert (await on.run()).is_success

            (tmp_path / str(number)).mkdir()
            nursery.start_soon(one)
    assert [] == model.violations
    refused = [request for request in model.requests if request.at < 60]
    assert len(refused) <= 20
    assert len(model.requests) <= 20 + 20 + 5


def test_the_result_of_a_user_message_is_a_tool_result() -> None:
    block = ToolResultBlock("t", "x")
    assert (block,) == UserMessage(uuid="u", content=(block,)).content


async def test_a_run_tells_nothing_after_its_end(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with stage(tmp_path, ScriptedModel([DONE])) as on, on.session.submit("go") as run:
        seen = [event async for event in run]
        assert isinstance(seen[-1], RunEnded)
        assert [] == [event async for event in run]
        assert run.ended
