"""Summaries of a run: when they come, what they cost, and that the run never feels them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.agents import Probe, Stage, sleeping, stage
from trio.testing import MockClock

from atrio.actors.gate import gate_for
from atrio.actors.summarizer import ANSWER_LIMIT, EVERY
from atrio.actors.testing import Fault, RecordedRequest, ScriptedModel, Turn, text, thinking, tool
from atrio.runtime.errors import ConfigError
from atrio.runtime.events import (
    ActivitySummary,
    Event,
    Notice,
    ResponseEnded,
    ToolEnded,
    ToolStarted,
    ToolUseSummary,
    TurnEnded,
    UserMessageAdded,
)
from atrio.runtime.messages import JsonObject
from atrio.runtime.result import Result, TerminalReason

SMALL = "claude-haiku-4-5"
USAGE = {"input_tokens": 100, "output_tokens": 10}


class Cast:
    """
    A main model that calls the probe once for each of ``calls`` and then ends; and a small one, told apart by name,
    that says ``activity`` and ``batch``.
    """

    def __init__(
        self,
        *calls: str,
        activity: Turn | Callable[[int], Turn] | None = None,
        batch: Turn | None = None,
        pause: float = 1,
    ) -> None:
        self.calls = list(calls)
        self.pause = pause
        self.activity = activity or Turn(text("Reading things.py"), usage=USAGE)
        self.batch = batch or Turn(text("Found the bug"), usage=USAGE)
        self.asked: list[str] = []
        self.model = ScriptedModel(by=self)

    def __call__(self, body: JsonObject) -> Turn:
        if body["model"] == SMALL:
            assert not body.get("tools")
            question = str(body["messages"])
            self.asked.append(question)
            if "<calls>" in question:
                return self.batch
            return self.activity(len(self.asked)) if callable(self.activity) else self.activity
        if not self.calls:
            return Turn(thinking("hm"), text("done"), delay=self.pause)
        return Turn(text("I look."), tool("Probe", {"name": self.calls.pop(0)}), delay=self.pause)

    @property
    def small(self) -> list[RecordedRequest]:
        return [request for request in self.model.requests if request.body["model"] == SMALL]


def summed(on: Stage, kind: type[Event]) -> list[float]:
    return [at for at, event in zip(on.times, on.events, strict=True) if isinstance(event, kind)]


def staged(tmp_path: Path, cast: Cast, probe: Probe, **changes: Any) -> Any:
    options = {"summaries": True, "small_model": SMALL, "allowed_tools": ("Probe",), **changes}
    return stage(tmp_path, cast.model, probe, **options)


async def test_every_30_s_in_which_something_happened_there_is_a_summary(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    cast = Cast("a", "b", activity=lambda n: Turn(text(f"Doing part {n}")), batch=Turn(text("")))
    probe = Probe(behave=sleeping(a=200.0, b=40.0))
    async with staged(tmp_path, cast, probe) as on:
        begin = trio.current_time()
        assert (await on.run("Mend it.")).is_success
        # one while a runs (nothing new in the rest of its time), one for its end and b
        at = [moment - begin for moment in summed(on, ActivitySummary)]
        assert [EVERY, 210.0] == pytest.approx(at, abs=0.1)
        assert ["Doing part 1", "Doing part 3"] == [event.text for event in on.of(ActivitySummary)]
        assert "Mend it." in cast.asked[0]
        assert "Doing part 1" in cast.asked[2]


async def test_the_same_summary_is_not_told_twice(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast("a", "b", "c")
    async with staged(tmp_path, cast, Probe(behave=sleeping(a=29.0, b=29.0, c=29.0))) as on:
        await on.run()
        assert ["Reading things.py"] == [event.text for event in on.of(ActivitySummary)]
        assert 2 <= sum("<latest_steps>" in question for question in cast.asked)


async def test_a_batch_of_calls_is_summed_up_with_the_response_that_follows_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    cast = Cast("a", "b", batch=Turn(text("**Found the bug**."), delay=0.5, usage=USAGE), pause=5)
    async with staged(tmp_path, cast, Probe()) as on:
        await on.run()
        told = on.of(ToolUseSummary)
        assert ["Found the bug", "Found the bug"] == [event.text for event in told]
        assert [(event.call_id,) for event in on.of(ToolEnded)] == [event.call_ids for event in told]
        order = [type(event) for event in on.events if isinstance(event, ToolUseSummary | ResponseEnded | TurnEnded)]
        expected = [ResponseEnded, TurnEnded, ResponseEnded, ToolUseSummary, TurnEnded, ResponseEnded, ToolUseSummary]
        assert expected == order
        # hidden behind the model call: nothing took longer for it
        assert 3 * 5 == pytest.approx(on.times[-1] - on.times[0], abs=0.1)


async def test_a_summary_that_is_slower_than_the_next_response_comes_later(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    cast = Cast("a", "b", batch=Turn(text("Found the bug"), delay=4), pause=1)
    async with staged(tmp_path, cast, Probe(behave=sleeping(a=1.0, b=10.0))) as on:
        await on.run()
        # a response until 1, the call until 2, the summary from then on; b runs from 3 to 13
        told = [moment - on.times[0] for moment in summed(on, ToolUseSummary)]
        assert [6.0] == pytest.approx(told, abs=0.1)


async def test_what_summaries_cost_is_on_the_bill(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast("a")
    async with staged(tmp_path, cast, Probe(behave=sleeping(a=40.0))) as on:
        result = await on.run()
        assert 2 == len(cast.small)
        assert len(cast.model.requests) == sum(usage.requests for usage in result.model_usage.values())
        assert on.session._parts.ledger.by_model == result.model_usage


async def until(on: Stage, moment: float) -> Result:
    """A run that is interrupted then."""
    async with on.session.submit("go") as run:
        with trio.move_on_after(moment):
            async for event in run:
                on.take(event)
        run.interrupt()
        async for event in run:
            on.take(event)
    on.check()
    return run.result


@pytest.mark.parametrize(("moment", "paid"), [(0.5, 0), (29.0, 1), (30.5, 2), (33.0, 2)])
async def test_an_abort_ends_at_once_and_what_was_paid_for_is_booked(
    tmp_path: Path, autojump_clock: MockClock, moment: float, paid: int
) -> None:
    cast = Cast("a", activity=Turn(text("Reading things.py", after=15), usage=USAGE))
    async with staged(tmp_path, cast, Probe(behave=sleeping(a=60.0))) as on:
        begin = trio.current_time()
        result = await until(on, moment)
        assert moment == pytest.approx(trio.current_time() - begin, abs=0.2)
        assert result.terminal_reason in (TerminalReason.ABORTED_TOOLS, TerminalReason.ABORTED_STREAMING)
        assert paid == sum(usage.requests for usage in result.model_usage.values())


async def test_the_runs_own_usage_is_that_of_the_agent_alone(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast("a", batch=Turn(text("Found the bug"), usage={"input_tokens": 1_000_000, "output_tokens": 7}))
    async with staged(tmp_path, cast, Probe()) as on:
        result = await on.run()
        assert 1_000_000 <= sum(used.usage.input_tokens for used in result.model_usage.values())
        assert 1_000_000 > result.usage.input_tokens


# --- never felt -----------------------------------------------------------------------------------


def beside(fault: Fault) -> Callable[[int, JsonObject], Fault | None]:
    return lambda number, body: fault if body["model"] == SMALL else None


FAULTS = {
    "refused": Fault.refuse(),
    "status": Fault.status(500),
    "limited": Fault.status(429, headers={"retry-after": "3600"}),
    "overloaded": Fault.status(529),
    "unknown model": Fault.status(404),
    "cut": Fault.cut(80),
    "silent": Fault.stall(80),
    "no answer": Fault.stall(0),
    "garbage": Fault.garbage(),
    "page": Fault.html(),
    "slow": Fault.slow(3_000.0),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
async def test_a_small_model_that_fails_is_not_felt(tmp_path: Path, autojump_clock: MockClock, fault: Fault) -> None:
    cast = Cast("a", "b")
    cast.model = ScriptedModel(by=cast, faults=beside(fault))
    async with staged(tmp_path, cast, Probe(behave=sleeping(a=40.0, b=40.0))) as on:
        result = await on.run()
        assert result.is_success
        assert 3 + 80 == pytest.approx(result.duration, abs=0.2)
        assert [] == on.of(Notice)
        assert [] == [*on.of(ActivitySummary), *on.of(ToolUseSummary)]
        assert not gate_for(on.session._parts.provider.endpoint).limited
        assert 2 <= len(cast.small)


ANSWERS = {
    "empty": Turn(text(" \n ")),
    "long": Turn(text("I am now looking at the file in order to find out what is going wrong in there")),
    "cut": Turn(text("Reading the"), stop_reason="max_tokens"),
    "refused": Turn(text("No."), stop_reason="refusal"),
    "thinking": Turn(thinking("hm")),
    "call": Turn(tool("Probe", {"name": "x"})),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))
async def test_an_answer_that_is_none_is_not_told(tmp_path: Path, autojump_clock: MockClock, answer: Turn) -> None:
    cast = Cast("a", activity=answer, batch=answer)
    async with staged(tmp_path, cast, Probe(behave=sleeping(a=40.0))) as on:
        assert (await on.run()).is_success
        assert [] == [*on.of(ActivitySummary), *on.of(ToolUseSummary), *on.of(Notice)]


async def test_a_summary_that_comes_too_late_is_given_up(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast("a", activity=Turn(text("Reading things.py"), delay=ANSWER_LIMIT + 1))
    async with staged(tmp_path, cast, Probe(behave=sleeping(a=EVERY + ANSWER_LIMIT + 30))) as on:
        await on.run()
        assert [] == on.of(ActivitySummary)


async def test_the_summarizers_crash_is_nothing_to_the_run(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast("a", "b")
    async with staged(tmp_path, cast, Probe(behave=sleeping(a=40.0, b=40.0))) as on:
        run_names: list[list[str]] = []

        def look(event: Event) -> bool:
            names = [info.name for info in on.session.tree()]
            run_names.append(names[names.index("loop") :] if "loop" in names else [])
            if isinstance(event, ToolEnded) and event.call_id == on.of(ToolEnded)[0].call_id:
                # No event at all: whoever looks into it fails.
                for subscription in on.session._parts.bus._subscriptions:
                    if not subscription._wants_partials:
                        subscription.put(Broken())
            return False

        result = await on.run(until=look)
        assert result.is_success
        assert [] == on.of(Notice)
        assert "summarizer" in run_names[5]
        assert [] == on.of(ToolUseSummary)
        assert [] == [one for one in on.session._parts.bus._subscriptions if not one._wants_partials]


class Broken(UserMessageAdded):
    """An event that can't be looked at."""

    def __init__(self) -> None:
        super().__init__(message=None)  # type: ignore[arg-type]  # the defect


