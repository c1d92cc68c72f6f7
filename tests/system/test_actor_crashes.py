"""An actor that is killed has the effect that SPEC 2 gives it, in each phase, and nothing else happens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from tests.support.agents import Probe, Stage, sleeping, stage
from trio.testing import MockClock

from atrio.actors.testing import ScriptedModel, Turn, text, thinking, tool
from atrio.runtime.events import Notice, RunEnded, RunStarted
from atrio.runtime.result import TerminalReason

NONSENSE: Any = None
"""A message that no actor can understand: it crashes whoever takes it."""


def turns() -> ScriptedModel:
    """1.0: a call, 2.0: a text and the response's end; the call runs until 4.0; then a second response, 1 s long."""
    first = Turn(thinking("hm", after=0.5), tool("Probe", {"name": "a"}, "ta", after=1.0), text("end", after=2.0))
    return ScriptedModel([first, Turn(text("done", after=1.0))])


PHASES = pytest.mark.parametrize(
    "moment", [0.25, 0.75, 1.5, 3.0, 4.5], ids=["request", "thinking", "stream", "tools", "second-request"]
)


async def strike(on: Stage, moment: float, kill: Callable[[Stage], None]) -> Any:
    async with on.session.submit("go") as run:
        with trio.move_on_after(moment):
            async for event in run:
                on.take(event)
        kill(on)
        async for event in run:
            on.take(event)
    return run.result


def tree(on: Stage) -> Any:
    return on.session._tree


def kill_executor(on: Stage) -> None:
    tree(on)._calls.offer(NONSENSE)


def kill_watchdog(on: Stage, times: int = 1) -> None:
    board = tree(on)._board

    class Deadly:
        left = times

        def check(self, now: float) -> float:
            self.left -= 1
            if not self.left:
                board._pulses.remove(self)
            raise LookupError("the watchdog was killed")

    board._pulses.insert(0, Deadly())
    board.touch()


def kill_loop(on: Stage) -> None:
    tree(on).loop.offer(NONSENSE)


def kill_recorder(on: Stage) -> None:
    on.session._parts.recorder.offer(NONSENSE)


@PHASES
async def test_executor(tmp_path: Path, autojump_clock: MockClock, moment: float) -> None:
    probe = Probe(behave=sleeping(a=3.0))
    async with stage(tmp_path, turns(), probe) as on:
        result = await strike(on, moment, kill_executor)
        on.check()
        assert TerminalReason.COMPLETED is result.terminal_reason
        assert "done" == result.text
        in_flight = 1.0 < moment < 4.0
        assert [in_flight] == [is_error for _, _, is_error in on.results()]
        assert ["executor"] == [notice.source for notice in on.of(Notice)]
        assert in_flight is (("a", "x", moment) in probe.log)


@PHASES
async def test_streamer(tmp_path: Path, autojump_clock: MockClock, moment: float) -> None:
    model = turns()
    crashes = [moment]
    async with stage(tmp_path, model, Probe(behave=sleeping(a=3.0))) as on:
        on.session._parts.pool._transport = Poisoned(model.transport(), crashes)
        result = await strike(on, 10.0, lambda on: None)
        on.check()
        assert TerminalReason.COMPLETED is result.terminal_reason
        assert "done" == result.text
        assert 1 == len(on.results())
        assert [("ta", "a done", False)] == on.results()


@PHASES
async def test_watchdog(tmp_path: Path, autojump_clock: MockClock, moment: float) -> None:
    async with stage(tmp_path, turns(), Probe(behave=sleeping(a=3.0))) as on:
        result = await strike(on, moment, kill_watchdog)
        on.check()
        assert TerminalReason.COMPLETED is result.terminal_reason


async def test_a_watchdog_that_keeps_failing_fails_the_session(tmp_path: Path, autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    with pytest.raises(LookupError) as caught:  # noqa: PT012
        async with stage(tmp_path, turns(), Probe(behave=sleeping(a=3.0))) as on, on.session.submit("go") as run:
            async for event in run:
                seen.append(event)
                if isinstance(event, RunStarted):
                    kill_watchdog(on, times=100)
    assert any("watchdog" in note for note in caught.value.__notes__)
    assert isinstance(seen[-1], RunEnded)
    assert TerminalReason.MODEL_ERROR is seen[-1].result.terminal_reason


@PHASES
async def test_loop(tmp_path: Path, autojump_clock: MockClock, moment: float) -> None:
    events: list[Any] = []
    probe = Probe(behave=sleeping(a=3.0))
    with pytest.raises(AssertionError):  # noqa: PT012
        async with stage(tmp_path, turns(), probe) as on:
            try:
                await strike(on, moment, kill_loop)
            finally:
                events += on.events
    assert "x" in {what for _, what, _ in probe.log} or not 1.0 < moment < 4.0


@PHASES
async def test_recorder(tmp_path: Path, autojump_clock: MockClock, moment: float) -> None:
    probe = Probe(behave=sleeping(a=3.0))
    with pytest.raises(AttributeError) as caught:
        async with stage(tmp_path, turns(), probe) as on:
            await strike(on, moment, kill_recorder)
    assert not isinstance(caught.value, BaseExceptionGroup), caught.value
    assert trio.current_time() == pytest.approx(moment)


async def test_a_streamer_that_keeps_crashing_ends_the_run_and_the_session_works_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with stage(tmp_path, turns(), Probe()) as on:
        whole = on.session._parts.pool._transport
        on.session._parts.pool._transport = Poisoned(whole, [0.0] * 50)
        result = await on.run()
        assert TerminalReason.MODEL_ERROR is result.terminal_reason
        on.session._parts.pool._transport = whole
        assert (await on.run("again")).is_success


class Poisoned(httpx.AsyncBaseTransport):
    """A transport whose responses crash their reader, once for each time in ``moments``, when that time has come."""

    def __init__(self, transport: Any, moments: list[float]) -> None:
        self.transport = transport
        self.moments = moments

    async def handle_async_request(self, request: Any) -> Any:
        self.strike()
        response = await self.transport.handle_async_request(request)
        response.stream = PoisonedStream(response.stream, self)
        return response

    def strike(self) -> None:
        if self.moments and trio.current_time() >= self.moments[0]:
            self.moments.pop(0)
            raise RuntimeError("the streamer was killed")


class PoisonedStream(httpx.AsyncByteStream):
    def __init__(self, stream: Any, owner: Poisoned) -> None:
        self.stream = stream
        self.owner = owner

    async def __aiter__(self) -> Any:
        async for chunk in self.stream:
            self.owner.strike()
            yield chunk

    async def aclose(self) -> None:
        await self.stream.aclose()
