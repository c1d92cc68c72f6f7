"""What the simulator found, each as the smallest session that shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.support.agents import Probe, sleeping, stage
from trio.testing import MockClock

from atrio.actors import Dependencies
from atrio.actors.dependencies import Prepared
from atrio.actors.testing import Fault, ScriptedModel, Turn, text, tool
from atrio.actors.watchdog import IdleLimits, PulseBoard
from atrio.runtime import notes
from atrio.runtime.errors import PeerGone
from atrio.runtime.events import Notice, RetryScheduled, RunEnded, ToolStarted
from atrio.runtime.ledger import Ledger
from atrio.runtime.messages import Message, Usage
from atrio.runtime.model import ModelFailure
from atrio.runtime.prices import Catalogue
from atrio.runtime.replay import replay_file
from atrio.runtime.result import TerminalReason
from atrio.runtime.tool import ToolContext

DONE = Turn(text("done"))
TOO_LONG = Fault.status(400, message="prompt is too long: 210000 tokens > 200000 maximum")
NONSENSE: Any = None


@given(began=st.floats(0, 1e9), limit=st.floats(0.1, 1e5))
def test_a_watchdog_that_looks_when_it_said_has_something_to_say(began: float, limit: float) -> None:
    """Rounding made the time to look again the present time, over and over."""
    board, warnings = PulseBoard(), list[Any]()

    async def watch() -> None:
        with board.watching(IdleLimits(event=None, byte=limit), warnings.append) as pulse:
            pulse.last_byte = began
            half = pulse.check(began)
            assert half > began
            end = pulse.check(half)
            assert 1 == len(warnings)
            assert end > half
            pulse.check(end)
            assert pulse.fired is not None

    trio.run(watch)


@pytest.mark.parametrize("steps", range(12))
async def test_a_message_is_in_the_history_or_refused(tmp_path: Path, autojump_clock: MockClock, steps: int) -> None:
    """Accepted while the run said its last words, it was lost."""
    outcome: list[str] = []
    async with stage(tmp_path, ScriptedModel([Turn(text("slow", after=9.0))])) as on:

        async def steer_late() -> None:
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            try:
                await run.steer("one more thing")
            except PeerGone:
                outcome.append("refused")
            else:
                outcome.append("accepted")

        async with trio.open_nursery() as nursery, on.session.submit("go") as run:
            await trio.sleep(1)
            run.interrupt()
            nursery.start_soon(steer_late)
        async for event in run:
            on.take(event)
        on.check()
        assert outcome == ["accepted" if "one more thing" in on.prompts() else "refused"]


async def test_a_loop_that_fails_while_it_is_stopped_ends_its_run_all_the_same(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The terminal event was missing."""
    async with stage(tmp_path, ScriptedModel([Turn(text("slow", after=9.0)), DONE])) as on:
        with pytest.raises(AssertionError):  # noqa: PT012
            async with on.session.submit("go") as run:
                await trio.sleep(1)
                tree: Any = on.session._tree
                run.interrupt()
                for _ in range(2):
                    tree.loop.offer(NONSENSE)
        async for event in run:
            on.take(event)
        on.check()
        assert isinstance(on.events[-1], RunEnded)
        assert TerminalReason.MODEL_ERROR is run.result.terminal_reason
        assert (await on.run("again")).is_success


