"""A session with an MCP server: its tools are called, change between runs, and its process ends with the session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import trio
from tests.support.agents import stage

from atrio.actors.mcp.config import StdioServer
from atrio.actors.testing import ScriptedModel, Turn, text, tool
from atrio.runtime.events import Notice, RunStarted

pytest.importorskip("mcp")
pytestmark = pytest.mark.slow

SERVER = Path(__file__).parents[1] / "actors" / "mcp" / "sdk_server.py"
DONE = Turn(text("done"))


def server(*arguments: str) -> StdioServer:
    return StdioServer(name="sums", command=sys.executable, args=arguments or (str(SERVER),))


async def test_its_tools_are_called_and_change_between_runs(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            Turn(tool("mcp__sums__add", {"a": 2, "b": 3}, "t1"), tool("mcp__sums__grow", {}, "t2")),
            DONE,
            Turn(tool("mcp__sums__further", {}, "t3")),
            DONE,
        ]
    )
    options = {"mcp": [server()]}
    async with stage(tmp_path, model, session=options, allowed_tools=["mcp__sums"]) as on:
        pids = on.session._parts.servers.pids()
        changed = trio.Event()
        on.session._parts.servers.on_change(changed.set)
        assert (await on.run()).is_success
        assert [("t1", "5", False), ("t2", "grown", False)] == on.results()
        assert (("sums", "connected"),) == on.of(RunStarted)[0].mcp_servers
        with trio.fail_after(10):
            await changed.wait()
        assert (await on.run("again")).is_success
        assert [("t3", "further", False)] == on.results()
    with pytest.raises(ProcessLookupError):
        os.kill(pids["sums"], 0)


async def test_a_call_that_no_rule_allows_is_denied(tmp_path: Path) -> None:
    model = ScriptedModel([Turn(tool("mcp__sums__add", {"a": 2, "b": 3})), DONE])
    async with stage(tmp_path, model, session={"mcp": [server()]}) as on:
        assert 1 == len((await on.run()).permission_denials)


async def test_a_server_that_does_not_start_is_a_notice(tmp_path: Path) -> None:
    broken = server("-c", "raise SystemExit('no database')")
    async with stage(tmp_path, ScriptedModel([DONE]), session={"mcp": [broken]}) as on:
        assert (await on.run()).is_success
        assert any(notice.source == "mcp" and "sums" in notice.text for notice in on.of(Notice))
