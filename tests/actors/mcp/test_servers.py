"""Servers as real child processes: what holds whatever they do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from atrio.actors.mcp.config import StdioServer
from atrio.actors.mcp.link import McpFailed
from atrio.actors.mcp.manager import McpServers
from atrio.actors.mcp.values import PromptInfo
from atrio.runtime.errors import InvalidToolInput, ToolRejected, ToolTimedOut
from atrio.runtime.messages import ImageBlock, TextBlock
from atrio.runtime.tool import Tool, ToolContext, ToolOutput
from atrio.tools.registry import Toolbox

pytestmark = pytest.mark.slow

Server = Callable[..., StdioServer]
Opened = Callable[..., AbstractAsyncContextManager[McpServers]]

LIMIT = 10.0


def tool(servers: McpServers, name: str, server: str = "raw") -> Tool:
    return Toolbox(servers.tools()).find(f"mcp__{server}__{name}")


async def echo(servers: McpServers, ctx: ToolContext, server: str = "raw") -> str:
    output = await tool(servers, "echo", server).run({"text": "hello"}, ctx)
    assert isinstance(output.content, str)
    return output.content


def alive(pid: int) -> bool:
    """Whether it runs; what is dead and only not yet collected by its parent does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return False
    return status.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


async def until(servers: McpServers, holds: Callable[[], bool]) -> None:
    """Wait for a change after which it holds."""
    changed = trio.Event()

    def tell() -> None:
        changed.set()

    servers.on_change(tell)
    with trio.fail_after(LIMIT):
        while not holds():
            await changed.wait()
            changed = trio.Event()


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterable[None]:
    """No test leaves a child process of this one behind."""
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


# --- what a server offers -------------------------------------------------------------------------


async def test_tools_are_offered_with_what_their_hints_say(server: Server, opened: Opened) -> None:
    async with opened(server()) as servers:
        assert [{"name": "raw", "status": "connected"}] == servers.status()
        assert () == servers.notices()
        assert {"raw": "be kind"} == servers.instructions()
        found, count = tool(servers, "echo"), tool(servers, "count")
        assert (True, True, "ask") == (found.read_only, found.idempotent, found.permission)
        assert (False, True, "ask") == (count.read_only, count.idempotent, count.permission)
        assert ("the echo tool", ["text"]) == (found.description, found.input_schema["required"])
        assert found.concurrency_safe({})
        with pytest.raises(InvalidToolInput, match="'text' is missing"):
            found.parse({})


async def test_only_reading_tools_of_a_trusted_server_need_no_approval(server: Server, opened: Opened) -> None:
    async with opened(server(), trusted=["raw"]) as servers:
        assert "read" == tool(servers, "echo").permission
        assert "ask" == tool(servers, "count").permission


async def test_bad_entries_of_a_list_cost_only_themselves(server: Server, opened: Opened) -> None:
    async with opened(server("bad-tools")) as servers:
        names = [tool.name for tool in servers.tools() if tool.name.startswith("mcp__")]
        assert [f"mcp__raw__{name}" for name in ("a_b_", "good", "old", "out", "union")] == names
        assert {"path", "url"} == set(tool(servers, "union").input_schema["properties"])
        said = "\n".join(servers.notices())
        assert "the tool 'text' was left out" in said
        assert "the tool 'union' was changed" in said


async def test_a_changed_list_changes_the_tools(server: Server, opened: Opened, ctx: ToolContext) -> None:
    async with opened(server()) as servers:
        before = servers.revision
        await tool(servers, "grow").run({}, ctx)
        await until(servers, lambda: any(tool.name == "mcp__raw__grown0" for tool in servers.tools()))
        assert servers.revision > before


# --- calls ----------------------------------------------------------------------------------------