async def test_nobody_is_asked_while_the_server_limits_requests(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast("a")
    async with staged(tmp_path, cast, Probe(behave=sleeping(a=70.0))) as on:

        def look(event: Event) -> bool:
            if isinstance(event, ToolStarted):
                gate_for(on.session._parts.provider.endpoint).close_for(5.0)
            return False

        assert (await on.run(until=look)).is_success
        assert [] == [request for request in cast.small if request.at < on.times[0] + 65]


# --- off ------------------------------------------------------------------------------------------


async def test_nothing_is_asked_unless_it_is_wanted(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast("a")
    async with staged(tmp_path, cast, Probe(behave=sleeping(a=100.0)), summaries=False) as on:
        names: set[str] = set()

        def look(event: Event) -> bool:
            names.update(info.name for info in on.session.tree())
            return False

        await on.run(until=look)
        assert "summarizer" not in names
        assert [] == cast.small


async def test_without_a_small_model_the_main_one_is_asked(tmp_path: Path, autojump_clock: MockClock) -> None:
    def pick(body: JsonObject) -> Turn:
        if "<calls>" in str(body["messages"]) and not body.get("tools"):
            return Turn(text("Found the bug"))
        return Turn(text("done")) if len(body["messages"]) > 1 else Turn(tool("Probe", {"name": "a"}))

    async with stage(tmp_path, ScriptedModel(by=pick), Probe(), summaries=True) as on:
        await on.run()
        await on.run("and again")
        assert {"scripted-1"} == set(on.session._parts.ledger.by_model)


async def test_a_budget_can_not_be_kept_with_a_small_model_of_unknown_price(tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": "claude-sonnet-4-5", "max_budget_usd": 1.0, "small_model": "who-knows"}
    with pytest.raises(ConfigError, match="the price of who-knows is not known"):
        async with stage(tmp_path, ScriptedModel(), summaries=True, **options):
            raise AssertionError("it was opened")
    async with stage(tmp_path, ScriptedModel(), **options):
        assert True
