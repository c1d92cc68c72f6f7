"""Commands in the background outlive the call, not the session; each look tells what is new."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from atrio.runtime.errors import InvalidToolInput, ToolError, ToolRejected
from atrio.runtime.tool import Tool, ToolContext, ToolOutput, Workspace
from atrio.tools.background import BackgroundShells, background_shells
from atrio.tools.background_output import BackgroundOutput, Fresh
from atrio.tools.background_tools import BashOutput, KillShell, describe_shell, fresh_text
from atrio.tools.reaper import TOKEN_VARIABLE
from atrio.tools.shell import Bash

MARK = uuid.uuid4().hex


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    return ToolContext(
        session_id="s",
        run_id="r",
        call_id="call_1",
        workspace=Workspace(cwd=tmp_path),
        results_dir=tmp_path / "results",
        progress=lambda text, data=None: None,
        environ={"PATH": os.environ["PATH"], TOKEN_VARIABLE: MARK},
    )


@attrs.define
class Desk:
    """The three tools on one set of shells."""

    ctx: ToolContext
    shells: BackgroundShells

    async def call(self, tool: Tool, **raw: Any) -> ToolOutput:
        input = tool.parse(raw)
        await tool.check(input, self.ctx)
        return await tool.run(input, self.ctx)

    async def start(self, command: str) -> ToolOutput:
        return await self.call(Bash(self.shells), command=command, run_in_background=True)

    async def look(self, id: str = "bash_1", **raw: Any) -> str:
        return str((await self.call(BashOutput(self.shells), bash_id=id, **raw)).content)

    async def until(self, needle: str, id: str = "bash_1") -> str:
        """Look until the text has come."""
        seen = ""
        with trio.fail_after(10):
            while needle not in seen:
                seen += await self.look(id)
                await trio.sleep(0.01)
        return seen

    async def kill(self, id: str = "bash_1") -> ToolOutput:
        return await self.call(KillShell(self.shells), bash_id=id)


@asynccontextmanager
async def desk(ctx: ToolContext, **changes: Any) -> AsyncIterator[Desk]:
    async with background_shells(**changes) as shells:
        yield Desk(ctx, shells)


def left_over() -> list[str]:
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        try:
            if MARK in (entry / "environ").read_text(errors="replace"):
                found.append((entry / "cmdline").read_text(errors="replace"))
        except OSError:
            continue
    return found


# --- life and death -------------------------------------------------------------------------------


async def test_a_call_returns_while_its_command_runs_on(ctx: ToolContext) -> None:
    async with desk(ctx) as it:
        output = await it.start("echo ready; exec sleep 30")
        assert not output.is_error
        assert "Running in the background as bash_1" in str(output.content)
        assert "bash_1 is running." in await it.until("ready")
        assert 1 == len(left_over())
        await it.kill()


async def test_a_whole_tree_is_gone_when_the_session_ends(ctx: ToolContext) -> None:
    async with desk(ctx) as it:
        await it.start("sleep 30 & (setsid sleep 30 &) ; echo up; sleep 30")
        await it.until("up")
        assert len(left_over()) >= 3
    assert [] == left_over()
    assert ["killed"] == [shell.status for shell in it.shells.all()]


async def test_a_killed_command_leaves_no_process_and_can_be_read_on(ctx: ToolContext) -> None:
    async with desk(ctx) as it:
        await it.start("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done")
        await it.until("up")
        output = await it.kill()
        assert str(output.content).startswith("Stopped bash_1 (trap 'echo bye; exit 0' TERM;")
        assert [] == left_over()
        text = await it.look()
        assert "bash_1 was stopped" in text
        assert "bye" in text
        assert "There was nothing to end." in str((await it.kill()).content)


async def test_cancelling_the_call_does_not_end_the_command(ctx: ToolContext) -> None:
    async with desk(ctx) as it:
        with trio.CancelScope() as scope:
            scope.cancel()
            await it.start("echo up; exec sleep 30")
        assert ["bash_1"] == [shell.id for shell in it.shells.running()]


async def test_a_command_that_fails_at_once_is_told_by_the_call_itself(ctx: ToolContext) -> None:
    async with desk(ctx) as it:
        output = await it.start("echo oops >&2; exit 7")
        assert output.is_error
        assert str(output.content).endswith("with exit code 7.\noops")
        assert "failed" == output.details["status"]


async def test_a_flood_that_ends_at_once_is_cut_and_whole_in_a_file(ctx: ToolContext) -> None:
    async with desk(ctx) as it:
        await it.start("head -c 100000 /dev/zero | tr '\\0' x")
        (shell,) = it.shells.all()
        with trio.fail_after(5):
            await shell.ended.wait()
        assert 100_000 == (ctx.results_dir / "output-call_1.txt").stat().st_size
        told = fresh_text(Fresh(head="a", left_out=5, tail="b"), shell)
        assert f"a\n[... 5 characters left out; full output in {shell.output.path}]\nb" == told


async def test_a_command_that_can_not_be_started_is_told(ctx: ToolContext, tmp_path: Path) -> None:
    gone = attrs.evolve(ctx, workspace=Workspace(cwd=tmp_path / "gone"))
    async with desk(gone) as it:
        output = await it.start("true")
        assert output.is_error
        assert "bash_1 could not be run: can't start" in str(output.content)


@pytest.mark.slow
async def test_the_number_of_running_commands_is_limited(ctx: ToolContext) -> None:
    async with desk(ctx, max_running=2) as it:
        await it.start("exec sleep 30")
        await it.start("exec sleep 30")
        with pytest.raises(ToolRejected, match="bash_1, bash_2"):
            await it.start("exec sleep 30")
        await it.kill("bash_1")
        await it.start("exec sleep 30")
        assert ["bash_2", "bash_3"] == [shell.id for shell in it.shells.running()]


async def test_nothing_is_started_without_an_owner(ctx: ToolContext) -> None:
    with pytest.raises(ToolRejected, match="Nothing can be run in the background now"):
        await Desk(ctx, BackgroundShells()).start("true")


@pytest.mark.slow
async def test_an_ended_owner_may_run_again_and_knows_what_was(ctx: ToolContext) -> None:
    shells = BackgroundShells()
    it = Desk(ctx, shells)
    for id in ("bash_1", "bash_2"):
        async with trio.open_nursery() as nursery:
            await nursery.start(shells.run)
            await it.start(f"echo {id}; exec sleep 30")
            await it.until(id, id)
            nursery.cancel_scope.cancel()
    assert [("bash_1", "killed"), ("bash_2", "killed")] == [(shell.id, shell.status) for shell in shells.all()]


@pytest.mark.slow
async def test_old_ended_commands_are_forgotten(ctx: ToolContext) -> None:
    async with desk(ctx) as it:
        for number in range(53):
            await it.shells.start("true", ["/bin/true"], cwd=ctx.cwd, env={}, path=ctx.results_dir / f"{number}")
        await it.shells.find("bash_53").ended.wait()
        assert 51 >= len(it.shells.all())
        with pytest.raises(ToolRejected):
            it.shells.find("bash_1")


# --- looking --------------------------------------------------------------------------------------


async def test_each_look_tells_what_is_new(ctx: ToolContext) -> None:
    async with desk(ctx) as it:
        await it.start("echo one; while [ ! -e go ]; do sleep 0.01; done; echo two")
        assert "bash_1 is running.\none" == await it.look()
        assert "bash_1 is running.\n[No new output.]" == await it.look()
        (ctx.cwd / "go").touch()
        with trio.fail_after(5):
            await it.shells.find("bash_1").ended.wait()
        text = await it.look()
        assert text.endswith("with exit code 0.\ntwo")
        assert "one\ntwo\n" == (ctx.results_dir / "output-call_1.txt").read_text()


@pytest.mark.slow
async def test_a_filter_shows_matching_lines_only_and_skips_the_rest(ctx: ToolContext) -> None:
    async with desk(ctx) as it:
        await it.start("printf 'error: a\\nfine\\nerror: b\\n'; exec sleep 30")
        assert "bash_1 is running.\nerror: a\nerror: b" == await it.look(filter="^err(or|eur):")
        assert "bash_1 is running.\n[No new output.]" == await it.look()
        with pytest.raises(ToolError, match="no valid regular expression"):
            await it.look(filter="(")


async def test_an_unknown_id_is_told_with_what_there_is(ctx: ToolContext) -> None:
    async with desk(ctx) as it:
        with pytest.raises(ToolRejected, match="No command was started"):
            await it.look("bash_9")
        await it.start("true")
        with pytest.raises(ToolRejected, match=r"There are: bash_1 \("):
            await it.look("server")


@pytest.mark.slow
async def test_a_flood_that_nobody_looks_at_stays_bounded(ctx: ToolContext) -> None:
    async with desk(ctx) as it:
        await it.shells.start("yes", ["yes", "x" * 50], cwd=ctx.cwd, env=dict(ctx.environ), path=ctx.results_dir / "y")
        flood = it.shells.find("bash_1").output
        with trio.fail_after(20):
            while flood.total_chars < 80_000_000:  # noqa: ASYNC110  # the process knows no events
                await trio.sleep(0.01)
        await it.kill()
        fresh = flood.take()
        assert 30_000 == len(fresh.head) + len(fresh.tail)
        assert fresh.left_out == flood.total_chars - 30_000
        assert (ctx.results_dir / "y").stat().st_size < 65 * 1024 * 1024


async def test_output_between_two_looks_is_cut_in_the_middle(tmp_path: Path) -> None:
    output = BackgroundOutput(path=tmp_path / "out", visible_chars=10, file_limit_bytes=20)
    await output.add(b"abc")
    await output.add(b"defghijklmnopqrstuvwxyz")
    assert Fresh(head="abcde", left_out=16, tail="vwxyz") == output.take()
    await output.add("\u00e9".encode()[:1])
    assert Fresh(head="") == output.take()
    await output.add("\u00e9".encode()[1:])
    await output.finish()
    assert Fresh(head="\u00e9") == output.take()
    assert output.file_full
    assert (tmp_path / "out").read_text().startswith("abcdefghijklmnopqrst\n[... cut here")


async def test_trouble_with_the_file_does_not_fail_the_command(ctx: ToolContext) -> None:
    ctx.results_dir.write_text("no folder")
    async with desk(ctx) as it:
        await it.start("echo fine")
        (shell,) = it.shells.all()
        with trio.fail_after(5):
            await shell.ended.wait()
        assert "completed" == shell.status
        assert "could not be saved" in shell.output.whereabouts()


# --- words ----------------------------------------------------------------------------------------


def test_only_with_an_owner_does_bash_offer_the_background() -> None:
    assert "run_in_background" not in str(Bash().input_schema)
    with pytest.raises(InvalidToolInput):
        Bash().parse({"command": "true", "run_in_background": True})
    assert "run_in_background" in str(Bash(BackgroundShells()).input_schema)


async def test_an_end_by_a_signal_is_told(ctx: ToolContext) -> None:
    async with desk(ctx) as it:
        await it.start("kill -9 $$")
        (shell,) = it.shells.all()
        with trio.fail_after(5):
            await shell.ended.wait()
        assert "was ended by signal 9" in describe_shell(shell)