async def test_answers_become_results(server: Server, opened: Opened, ctx: ToolContext) -> None:
    async with opened(server()) as servers:
        assert "hello" == await echo(servers, ctx)
        assert ToolOutput("it went wrong", is_error=True) == await tool(servers, "fail").run({}, ctx)
        structured = await tool(servers, "pid").run({}, ctx)
        assert servers.pids()["raw"] == structured.details["pid"]
        assert '"pid"' in str(structured.content)
        image = await tool(servers, "image").run({}, ctx)
        assert [TextBlock, ImageBlock, TextBlock, TextBlock, TextBlock] == [type(part) for part in image.content]
        with pytest.raises(McpFailed, match="no such thing"):
            await tool(servers, "error").run({}, ctx)


async def test_half_surrogates_are_mended_before_they_are_sent(
    server: Server, opened: Opened, ctx: ToolContext
) -> None:
    async with opened(server()) as servers:
        found = tool(servers, "echo")
        assert ToolOutput("a\ufffd") == await found.run(found.parse({"text": "a\ud800"}), ctx)


async def test_progress_is_passed_on(
    server: Server, opened: Opened, ctx: ToolContext, progress: list[tuple[Any, ...]]
) -> None:
    async with opened(server()) as servers:
        await tool(servers, "slow").run({}, ctx)
        assert ["at work (0/3)", "at work (1/3)", "at work (2/3)"] == sorted(text for text, _ in progress)


async def test_a_cancelled_call_is_cancelled_at_the_server(
    server: Server, opened: Opened, ctx: ToolContext, tmp_path: Path
) -> None:
    mark = tmp_path / "cancelled"
    async with opened(server()) as servers:
        begun = trio.Event()
        telling = ToolContext(
            session_id="s",
            run_id="r",
            call_id="c",
            workspace=ctx.workspace,
            results_dir=ctx.results_dir,
            progress=lambda *_: begun.set(),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tool(servers, "hang").run, {"file": str(mark)}, telling)
            with trio.fail_after(LIMIT):
                await begun.wait()
            nursery.cancel_scope.cancel()
        assert "hello" == await echo(servers, ctx)
        with trio.fail_after(LIMIT):
            while not mark.exists():  # noqa: ASYNC110  another process makes it
                await trio.sleep(0.005)


async def test_a_call_without_progress_times_out(
    server: Server, opened: Opened, ctx: ToolContext, tmp_path: Path
) -> None:
    async with opened(server(call_limit=0.2)) as servers:
        with pytest.raises(ToolTimedOut):
            await tool(servers, "hang").run({"file": str(tmp_path / "mark")}, ctx)
        assert "hello" == await echo(servers, ctx)


async def test_a_long_answer_is_taken(server: Server, opened: Opened, ctx: ToolContext) -> None:
    async with opened(server()) as servers:
        output = await tool(servers, "huge").run({"size": 5_000_000}, ctx)
        assert 5_000_000 == len(output.content)


async def test_an_answer_over_the_limit_is_an_error_and_calls_go_on(
    server: Server, opened: Opened, ctx: ToolContext
) -> None:
    async with opened(server()) as servers:
        with pytest.raises(McpFailed, match="ask for less"):
            await tool(servers, "huge").run({"size": 33 * 1024 * 1024}, ctx)
        assert "hello" == await echo(servers, ctx)


async def test_a_server_is_told_the_roots(server: Server, opened: Opened, ctx: ToolContext, tmp_path: Path) -> None:
    async with opened(server(), roots=[tmp_path]) as servers:
        output = await tool(servers, "roots").run({}, ctx)
        assert tmp_path.as_uri() in str(output.content)


