"""Messages for a run in progress: when they reach the model, and that they do so once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.agents import Probe, Stage, config, sleeping, stage
from trio.testing import MockClock

from atrio.actors import Agent, open_session
from atrio.actors.run import Run
from atrio.actors.testing import ScriptedModel, Turn, text, thinking, tool
from atrio.runtime.errors import PeerGone
from atrio.runtime.events import AssistantBlock, ContextCompacted, MessageWithdrawn, ToolStarted
from atrio.runtime.messages import Message, TextBlock, UserMessage
from atrio.runtime.records import Priority, QueueRecord
from atrio.runtime.replay import read_records
from atrio.runtime.result import TerminalReason

DONE = Turn(text("All done."))


def said(messages: Sequence[Message], wanted: str) -> int:
    return sum(
        block.text == wanted
        for message in messages
        if isinstance(message, UserMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    )


async def run_and_say(on: Stage, words: str, priority: Priority, *, at: float) -> Run:
    """One run, into which something is said after ``at`` seconds."""

    async def say() -> None:
        await trio.sleep(at)
        await run.steer(words, priority)

    on.events, on.times = [], []
    async with on.session.submit("go") as run, trio.open_nursery() as nursery:
        nursery.start_soon(say)
        async for event in run:
            on.take(event)
    on.check()
    return run


def last_texts(model: ScriptedModel, number: int) -> list[str]:
    content = model.requests[number].body["messages"][-1]["content"]
    return [content] if isinstance(content, str) else [block.get("text", block["type"]) for block in content]


# --- priorities -----------------------------------------------------------------------------------


async def test_now_breaks_the_stream_off_and_keeps_what_is_complete(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([Turn(text("First.", after=1.0), text("Second.", after=60.0)), Turn(text("As you say."))])
    async with stage(tmp_path, model) as on:
        run = await run_and_say(on, "stop that", "now", at=5.0)

        assert ("As you say.", TerminalReason.COMPLETED) == (run.result.text, run.result.terminal_reason)
        assert trio.current_time() < 10
        first = model.requests[1].body["messages"][1]
        assert ("assistant", ["First."]) == (first["role"], [block["text"] for block in first["content"]])
        assert ["stop that"] == last_texts(model, 1)


async def test_now_withdraws_a_response_of_which_nothing_but_thinking_is_complete(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    turns = iter([Turn(thinking("Hm.", after=1.0), text("Late.", after=60.0)), DONE])
    model = ScriptedModel(by=lambda request: next(turns))
    async with stage(tmp_path, model) as on:
        await run_and_say(on, "stop that", "now", at=5.0)

        assert 1 == len(on.of(MessageWithdrawn))
        assert ["go", "stop that"] == last_texts(model, 1)
        assert trio.current_time() < 10


async def test_now_lets_calls_that_have_begun_come_to_their_end(tmp_path: Path, autojump_clock: MockClock) -> None:
    probe = Probe(behave=sleeping(a=8.0))
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"}, after=1.0), text("more", after=60.0)), DONE])
    async with stage(tmp_path, model, probe) as on:
        await run_and_say(on, "and hurry", "now", at=5.0)

        assert [("a", "+", 1.0), ("a", "-", 9.0)] == probe.log
        assert ["tool_result", "and hurry"] == last_texts(model, 1)
        assert 9.0 <= trio.current_time() < 15


async def test_now_between_two_requests_joins_the_one_that_follows(tmp_path: Path, autojump_clock: MockClock) -> None:
    model = ScriptedModel([DONE])
    async with stage(tmp_path, model) as on, on.session.submit("go") as run:
        # The loop has not begun yet.
        await run.steer("and hurry", "now")
        await run.wait()

        assert ["go", "and hurry"] == last_texts(model, 0)


async def test_later_takes_the_place_of_the_end(tmp_path: Path, autojump_clock: MockClock) -> None:
    calls = Turn(tool("Probe", {"name": "a"}))
    model = ScriptedModel([calls, calls, Turn(text("First task done.")), Turn(text("Second task done."))])
    async with stage(tmp_path, model, Probe(behave=sleeping(a=2.0))) as on:
        run = await run_and_say(on, "then this", "later", at=1.0)

        assert ["then this"] == last_texts(model, 3)
        assert [0, 0, 0] == [str(model.requests[n].body).count("then this") for n in range(3)]
        assert "Second task done." == run.result.text


async def test_what_was_said_for_later_is_kept_when_the_run_is_interrupted(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Turn(text("Slow.", after=60.0))])
    async with stage(tmp_path, model) as on:
        async with on.session.submit("go") as run:
            await run.steer("then this", "later")
            run.interrupt()
            async for event in run:
                on.take(event)
        on.check()
        assert 1 == said(on.session.messages, "then this")


async def test_a_message_that_is_cancelled_while_it_is_given_was_not_given(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    model = ScriptedModel([Turn(text("Slow.", after=5.0))])
    async with stage(tmp_path, model) as on:
        async with on.session.submit("go") as run:
            with trio.CancelScope() as scope:
                scope.cancel()
                await run.steer("never")
            async for event in run:
                on.take(event)
        on.check()
        assert scope.cancelled_caught
        assert 0 == said(on.session.messages, "never")


async def test_an_ended_run_takes_nothing_and_records_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with stage(tmp_path, ScriptedModel([DONE])) as on:
        async with on.session.submit("go") as run:
            await run.wait()
            with pytest.raises(PeerGone, match="submit the text instead"):
                await run.steer("too late")
        assert "too late" not in on.session.journal.read_text()


async def test_stop_hooks_that_take_their_time_do_not_lose_what_is_said_meanwhile(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def slow(context: Any) -> None:
        await trio.sleep(10)

    model = ScriptedModel([Turn(text("One.")), Turn(text("Two."))])
    async with stage(tmp_path, model, stop_hooks=[slow]) as on:
        run = await run_and_say(on, "one more", "next", at=5.0)

        assert "Two." == run.result.text


# --- crashes --------------------------------------------------------------------------------------


def snapshot(on: Stage, tmp_path: Path, name: str) -> Path:
    """The journal as a crash at this moment would leave it, in a home of its own."""
    home = tmp_path / name
    journal = home / on.session.journal.relative_to(tmp_path / "home")
    journal.parent.mkdir(parents=True)
    shutil.copy(on.session.journal, journal)
    return home


async def resumed_messages(on: Stage, tmp_path: Path, home: Path) -> tuple[Message, ...]:
    """The history of a session that goes on from there, and then once more."""
    messages: tuple[Message, ...] = ()
    for _ in range(2):
        async with open_session(
            Agent(model="scripted-1"),
            cwd=tmp_path,
            config=config(home),
            transport=ScriptedModel([DONE]).transport(),
            resume=on.session.id,
        ) as session:
            assert messages in ((), session.messages)
            messages = session.messages
    return messages


@pytest.mark.parametrize("priority", ["now", "next", "later"])
async def test_a_message_that_was_accepted_outlives_a_crash(
    tmp_path: Path, autojump_clock: MockClock, priority: Priority
) -> None:
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"})), Turn(text("a", after=5.0), text("b", after=60.0)), DONE])
    async with stage(tmp_path, model, Probe(behave=sleeping(a=2.0))) as on:
        async with on.session.submit("go") as run:
            async for event in run:
                on.take(event)
                if isinstance(event, ToolStarted):
                    await run.steer("and hurry", priority)
                    snapshot(on, tmp_path, "before")
                if isinstance(event, AssistantBlock) and event.block == TextBlock("a"):
                    snapshot(on, tmp_path, "behind")
        on.check()
        before = await resumed_messages(on, tmp_path, tmp_path / "before")
        behind = await resumed_messages(on, tmp_path, tmp_path / "behind")
        assert (1, 1, 1) == tuple(said(each, "and hurry") for each in (before, behind, on.session.messages))


async def test_a_message_that_waits_is_written_again_behind_a_compaction(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async def much(name: str, ctx: Any) -> str:
        return f"{name}: " + "lorem ipsum dolor sit amet " * 300

    def answer(request: Any) -> Turn:
        if "Request and intent" in str(request["messages"][-1]):
            return Turn(text("<summary>The files were read and the plan is clear.</summary>"))
        return next(calls, DONE)

    calls = iter([Turn(tool("Probe", {"name": f"n{number}"})) for number in range(12)])
    model = ScriptedModel(by=answer)
    async with stage(tmp_path, model, Probe(behave=much), context_window=20_000, max_repeats=None) as on:
        taken = False
        async with on.session.submit("go") as run:
            await run.steer("then this", "later")
            async for event in run:
                on.take(event)
                if isinstance(event, ContextCompacted) and not taken:
                    taken = True
                    snapshot(on, tmp_path, "copy")
        on.check()
        before = await resumed_messages(on, tmp_path, tmp_path / "copy")
        assert (1, 1) == (said(before, "then this"), said(on.session.messages, "then this"))
        queued = [record for record in read_records(on.session.journal, []) if isinstance(record, QueueRecord)]
        assert len(queued) >= 2
        assert 1 == len({record.message.uuid for record in queued})