async def test_when_the_loop_fails_no_call_runs_that_has_its_result_already(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The calls were answered while the executor still went on."""
    probe = Probe(behave=sleeping(a=3.0, b=3.0), interrupt="block")
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"}, "ta"), tool("Probe", {"name": "b"}, "tb")), DONE])
    async with stage(tmp_path, model, probe, options={"tool_concurrency": 1}) as on:
        with pytest.raises(AssertionError):  # noqa: PT012
            async with on.session.submit("go") as run:
                async for event in run:
                    on.take(event)
                    if isinstance(event, ToolStarted):
                        tree: Any = on.session._tree
                        tree.loop.offer(NONSENSE)
        async for event in run:
            on.take(event)
        on.check()
        assert [("ta", "a done", False), ("tb", notes.INTERRUPTED_CALL, True)] == on.results()
        assert [("a", "+", 0.0), ("a", "-", 3.0)] == probe.log
        assert TerminalReason.MODEL_ERROR is run.result.terminal_reason
        assert {} == replay_file(on.session.journal).started
        assert (await on.run("again")).is_success


async def test_a_tool_that_returns_nothing_fails_its_call_and_nothing_else(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """It took the executor, and its siblings, with it."""

    class Careless(Probe):
        async def run(self, input: Any, ctx: ToolContext) -> Any:
            return None

    async with stage(tmp_path, ScriptedModel([Turn(tool("Probe", {}, "ta")), DONE]), Careless()) as on:
        assert (await on.run()).is_success
        assert [] == on.of(Notice)
        told = "Probe failed unexpectedly: TypeError: its run method returned NoneType, not ToolOutput"
        assert [("ta", told, True)] == on.results()


async def test_when_a_part_fails_for_good_the_others_end_before_the_run_does(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Calls were answered in the name of the lost part while the executor still went on with them."""

    class Deadly:
        def check(self, now: float) -> float:
            raise LookupError("the watchdog was killed")

    probe = Probe(behave=sleeping(a=3.0), interrupt="block")
    async with stage(tmp_path, ScriptedModel([Turn(tool("Probe", {"name": "a"}, "ta")), DONE]), probe) as on:
        with pytest.raises(LookupError):  # noqa: PT012
            async with on.session.submit("go") as run:
                async for event in run:
                    on.take(event)
                    if isinstance(event, ToolStarted):
                        tree: Any = on.session._tree
                        tree._board._pulses.append(Deadly())
                        tree._board.touch()
        async for event in run:
            on.take(event)
        on.check()
        assert [("ta", "a done", False)] == on.results()
        assert TerminalReason.MODEL_ERROR is run.result.terminal_reason
        assert "the watchdog failed for good" in run.result.errors[0]


async def test_a_call_that_waits_is_not_begun_after_an_abort(tmp_path: Path, autojump_clock: MockClock) -> None:
    """One that blocks interruption began when its turn came, shielded, and without any limit."""
    probe = Probe(behave=sleeping(a=3.0, b=1e6), interrupt="block")
    calls = [tool("Probe", {"name": "a"}, "ta"), tool("Probe", {"name": "b"}, "tb")]
    async with stage(tmp_path, ScriptedModel([Turn(*calls), DONE]), probe, options={"tool_concurrency": 1}) as on:
        async with on.session.submit("go") as run:
            await trio.sleep(1)
            run.interrupt()
        async for event in run:
            on.take(event)
        on.check()
        assert [("ta", "a done", False), ("tb", notes.INTERRUPTED_CALL, True)] == on.results()
        assert [("a", "+", 0.0), ("a", "-", 3.0)] == probe.log
        assert 3.0 == trio.current_time()


async def test_a_compaction_that_hangs_is_given_up(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def hangs(messages: tuple[Message, ...], level: str, failure: ModelFailure) -> tuple[Message, ...]:
        await trio.sleep_forever()
        return messages

    deps = Dependencies(jitter=lambda: 0.0, autocompact=hangs)
    async with stage(tmp_path, ScriptedModel([DONE], faults={1: TOO_LONG}), deps=deps) as on:
        result = await on.run()
        assert TerminalReason.PROMPT_TOO_LONG is result.terminal_reason
        assert (await on.run("again")).is_success


async def test_a_preparation_that_hangs_is_given_up(tmp_path: Path, autojump_clock: MockClock) -> None:
    async def hangs(messages: tuple[Message, ...]) -> Prepared:
        await trio.sleep_forever()
        return Prepared(messages=messages)

    async with stage(tmp_path, ScriptedModel([DONE]), deps=Dependencies(prepare=hangs)) as on:
        result = await on.run()
        assert TerminalReason.TURN_SETUP_FAILED is result.terminal_reason
        assert "took more than" in result.errors[0]


async def test_the_gate_is_open_again_when_the_announced_wait_is_over(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A server that asked for a day was asked again after a day, though six hours had been announced."""
    model = ScriptedModel([DONE], faults={1: Fault.status(529, retry_after=86_400)})
    async with stage(tmp_path, model, options={"unattended": True}) as on:
        assert (await on.run()).is_success
        assert [0.0, 6 * 3600.0] == [request.at for request in model.requests]
        assert [6 * 3600.0] == [event.until for event in on.of(RetryScheduled)]


async def test_after_a_wait_that_is_too_long_the_next_submission_does_not_wait_that_long(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([DONE], faults={1: Fault.status(429, retry_after=86_400)})
    async with stage(tmp_path, model) as on:
        assert TerminalReason.API_ERROR is (await on.run()).terminal_reason
        assert 0.0 == trio.current_time()
        assert (await on.run("again")).is_success
        assert 300.0 == trio.current_time()


async def test_a_summary_that_was_limited_does_not_close_the_gate_for_a_day(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([DONE], faults={1: TOO_LONG, 2: Fault.status(429, retry_after=86_400)})
    async with stage(tmp_path, model) as on:
        assert TerminalReason.PROMPT_TOO_LONG is (await on.run()).terminal_reason
        assert (await on.run("again")).is_success
        assert 300.0 == trio.current_time()


def test_a_ledger_of_any_length_keeps_the_latest_responses_and_the_sums() -> None:
    """It kept every response of a run, and each of them twice."""
    ledger = Ledger(Catalogue.load())
    usage = Usage(input_tokens=1, output_tokens=2, reported=True)
    for number in range(3000):
        ledger.record(f"msg_{number}", "claude-haiku-4-5" if number % 2 else "claude-sonnet-4-5", usage)
    # What comes again takes the place of what came before.
    ledger.record("msg_2990", "claude-haiku-4-5", attrs.evolve(usage, output_tokens=5))
    assert Usage(input_tokens=3000, output_tokens=6003, reported=True) == ledger.usage
    assert {"claude-sonnet-4-5": 1499, "claude-haiku-4-5": 1501} == {
        model: entry.requests for model, entry in ledger.by_model.items()
    }
    assert ledger.cost_usd == pytest.approx((1499 * (3 + 2 * 15) + 1501 * (1 + 2 * 5) + 3 * 5) / 1e6)
    assert len(ledger._responses) <= 1024
