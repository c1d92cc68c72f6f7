"""Aborts of real commands over a real connection: nothing is left of them."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from atrio.actors import Agent, Run, Session, open_session
from atrio.actors.testing import ScriptedModel, Turn, check_history, text, tool
from atrio.runtime.config import Config
from atrio.runtime.events import Event, TextDelta, ToolProgress
from atrio.runtime.replay import replay_file
from atrio.runtime.result import TerminalReason
from atrio.tools import Bash

pytestmark = pytest.mark.slow

PROMPT_LIMIT = 1.0
"""Seconds in which an abort must be over, beside the grace of the command (2 s for one that ignores TERM)."""

DOUBLE_FORK = (
    "python3 -c 'import os,time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        time.sleep(600)\n"
    "    os._exit(0)\n"
    "' & sleep 0.3; echo started; sleep 600"
)


def marked(token: str) -> list[str]:
    """The processes that carry the token in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if token.encode() in (entry / "environ").read_bytes():
                    found.append(entry.name)
            except OSError:
                continue
    return found


@asynccontextmanager
async def live_session(tmp_path: Path, model: ScriptedModel, token: str) -> AsyncIterator[Session]:
    os.environ["ATRIO_TEST_TOKEN"] = token
    try:
        async with model.serve() as url:
            agent = Agent(model="scripted-1", tools=[Bash()], allowed_tools=["Bash"])
            config = Config(home=tmp_path / "home", base_url=url)
            async with open_session(agent, cwd=tmp_path, config=config) as session:
                yield session
    finally:
        del os.environ["ATRIO_TEST_TOKEN"]


async def leave(session: Session, how: str, when: Callable[[Event], bool]) -> Run:
    with trio.CancelScope() as scope:
        async with session.submit("go") as run:
            async for event in run:
                if not when(event):
                    continue
                if how == "leave":
                    break
                if how == "interrupt":
                    run.interrupt()
                else:
                    scope.cancel(reason="test")
    return run


@pytest.mark.parametrize("how", ["scope", "leave", "interrupt"])
async def test_a_command_whose_child_forked_twice_is_gone_with_its_run(tmp_path: Path, how: str) -> None:
    token = f"token-{uuid.uuid4()}"
    model = ScriptedModel([Turn(tool("Bash", {"command": DOUBLE_FORK})), Turn(text("done"))])
    began: list[float] = []

    def started(event: Event) -> bool:
        if isinstance(event, ToolProgress) and "started" in event.text:
            assert len(marked(token)) >= 2
            began.append(time.monotonic())
            return True
        return False

    async with live_session(tmp_path, model, token) as session:
        run = await leave(session, how, started)
        assert time.monotonic() - began[0] < PROMPT_LIMIT + 2.0
        assert [] == marked(token)
        assert TerminalReason.ABORTED_TOOLS is run.result.terminal_reason
        check_history(session.messages)
        assert list(session.messages) == list(replay_file(session.journal).messages)
        async with session.submit("again") as run:
            assert (await run.wait()).is_success


@pytest.mark.parametrize("how", ["scope", "leave", "interrupt"])
async def test_a_stream_that_is_left_closes_its_connection(tmp_path: Path, how: str) -> None:
    model = ScriptedModel([Turn(text("word " * 1000, chunk=5), pace=0.05), Turn(text("done"))])
    descriptors = len(list(Path("/proc/self/fd").iterdir()))  # noqa: ASYNC240  # no disk behind it
    async with live_session(tmp_path, model, "none") as session:
        began = time.monotonic()
        run = await leave(session, how, lambda event: isinstance(event, TextDelta))
        assert time.monotonic() - began < PROMPT_LIMIT + 1.0
        assert TerminalReason.ABORTED_STREAMING is run.result.terminal_reason
        check_history(session.messages)
        assert list(session.messages) == list(replay_file(session.journal).messages)
    assert descriptors == len(list(Path("/proc/self/fd").iterdir()))  # noqa: ASYNC240


async def test_many_aborts_leave_a_pool_that_works(tmp_path: Path) -> None:
    model = ScriptedModel([Turn(text("word " * 50, chunk=5), pace=0.01)], repeat_last=True)
    async with live_session(tmp_path, model, "none") as session:
        for number in range(40):
            async with session.submit("go") as run:
                with trio.move_on_after(number * 0.002):
                    await run.wait()
        async with session.submit("at last") as run:
            assert (await run.wait()).is_success
        descriptors = len(list(Path("/proc/self/fd").iterdir()))  # noqa: ASYNC240
        assert descriptors < 60