async def test_resources_are_listed_and_read(server: Server, opened: Opened, ctx: ToolContext) -> None:
    async with opened(server(), server("exit", name="dead")) as servers:
        box = Toolbox(servers.tools())
        listing, reading = box.find("ListMcpResources"), box.find("ReadMcpResourceTool")
        listed = await listing.run(listing.parse({}), ctx)
        assert "Server raw:\n- note://1 [text/plain] (one)\n- pattern note://{n} (any)" == listed.content
        read = await reading.run(reading.parse({"server": "raw", "uri": "note://1"}), ctx)
        assert str(read.content).startswith("[Resource note://1]\na note\n[Resource note://1, application/zip]\n")
        assert b"PK\3\4" == next(ctx.results_dir.iterdir()).read_bytes()
        with pytest.raises(ToolRejected, match="There are: raw"):
            await reading.run(reading.parse({"server": "no", "uri": "x"}), ctx)


async def test_prompts_are_slash_commands(server: Server, opened: Opened) -> None:
    async with opened(server()) as servers:
        arguments = (("who", "", True), ("how", "", False))
        expected = PromptInfo(server="raw", name="greet", description="a greeting", arguments=arguments)
        assert (expected,) == servers.prompts()
        (message,) = await servers.prompt("mcp__raw__greet", "Ada very warmly")
        assert ("user", (TextBlock("Greet {'who': 'Ada', 'how': 'very warmly'}"),)) == (message.role, message.parts)
        with pytest.raises(ToolRejected, match="needs who"):
            await servers.prompt("mcp__raw__greet")
        with pytest.raises(ToolRejected, match="No MCP server"):
            await servers.prompt("mcp__raw__other")


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["garbage", "flood", "probe-dies"])
async def test_odd_servers_work(fault: str, server: Server, opened: Opened, ctx: ToolContext) -> None:
    async with opened(server(fault)) as servers:
        for _ in range(3):
            assert "hello" == await echo(servers, ctx)


async def test_stderr_is_kept_in_a_bounded_file(
    server: Server, opened: Opened, ctx: ToolContext, tmp_path: Path
) -> None:
    async with opened(server("flood"), log_dir=tmp_path / "logs") as servers:
        for _ in range(12):
            await echo(servers, ctx)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "logs").iterdir()}
    assert {"mcp-raw.log", "mcp-raw.log.1"} == set(sizes)
    assert all(size <= 1024 * 1024 for size in sizes.values())


async def test_a_kill_in_mid_call_is_an_error_at_once_and_the_next_call_works(
    server: Server, opened: Opened, ctx: ToolContext, tmp_path: Path
) -> None:
    async with opened(server()) as servers:
        caught: list[McpFailed] = []

        async def call() -> None:
            try:
                await tool(servers, "hang").run({"file": str(tmp_path / "mark")}, ctx)
            except McpFailed as error:
                caught.append(error)

        first = servers.pids()["raw"]
        grandchild = int(str((await tool(servers, "child").run({}, ctx)).content))
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked(0.05)
            began = trio.current_time()
            os.kill(first, signal.SIGKILL)
        assert trio.current_time() - began < 2.0
        assert 3 == len(caught)
        assert "it was killed by signal 9" in str(caught[0])
        assert "hello" == await echo(servers, ctx)
        assert first != servers.pids()["raw"]
        assert not alive(grandchild)


async def test_a_crash_is_told_with_the_servers_last_words(server: Server, opened: Opened, ctx: ToolContext) -> None:
    async with opened(server()) as servers:
        with pytest.raises(McpFailed, match=r"exited with status 3\.(?s:.*)about to crash"):
            await tool(servers, "crash").run({}, ctx)
        assert "hello" == await echo(servers, ctx)


async def test_a_server_that_crashes_again_and_again_is_left_alone(
    server: Server, opened: Opened, ctx: ToolContext
) -> None:
    async with opened(server()) as servers:
        crash = tool(servers, "crash")
        said = ""
        for _ in range(3):
            with pytest.raises(McpFailed) as caught:
                await crash.run({}, ctx)
            said = str(caught.value)
        assert "not connected" in said
        assert "Don't try again within" in said


