"""A server made with the SDK, which negotiates the newest protocol version."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
import trio

from atrio.actors.mcp.config import HttpServer, StdioServer
from atrio.actors.mcp.manager import McpServers, mcp_servers
from atrio.runtime.tool import ToolContext
from atrio.tools.registry import Toolbox

pytest.importorskip("mcp")
pytestmark = pytest.mark.slow

SERVER = Path(__file__).with_name("sdk_server.py")


def running(config: StdioServer | HttpServer) -> AbstractAsyncContextManager[McpServers]:
    return mcp_servers([config], cwd=Path.cwd(), environ=dict(os.environ))


async def use(servers: McpServers, ctx: ToolContext) -> None:
    assert () == servers.notices(), servers.notices()
    assert {"sdk": "from the sdk"} == servers.instructions()
    changed = trio.Event()
    servers.on_change(lambda: changed.set())
    box = Toolbox(servers.tools())
    output = await box.find("mcp__sdk__add").run({"a": 1, "b": 2}, ctx)
    assert ("3", {"result": 3}) == (output.content, output.details)
    await box.find("mcp__sdk__grow").run({}, ctx)
    with trio.fail_after(10):
        while "mcp__sdk__further" not in Toolbox(servers.tools()):
            await changed.wait()
            changed = trio.Event()
    wrong = await box.find("mcp__sdk__add").run({"a": "x", "b": 2}, ctx)
    assert wrong.is_error


async def test_a_server_over_stdio_works(ctx: ToolContext) -> None:
    async with running(StdioServer(name="sdk", command=sys.executable, args=(str(SERVER),))) as servers:
        await use(servers, ctx)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK's
async def test_a_server_over_http_works(ctx: ToolContext) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with trio.open_nursery() as nursery:
        command = [sys.executable, str(SERVER), str(port)]
        process = await nursery.start(partial(trio.run_process, command, capture_stderr=True, check=False))
        with trio.fail_after(20):
            while True:
                try:
                    await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
                    break
                except OSError:
                    await trio.sleep(0.05)
        async with running(HttpServer(name="sdk", url=f"http://127.0.0.1:{port}/mcp")) as servers:
            await use(servers, ctx)
        process.terminate()
