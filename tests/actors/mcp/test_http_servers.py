"""Servers over streamable HTTP, on loopback."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest

from atrio.actors.mcp.config import HttpServer, StdioServer
from atrio.actors.mcp.link import McpFailed
from atrio.actors.mcp.manager import McpServers, mcp_servers
from atrio.runtime.tool import Tool, ToolContext
from atrio.tools.registry import Toolbox

pytest.importorskip("mcp")
pytestmark = pytest.mark.slow


@attrs.define(eq=False)
class Site:
    """
    A server that only takes POST, as many do: its GET is refused. ``status`` is what it answers calls with;
    ``forgetful``: it no longer knows the session; ``token``: what it wants as authorization.
    """

    status: int = 200
    forgetful: bool = False
    token: str = ""
    port: int = 0
    sessions: int = 0
    deleted: list[str] = attrs.field(factory=list)
    http: ThreadingHTTPServer | None = None

    def start(self) -> None:
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                self.reply(405)

            def do_DELETE(self) -> None:
                site.deleted.append(str(self.headers["mcp-session-id"]))
                self.reply(200)

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                site.post(self, message)

            def reply(self, status: int, body: object = None, **headers: str) -> None:
                data = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                if body is not None:
                    self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.http = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.http.daemon_threads = True
        self.port = self.http.server_port
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self.http is not None:
            self.http.shutdown()
            self.http.server_close()
            self.http = None

    def post(self, handler: Any, message: dict[str, Any]) -> None:
        id, method = message.get("id"), message["method"]
        if self.http is None:  # the thread of an open connection outlives the server
            handler.close_connection = True
        elif self.token and handler.headers["authorization"] != self.token:
            handler.reply(401)
        elif id is None:
            handler.reply(202)
        elif method == "initialize":
            self.sessions += 1
            self.forgetful = False
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "site", "version": "1"},
            }
            body = {"jsonrpc": "2.0", "id": id, "result": result}
            handler.reply(200, body, mcp_session_id=f"session-{self.sessions}")
        elif method == "tools/list":
            tools = [{"name": "echo", "inputSchema": {"oneOf": []}}, {"name": "bad", "inputSchema": 3}]
            handler.reply(200, {"jsonrpc": "2.0", "id": id, "result": {"tools": tools}})
        elif method == "tools/call" and self.forgetful:
            handler.reply(404)
        elif method == "tools/call" and self.status == 200:
            content = [{"type": "text", "text": "hello"}]
            handler.reply(200, {"jsonrpc": "2.0", "id": id, "result": {"content": content}})
        elif method == "tools/call":
            handler.reply(self.status)
        else:
            error = {"code": -32601, "message": "Method not found"}
            handler.reply(200, {"jsonrpc": "2.0", "id": id, "error": error})


@pytest.fixture
def site() -> Iterator[Site]:
    """A running site."""
    site = Site()
    site.start()
    yield site
    site.stop()


def connect(site: Site, *others: StdioServer, **headers: str) -> AbstractAsyncContextManager[McpServers]:
    config = HttpServer(name="web", url=f"http://127.0.0.1:{site.port}/mcp", headers=headers)
    return mcp_servers([config, *others], cwd=Path.cwd(), environ=dict(os.environ), jitter=lambda: 0.0)


def echo(servers: McpServers) -> Tool:
    return Toolbox(servers.tools()).find("mcp__web__echo")


async def test_a_server_that_only_takes_posts_works_and_is_told_of_the_end(site: Site, ctx: ToolContext) -> None:
    async with connect(site) as servers:
        assert ["mcp__web__echo"] == [tool.name for tool in servers.tools()]
        assert "the tool 'bad' was left out" in "\n".join(servers.notices())
        assert "hello" == (await echo(servers).run({}, ctx)).content
    assert ["session-1"] == site.deleted


@pytest.mark.parametrize("status", [400, 405, 500, 503])
async def test_a_refused_call_is_an_error_and_the_next_works(status: int, site: Site, ctx: ToolContext) -> None:
    async with connect(site) as servers:
        site.status = status
        with pytest.raises(McpFailed, match=f"HTTP {status}"):
            await echo(servers).run({}, ctx)
        site.status = 200
        assert "hello" == (await echo(servers).run({}, ctx)).content


async def test_a_forgotten_session_is_made_anew(site: Site, ctx: ToolContext) -> None:
    async with connect(site) as servers:
        site.forgetful = True
        with pytest.raises(McpFailed, match="try again"):
            await echo(servers).run({}, ctx)
        assert "hello" == (await echo(servers).run({}, ctx)).content
        assert 2 == site.sessions


async def test_a_server_that_goes_away_is_an_error_and_works_when_it_is_back(
    site: Site, ctx: ToolContext, server: Callable[..., StdioServer]
) -> None:
    async with connect(site, server(name="other")) as servers:
        site.stop()
        with pytest.raises(McpFailed):
            await echo(servers).run({}, ctx)
        other = Toolbox(servers.tools()).find("mcp__other__echo")
        assert "fine" == (await other.run({"text": "fine"}, ctx)).content
        site.start()
        await servers.reconnect("web")
        assert "hello" == (await echo(servers).run({}, ctx)).content


async def test_a_server_that_wants_a_login_says_so(site: Site) -> None:
    site.token = "Bearer secret"
    async with connect(site) as servers:
        assert [{"name": "web", "status": "needs-auth"}] == servers.status()
        assert "HTTP 401" in "\n".join(servers.notices())
    async with connect(site, Authorization="Bearer secret") as servers:
        assert [{"name": "web", "status": "connected"}] == servers.status()


async def test_a_server_that_cannot_be_reached_is_a_notice_without_its_secrets(site: Site) -> None:
    site.stop()
    async with connect(site) as servers:
        assert [{"name": "web", "status": "failed"}] == servers.status()
        assert f"http://127.0.0.1:{site.port}/mcp can't be used" in "\n".join(servers.notices())
