"""Sessions in a window that they outgrow: projected, compacted, and never refused for it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.agents import Probe, Stage, stage
from trio.testing import MockClock

from atrio.actors.testing import Fault, ScriptedModel, Turn, text, thinking, tool
from atrio.runtime.errors import ContextExhausted, SessionBusy
from atrio.runtime.events import CacheBroken, ContextCompacted, Notice
from atrio.runtime.messages import SystemMessage, text_of
from atrio.runtime.result import TerminalReason
from atrio.runtime.tool import ToolContext
from atrio.runtime.window import WindowSettings

DONE = Turn(text("All done."))
WINDOW = 20_000
SUMMARY = Turn(text("<summary>The files were read and the plan is clear.</summary>"))


def is_summary(body: Any) -> bool:
    return "Request and intent" in str(body["messages"][-1])


class Talk:
    """A model that calls the probe so many times, then ends; and writes the summaries it is asked for."""

    def __init__(self, calls: int, *summaries: Turn) -> None:
        self.left = calls
        self.summaries = list(summaries) or [SUMMARY]
        self.asked = 0

    def __call__(self, body: Any) -> Turn:
        if is_summary(body):
            self.asked += 1
            return self.summaries[min(self.asked, len(self.summaries)) - 1]
        if self.left == 0:
            return DONE
        self.left -= 1
        return Turn(thinking("hm"), tool("Probe", {"name": f"c{self.left}"}))


async def much(name: str, ctx: ToolContext) -> str:
    return f"{name}: " + "lorem ipsum dolor sit amet " * 300


async def test_a_full_context_is_compacted_and_the_run_goes_on(tmp_path: Path, autojump_clock: MockClock) -> None:
    talk = Talk(30)
    model = ScriptedModel(by=talk)
    async with stage(tmp_path, model, Probe(behave=much), context_window=WINDOW, max_repeats=None) as on:
        result = await on.run("Find the answer to everything.")
        assert result.is_success
        compactions = on.of(ContextCompacted)
        assert 2 <= len(compactions) <= 10
        assert {"auto"} == {event.trigger for event in compactions}
        assert all(event.post_tokens is not None and event.post_tokens < event.pre_tokens for event in compactions)
        assert isinstance(on.session.messages[0], SystemMessage)
        # what was asked for survives byte for byte, and what it costs is on the bill
        assert "Find the answer to everything." in on.prompts()
        assert len(model.requests) == sum(usage.requests for usage in result.model_usage.values())


async def test_requests_between_compactions_share_their_prefix(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel(by=Talk(12))
    async with stage(tmp_path, model, Probe(behave=much), context_window=60_000, max_repeats=None) as on:
        await on.run()
    bodies = [request.body for request in model.requests if not is_summary(request.body)]
    broken = 0
    for earlier, later in itertools.pairwise(bodies):
        before = [bare(message) for message in earlier["messages"]]
        broken += before != [bare(message) for message in later["messages"][: len(before)]]
    assert broken <= len(model.requests) - len(bodies)


def bare(message: Any) -> Any:
    return [{key: value for key, value in block.items() if key != "cache_control"} for block in message["content"]]


@pytest.mark.parametrize(
    "summary",
    [
        Turn(text(" ")),
        Turn(thinking("only thinking")),
        Turn(text("cut"), stop_reason="max_tokens"),
        Turn(text("I won't."), stop_reason="refusal"),
        Turn(text("<summary>" + "far too much to say " * 20_000 + "</summary>", chunk=100_000)),
        Turn(tool("Probe", {"name": "instead"})),
    ],
    ids=["empty", "thinking", "cut", "refused", "long", "tool"],
)
async def test_a_summary_that_is_none_costs_a_try_and_is_told(
    tmp_path: Path, autojump_clock: MockClock, summary: Turn
) -> None:
    model = ScriptedModel(by=Talk(14, summary, SUMMARY), validate=False)
    async with stage(tmp_path, model, Probe(behave=much), context_window=WINDOW, max_repeats=None) as on:
        assert (await on.run()).is_success
        assert any("could not be compacted" in notice.text for notice in on.of(Notice))
        assert on.of(ContextCompacted)


async def test_compaction_that_is_broken_for_good_still_lets_the_session_end_and_a_manual_one_helps(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    talk = Talk(200, Turn(text("I won't."), stop_reason="refusal"))
    model = ScriptedModel(by=talk)
    async with stage(tmp_path, model, Probe(behave=much), context_window=WINDOW, max_repeats=None) as on:
        result = await on.run()
        assert TerminalReason.BLOCKING_LIMIT is result.terminal_reason
        assert 3 == talk.asked
        talk.summaries, talk.left = [SUMMARY], 0
        await on.session.compact("keep the names")
        assert "keep the names" in str(model.requests[-1].body["messages"][-1])
        assert (await on.run("go on")).is_success


async def test_a_summary_that_never_comes_is_given_up(tmp_path: Path, autojump_clock: MockClock) -> None:
    def stall(number: int, body: Any) -> Fault | None:
        return Fault.stall(300) if is_summary(body) else None

    model = ScriptedModel(by=Talk(200), faults=stall)
    async with stage(tmp_path, model, Probe(behave=much), context_window=WINDOW, max_repeats=None) as on:
        result = await on.run()
        assert TerminalReason.BLOCKING_LIMIT is result.terminal_reason
        assert trio.current_time() < 3 * 700


async def test_single_results_that_fill_the_window_end_the_run_by_name(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def huge(name: str, ctx: ToolContext) -> str:
        return "word " * 9_000

    model = ScriptedModel(by=Talk(100))
    async with stage(tmp_path, model, Probe(behave=huge), context_window=WINDOW, max_repeats=None) as on:
        result = await on.run()
        assert result.terminal_reason in (TerminalReason.RAPID_REFILL_BREAKER, TerminalReason.BLOCKING_LIMIT)
        assert len(model.requests) < 40


async def test_with_compaction_off_the_limit_is_named_before_a_request_is_wasted(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel(by=Talk(100))
    async with stage(
        tmp_path,
        model,
        Probe(behave=much),
        context_window=WINDOW,
        context=WindowSettings(compact=False, auto_compact=False),
        max_repeats=None,
    ) as on:
        result = await on.run()
        assert TerminalReason.BLOCKING_LIMIT is result.terminal_reason
        assert [] == on.of(ContextCompacted)


async def test_a_compactor_that_crashes_costs_one_compaction(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel(by=Talk(3))
    async with stage(tmp_path, model, Probe(behave=much)) as on:
        keeper = on.session._parts.keeper
        whole = keeper.calibration

        class Deadly:
            def ratio(self, model: str) -> float:
                keeper.calibration = whole
                raise RuntimeError("the compactor was killed")

        keeper.calibration = Deadly()  # type: ignore[assignment]
        result = await on.run()
        assert result.is_success
        assert ["compactor"] == [notice.source for notice in on.of(Notice)]


async def test_a_manual_compaction_needs_an_idle_session_and_something_to_gain(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with stage(tmp_path, ScriptedModel(by=Talk(0))) as on:
        await on.run()
        with pytest.raises(ContextExhausted, match="no shorter"):
            await on.session.compact()
        async with on.session.submit("again") as run:
            with pytest.raises(SessionBusy):
                await on.session.compact()
            await run.wait()


async def test_steering_during_a_compaction_is_not_lost(tmp_path: Path, autojump_clock: MockClock) -> None:
    def slow(number: int, body: Any) -> Fault | None:
        return Fault.slow(delay=20.0) if is_summary(body) else None

    model = ScriptedModel(by=Talk(12), faults=slow)
    async with stage(tmp_path, model, Probe(behave=much), context_window=WINDOW, max_repeats=None) as on:
        async with on.session.submit("go") as run, trio.open_nursery() as nursery:

            async def steer() -> None:
                await trio.sleep(10)
                await run.steer("and hurry")

            nursery.start_soon(steer)
            async for event in run:
                on.take(event)
        on.check()
        assert any("and hurry" in text_of(m.content) for m in on.session.messages if not isinstance(m, SystemMessage))


async def windows(on: Stage, model: ScriptedModel) -> list[int]:
    return [len(str(request.body["messages"])) for request in model.requests]


async def test_two_hundred_turns_stay_within_the_window(tmp_path: Path, autojump_clock: MockClock) -> None:
    talk = Talk(200)
    model = ScriptedModel(by=talk, validate=False)
    async with stage(tmp_path, model, Probe(behave=much), context_window=WINDOW, max_repeats=None) as on:
        result = await on.run()
        assert result.is_success
        assert 201 == result.num_turns
        assert talk.asked <= 60
        assert max(await windows(on, model)) < WINDOW * 6


async def test_the_project_is_told_once_and_at_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Always answer in rhyme.\n")
    (tmp_path / ".claude" / "skills" / "deploy").mkdir(parents=True)
    (tmp_path / ".claude" / "skills" / "deploy" / "SKILL.md").write_text(
        "---\nname: deploy\ndescription: How to deploy: with care\n---\nDo it.\n"
    )
    model = ScriptedModel([Turn(tool("Probe", {})), DONE])
    async with stage(tmp_path, model, Probe(), session={"project": True}) as on:
        assert (await on.run()).is_success
        assert ["go"] == on.prompts()
    for request in model.requests:
        assert "Always answer in rhyme." in request.body["messages"][0]["content"][0]["text"]
        assert "deploy" in str(request.body["system"])


async def test_a_broken_prompt_cache_is_named(tmp_path: Path, autojump_clock: MockClock) -> None:
    usage = [{"cache_read_input_tokens": 50_000}, {"cache_read_input_tokens": 0}]
    model = ScriptedModel([Turn(tool("Probe", {}), usage=usage[0]), Turn(text("done"), usage=usage[1])])
    async with stage(tmp_path, model, Probe(), context_window=500_000) as on:
        await on.run()
        assert [(50_000, 0, ())] == [(e.tokens_before, e.tokens_now, e.changes) for e in on.of(CacheBroken)]
