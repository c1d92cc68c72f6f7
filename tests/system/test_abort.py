"""Aborts: whatever ends a run from outside, it answers its calls, keeps its record and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from tests.support.agents import Probe, Stage, sleeping, stage
from trio.testing import MockClock

from atrio.actors import Run
from atrio.actors.testing import Fault, ScriptedModel, Turn, text, thinking, tool
from atrio.runtime import notes
from atrio.runtime.events import Event, RequestStarted, RunEnded, RunStarted, TextDelta, ToolStarted
from atrio.runtime.result import TerminalReason
from atrio.runtime.tool import ToolContext

DONE = Turn(text("done"))

Abort = Callable[[Stage, type[Event]], Awaitable[Run]]


async def by_interrupt(on: Stage, at: type[Event]) -> Run:
    async with on.session.submit("go") as run:
        async for event in run:
            on.take(event)
            if isinstance(event, at):
                run.interrupt()
    return run


async def by_leaving(on: Stage, at: type[Event]) -> Run:
    async with on.session.submit("go") as run:
        async for event in run:
            on.take(event)
            if isinstance(event, at):
                break
    async for event in run:
        on.take(event)
    return run


async def by_error(on: Stage, at: type[Event]) -> Run:
    with pytest.raises(LookupError, match="mine"):  # noqa: PT012  # the block is the subject
        async with on.session.submit("go") as run:
            async for event in run:
                on.take(event)
                if isinstance(event, at):
                    raise LookupError("mine")
    async for event in run:
        on.take(event)
    return run


async def by_scope(on: Stage, at: type[Event]) -> Run:
    with trio.CancelScope() as scope:
        async with on.session.submit("go") as run:
            async for event in run:
                on.take(event)
                if isinstance(event, at):
                    scope.cancel(reason="test")
    assert scope.cancelled_caught
    async for event in run:
        on.take(event)
    return run


ABORTS = pytest.mark.parametrize("abort", [by_interrupt, by_leaving, by_error, by_scope])


@ABORTS
@pytest.mark.parametrize("at", [RunStarted, RequestStarted, TextDelta])
async def test_an_abort_while_the_model_streams(
    tmp_path: Path, autojump_clock: MockClock, abort: Abort, at: type[Event]
) -> None:
    model = ScriptedModel([Turn(text("a b c d", chunk=1), pace=1.0), DONE])
    async with stage(tmp_path, model) as on:
        run = await abort(on, at)
        on.check()
        assert TerminalReason.ABORTED_STREAMING is run.result.terminal_reason
        assert trio.current_time() < 10
        assert ["go", notes.INTERRUPTED] == on.prompts()
        assert (await on.run("again")).is_success


@ABORTS
async def test_an_abort_while_tools_run(tmp_path: Path, autojump_clock: MockClock, abort: Abort) -> None:
    probe = Probe(behave=sleeping(a=60.0, b=60.0))
    calls = [tool("Probe", {"name": "a"}, "ta"), tool("Probe", {"name": "b"}, "tb")]
    model = ScriptedModel([Turn(*calls), DONE])
    async with stage(tmp_path, model, probe) as on:
        run = await abort(on, ToolStarted)
        on.check()
        assert run.result.terminal_reason in (TerminalReason.ABORTED_TOOLS, TerminalReason.ABORTED_STREAMING)
        assert 0 == trio.current_time()
        assert [("ta", notes.INTERRUPTED_CALL, True), ("tb", notes.INTERRUPTED_CALL, True)] == on.results()
        assert (await on.run("again")).is_success


async def test_a_tool_that_blocks_interruption_gets_its_grace(tmp_path: Path, autojump_clock: MockClock) -> None:
    quick = Probe("Quick", behave=sleeping(q=3.0), interrupt="block", grace=5.0)
    slow = Probe("Slow", behave=sleeping(s=30.0), interrupt="block", grace=5.0)
    model = ScriptedModel([Turn(tool("Quick", {"name": "q"}, "tq"), tool("Slow", {"name": "s"}, "ts")), DONE])
    async with stage(tmp_path, model, quick, slow) as on:
        async with on.session.submit("go") as run:
            async for event in run:
                on.take(event)
                if isinstance(event, ToolStarted) and event.call_id == "ts":
                    run.interrupt()
        on.check()
        assert [("tq", "q done", False), ("ts", notes.INTERRUPTED_CALL, True)] == on.results()
        assert 5.0 == trio.current_time()
        assert TerminalReason.ABORTED_TOOLS is run.result.terminal_reason


async def test_what_was_complete_is_kept_and_what_was_not_is_withdrawn(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    turn = Turn(thinking("hm"), text("whole", after=1.0), text("never whole", after=60.0))
    async with stage(tmp_path, ScriptedModel([turn, DONE])) as on:
        async with on.session.submit("go") as run:
            with trio.move_on_after(5):
                async for event in run:
                    on.take(event)
            run.interrupt()
            async for event in run:
                on.take(event)
        on.check()
        await on.run("again")
        sent = on.model.requests[-1].messages
        assert ["thinking", "text"] == [block["type"] for block in sent[1]["content"]]
        assert "whole" == sent[1]["content"][1]["text"]


@pytest.mark.parametrize("moment", [0.0, 0.25, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5])
async def test_an_abort_at_any_moment_leaves_a_valid_record(
    tmp_path: Path, autojump_clock: MockClock, moment: float
) -> None:
    calls = [tool("Probe", {"name": "a"}, after=1.0), tool("Probe", {"name": "b"}, after=2.0)]
    model = ScriptedModel([Turn(thinking("hm", after=0.5), *calls, text("end", after=3.0)), DONE])
    async with stage(tmp_path, model, Probe(behave=sleeping(a=1.5, b=1.5))) as on:
        async with on.session.submit("go") as run:
            with trio.move_on_after(moment):
                async for event in run:
                    on.take(event)
            run.interrupt()
            async for event in run:
                on.take(event)
        on.check()
        assert (await on.run("again")).is_success


@pytest.mark.parametrize("steps", range(0, 400, 7))
async def test_an_abort_at_any_step_leaves_a_valid_record(
    tmp_path: Path, autojump_clock: MockClock, steps: int
) -> None:
    calls = [tool("Probe", {"name": "a"}), tool("Probe", {"name": "b"})]
    model = ScriptedModel(
        [Turn(thinking("hm"), *calls, text("end")), DONE], repeat_last=True, faults={3: Fault.status(529)}
    )
    async with stage(tmp_path, model, Probe(behave=sleeping(a=0.0, b=0.0))) as on:
        async with trio.open_nursery() as nursery:

            async def strike() -> None:
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel(reason="test")

            async with on.session.submit("go") as run:
                nursery.start_soon(strike)
                async for event in run:
                    on.take(event)
            nursery.cancel_scope.cancel(reason="the run is over")
        async for event in run:
            on.take(event)
        on.check()
        assert (await on.run("again")).is_success


async def test_a_stuck_approval_does_not_hold_up_an_abort(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def never(name: str, input: object, ctx: ToolContext) -> bool:
        await trio.sleep_forever()
        return True

    probe = Probe(permission="ask")
    async with stage(tmp_path, ScriptedModel([Turn(tool("Probe", {})), DONE]), probe, can_use_tool=never) as on:
        async with on.session.submit("go") as run:
            with trio.move_on_after(2):
                await run.wait()
        async for event in run:
            on.take(event)
        assert isinstance(on.events[-1], RunEnded)
        assert 2 == trio.current_time()
        assert [] == probe.log
