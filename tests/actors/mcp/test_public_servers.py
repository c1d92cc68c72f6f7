"""
The public servers, as people run them. Each is installed by npm or from PyPI into a folder of the test session.

They are skipped only where node, npm or the registries are missing.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import venv
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from atrio.actors.mcp.config import HttpServer, ServerConfig, StdioServer
from atrio.actors.mcp.link import McpFailed
from atrio.actors.mcp.manager import McpServers, mcp_servers
from atrio.runtime.messages import ImageBlock
from atrio.runtime.tool import Tool, ToolContext
from atrio.tools.registry import Toolbox

pytest.importorskip("mcp")
pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

PACKAGES = ("@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem")
INSTALL_LIMIT = 240

Progress = list[tuple[str, Mapping[str, object]]]


@pytest.fixture(scope="session")
def node_bin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands of both npm servers."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node is not installed")
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm can't install the servers: {done.stderr[-300:]}")
    return folder / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def time_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of ``mcp-server-time``, in an environment of its own: it wants an older SDK."""
    folder = tmp_path_factory.mktemp("time")
    venv.create(folder, with_pip=True)
    command = [str(folder / "bin" / "pip"), "install", "-q", "mcp-server-time"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT, check=False)
    if done.returncode != 0:
        pytest.skip(f"pip can't install the server: {done.stderr[-300:]}")
    return folder / "bin" / "mcp-server-time"


def running(config: ServerConfig, *roots: Path) -> AbstractAsyncContextManager[McpServers]:
    return mcp_servers([config], cwd=Path.cwd(), environ=dict(os.environ), roots=roots)


async def call(servers: McpServers, ctx: ToolContext, name: str, **arguments: object) -> str:
    output = await find(servers, name).run(arguments, ctx)
    return str(output.content)


def find(servers: McpServers, name: str) -> Tool:
    return Toolbox(servers.tools()).find(f"mcp__it__{name}")


async def use_everything(servers: McpServers, ctx: ToolContext, progress: Progress) -> None:
    assert [{"name": "it", "status": "connected"}] == servers.status()
    assert "Echo: hello" == await call(servers, ctx, "echo", message="hello")
    image = await find(servers, "get-tiny-image").run({}, ctx)
    assert any(isinstance(part, ImageBlock) for part in image.content)
    await call(servers, ctx, "trigger-long-running-operation", duration=0.5, steps=3)
    assert progress
    with trio.move_on_after(0.3) as scope:
        await call(servers, ctx, "trigger-long-running-operation", duration=30, steps=3)
    assert scope.cancelled_caught
    box = Toolbox(servers.tools())
    listed = await box.find("ListMcpResources").run(box.find("ListMcpResources").parse({}), ctx)
    assert "demo://" in str(listed.content)
    assert any(prompt.name == "simple-prompt" for prompt in servers.prompts())
    assert (await servers.prompt("mcp__it__simple-prompt"))[0].parts
    assert "Echo: again" == await call(servers, ctx, "echo", message="again")


async def test_everything_over_stdio(node_bin: Path, ctx: ToolContext, progress: Progress) -> None:
    config = StdioServer(name="it", command=str(node_bin / "mcp-server-everything"), args=("stdio",))
    async with running(config) as servers:
        await use_everything(servers, ctx, progress)


async def test_everything_survives_a_kill_in_mid_call(node_bin: Path, ctx: ToolContext) -> None:
    config = StdioServer(name="it", command=str(node_bin / "mcp-server-everything"), args=("stdio",))
    async with running(config) as servers:
        pid = servers.pids()["it"]

        async def kill() -> None:
            await trio.sleep(0.3)
            os.kill(pid, signal.SIGKILL)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            with trio.fail_after(3), pytest.raises(McpFailed, match="killed by signal 9"):
                await call(servers, ctx, "trigger-long-running-operation", duration=30, steps=3)
        assert "Echo: hello" == await call(servers, ctx, "echo", message="hello")


@asynccontextmanager
async def http_everything(node_bin: Path) -> AsyncIterator[str]:
    """Its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(node_bin / "mcp-server-everything"), "streamableHttp"]
    environ = {**os.environ, "PORT": str(port)}
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, command, env=environ, check=False, capture_stdout=True, capture_stderr=True)
        process = await nursery.start(run)
        with trio.fail_after(30):
            while True:
                try:
                    await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
                    break
                except OSError:
                    await trio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
        process.kill()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK's
async def test_everything_over_http(node_bin: Path, ctx: ToolContext, progress: Progress) -> None:
    async with http_everything(node_bin) as url, running(HttpServer(name="it", url=url)) as servers:
        await use_everything(servers, ctx, progress)


async def test_the_filesystem_server_works_within_the_roots(node_bin: Path, ctx: ToolContext, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.txt").write_text("hello")
    (tmp_path / "outside.txt").write_text("secret")
    config = StdioServer(name="it", command=str(node_bin / "mcp-server-filesystem"), args=(str(inside),))
    async with running(config, inside) as servers:
        assert find(servers, "read_text_file").read_only
        assert not find(servers, "write_file").read_only
        assert "hello" in await call(servers, ctx, "read_text_file", path=str(inside / "a.txt"))
        await call(servers, ctx, "write_file", path=str(inside / "b.txt"), content="new")
        assert "new" == (inside / "b.txt").read_text()
        refused = await find(servers, "read_text_file").run({"path": str(tmp_path / "outside.txt")}, ctx)
        assert refused.is_error
        assert "secret" not in str(refused.content)


async def test_a_server_with_an_older_sdk_works(time_server: Path, ctx: ToolContext) -> None:
    config = StdioServer(name="it", command=str(time_server))
    async with running(config) as servers:
        assert "UTC" in await call(servers, ctx, "get_current_time", timezone="UTC")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
async def test_a_runner_is_ended_with_what_it_started(node_bin: Path, ctx: ToolContext) -> None:
    script = f"'{node_bin / 'mcp-server-everything'}' stdio; echo done"
    config = StdioServer(name="it", command="sh", args=("-c", script))
    async with running(config) as servers:
        assert "Echo: hello" == await call(servers, ctx, "echo", message="hello")
        pids = children(servers.pids()["it"])
    assert pids
    assert [] == [pid for pid in pids if is_running(pid)]