async def test_bad_servers_are_notices_and_harm_nobody(server: Server, opened: Opened, ctx: ToolContext) -> None:
    missing = StdioServer(name="missing", command="no-such-program-anywhere")
    configs = (server("exit", name="exit"), missing, server("silent", name="silent"), server(name="good"))
    began = trio.current_time()
    async with opened(*configs, connect_limit=2.0) as servers:
        assert trio.current_time() - began < 6.0
        assert {"exit": "failed", "missing": "failed", "silent": "failed", "good": "connected"} == {
            entry["name"]: entry["status"] for entry in servers.status()
        }
        said = "\n".join(servers.notices())
        assert "the key is missing" in said
        assert "no such program on the PATH" in said
        assert "it did not get ready within 2 s" in said
        assert "hello" == await echo(servers, ctx, "good")


async def test_a_session_need_not_wait_for_its_servers(server: Server, opened: Opened, ctx: ToolContext) -> None:
    async with opened(server(), wait=False) as servers:
        assert [{"name": "raw", "status": "pending"}] == servers.status()
        await until(servers, lambda: servers.status()[0]["status"] == "connected")
        assert "hello" == await echo(servers, ctx)


async def test_each_reconnection_leaves_one_process(server: Server, opened: Opened, ctx: ToolContext) -> None:
    async with opened(server()) as servers:
        seen = [servers.pids()["raw"]]
        for _ in range(5):
            await servers.reconnect("raw")
            seen.append(servers.pids()["raw"])
            assert [False] * (len(seen) - 1) + [True] == [alive(pid) for pid in seen]
        assert "hello" == await echo(servers, ctx)
        with pytest.raises(ToolRejected):
            await servers.reconnect("other")


async def test_a_failed_server_can_be_connected_again_by_hand(opened: Opened, tmp_path: Path, server: Server) -> None:
    program = tmp_path / "program"
    config = StdioServer(name="raw", command=str(program))
    async with opened(config) as servers:
        assert "failed" == servers.status()[0]["status"]
        with pytest.raises(McpFailed, match="no such program"):
            await servers.reconnect("raw")
        good = server()
        program.write_text(f"#!/bin/sh\nexec {good.command} {good.args[0]}\n")
        program.chmod(0o700)
        await servers.reconnect("raw")
        assert "connected" == servers.status()[0]["status"]


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["end", "cancel", "error"])
async def test_however_the_block_ends_no_process_is_left(
    how: str, server: Server, opened: Opened, ctx: ToolContext
) -> None:
    pids: list[int] = []

    class Mishap(Exception):
        pass

    async def session(scope: trio.CancelScope) -> None:
        async with opened(server("stubborn"), server(name="other")) as servers:
            pids.extend(servers.pids().values())
            pids.append(int(str((await tool(servers, "child", "other").run({}, ctx)).content)))
            if how == "cancel":
                scope.cancel()
                await trio.sleep_forever()
            if how == "error":
                raise Mishap

    with trio.CancelScope() as scope:
        if how == "error":
            with pytest.raises(Mishap):
                await session(scope)
        else:
            await session(scope)
    assert 3 == len(pids)
    assert [False] * 3 == [alive(pid) for pid in pids]


async def test_a_call_under_way_at_the_end_gets_an_error(
    server: Server, opened: Opened, ctx: ToolContext, tmp_path: Path
) -> None:
    caught: list[McpFailed] = []

    async def call(hanging: Tool) -> None:
        try:
            await hanging.run({"file": str(tmp_path / "mark")}, ctx)
        except McpFailed as error:
            caught.append(error)

    async with trio.open_nursery() as nursery, opened(server()) as servers:
        hanging = tool(servers, "hang")  # its call outlives the servers
        nursery.start_soon(call, hanging)
        await trio.testing.wait_all_tasks_blocked(0.05)
    assert ["MCP server raw: it was stopped, so there is no answer"] == [str(error) for error in caught]


async def test_no_servers_need_nothing(opened: Opened) -> None:
    async with opened() as servers:
        assert ((), [], (), None) == (servers.tools(), servers.status(), servers.notices(), servers.tree())
