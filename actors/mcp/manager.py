"""
The servers of one session: started together, each under supervision, and gone at the end.

The one module to use from outside: `mcp_servers`. It loads the SDK, which takes most of a second, only if there is a
server to run, and in a thread.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from atrio.runtime.errors import ConfigError, ToolRejected
from atrio.runtime.supervisor import ChildSpec, Restart, Supervisor
from atrio.runtime.tool import Tool
from atrio.runtime.tree import ActorInfo

from .config import ServerConfig
from .link import Link, McpFailed, Reconnect
from .prompts import PromptMessage, get_prompt, prompt_arguments
from .resources import ListMcpResources, ReadMcpResource
from .server_log import ServerLog
from .tools import tools_of
from .values import PromptInfo, ServerStatus

if TYPE_CHECKING:
    from .server import McpServer

__all__ = ["CONNECT_LIMIT", "McpServers", "mcp_servers"]

CONNECT_LIMIT: Final = 30.0
"""Seconds that each server gets to be ready, and that a session waits for all of them."""

LEAVE_LIMIT: Final = 1.0
"""Seconds for connections to be closed in order before they are cut."""

SHUTDOWN: Final = 15.0
"""Seconds for the end of one server's processes, in the worst case."""

REMEDY: Final = "install it with: pip install 'atrio[mcp]'"


@attrs.define(eq=False)
class McpServers:
    """
    The servers of a session as it sees them. `mcp_servers` makes it.

    ``revision`` grows whenever tools, prompts or a status have changed.
    """

    _links: Mapping[str, Link]
    _trusted: Collection[str] = ()
    _supervisor: Supervisor | None = None
    _listeners: list[Callable[[], None]] = attrs.field(factory=list)
    revision: int = 0

    def tools(self) -> tuple[Tool, ...]:
        """
        The tools of all servers as of now, in an order that doesn't change, and those for resources.

        A server that is away keeps its tools, whose calls then wait or fail.
        """
        found = [tool for link in self._links.values() for tool in self._tools(link)[0]]
        if self._with_resources():
            found += [ListMcpResources(self._with_resources), ReadMcpResource(self._with_resources)]
        return tuple(found)

    def status(self) -> list[dict[str, str]]:
        """What ``system/init`` says of the servers: name and status of each."""
        return [{"name": link.name, "status": link.status.value} for link in self._links.values()]

    def notices(self) -> tuple[str, ...]:
        """What people should know: servers that don't work, and tools that were changed or left out."""
        texts: list[str] = []
        for link in self._links.values():
            if link.status is ServerStatus.PENDING:
                texts.append(f"MCP server {link.name} is still being connected")
            elif link.status is not ServerStatus.CONNECTED:
                texts.append(f"MCP server {link.name}: {link.reason}")
            texts += [f"MCP server {link.name}: {note}" for note in (*link.catalogue.notices, *link.log.notes)]
            texts += self._tools(link)[1]
        return tuple(texts)

    def instructions(self) -> dict[str, str]:
        """What connected servers say about their use, by server, for the system prompt."""
        links = self._links.values()
        return {link.name: link.catalogue.instructions for link in links if link.catalogue.instructions}

    def prompts(self) -> tuple[PromptInfo, ...]:
        """The prompts of all servers."""
        return tuple(prompt for link in self._links.values() for prompt in link.catalogue.prompts)

    async def prompt(self, command: str, line: str = "") -> tuple[PromptMessage, ...]:
        """
        The messages of the prompt that a slash command names (`PromptInfo.command`), with the words behind it.

        Nothing is changed if cancelled. Raises `ToolRejected` (no such prompt, or arguments missing) and `McpFailed`.
        """
        for prompt in self.prompts():
            if prompt.command == command:
                return await get_prompt(self._links[prompt.server], prompt.name, prompt_arguments(prompt, line))
        raise ToolRejected(f"No MCP server has a prompt for /{command}.")

    async def reconnect(self, name: str) -> None:
        """
        End the connection to a server, with all its processes, and make a new one; returns when it is ready.

        If cancelled, the new connection is made all the same. Raises `McpFailed` if that fails, `ToolRejected` if
        there is no such server.
        """
        link = self._links.get(name)
        if link is None:
            raise ToolRejected(f"There is no MCP server {name!r}. There are: {', '.join(self._links) or 'none'}.")
        await link.ask(Reconnect())
        await link.settled.wait()
        if link.status is not ServerStatus.CONNECTED:
            raise McpFailed(name, link.reason)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called at once whenever `revision` grows. It must neither block nor raise."""
        self._listeners.append(listener)

    def tree(self) -> ActorInfo | None:
        """The actors behind it; None if there are no servers."""
        return self._supervisor.tree() if self._supervisor is not None else None

    def pids(self) -> dict[str, int]:
        """The first processes of the servers that run as child processes."""
        return {link.name: link.pid for link in self._links.values() if link.pid is not None}

    def _tools(self, link: Link) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
        return tools_of(link, trusted=link.name in self._trusted)

    def _with_resources(self) -> Sequence[Link]:
        return [link for link in self._links.values() if link.catalogue.has_resources]

    def _changed(self) -> None:
        self.revision += 1
        for listener in self._listeners:
            listener()


@asynccontextmanager
async def mcp_servers(
    configs: Iterable[ServerConfig],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    log_dir: Path | None = None,
    roots: Sequence[Path] = (),
    trusted: Collection[str] = (),
    connect_limit: float = CONNECT_LIMIT,
    wait: bool = True,
    jitter: Callable[[], float] = random.random,
) -> AsyncIterator[McpServers]:
    """
    Run servers for the length of a block, which begins when each is connected or has failed to.

    A server that fails is a notice, and is tried again; nothing that a server does raises here. At the end, also of a
    block that is cancelled, all processes are gone.

    Args:
        environ, cwd: what child processes get.
        log_dir: where their stderr goes, one file each; nowhere if None.
        roots: folders that servers are told to work in.
        trusted: servers whose read-only tools need no approval.
        connect_limit: seconds for each to get ready.
        wait: begin at once if False; tools come as servers get ready (`McpServers.on_change`).

    Raises:
        ConfigError: two servers have one name, or the SDK is not installed.
    """
    listed = tuple(configs)
    names = [config.name for config in listed]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError("MCP servers", f"two are called {name!r}", "rename one")
    if not listed:
        yield McpServers({})
        return
    make_server = await _load()
    servers = McpServers({}, trusted)
    links = {config.name: Link(config=config, log=_log(log_dir, config), changed=servers._changed) for config in listed}
    servers._links = links

    def spec(link: Link) -> ChildSpec:
        def start() -> McpServer:
            return make_server(
                link=link, environ=environ, cwd=cwd, roots=roots, connect_limit=connect_limit, jitter=jitter
            )

        return ChildSpec(link.name, start, restart=Restart.TRANSIENT, shutdown=SHUTDOWN, inbox=link.inbox)

    # Each server paces itself, so that this limit is for defects only: it never counts against a neighbour.
    supervisor = Supervisor("mcp", [spec(link) for link in links.values()], max_restarts=20 * len(listed), period=1.0)
    servers._supervisor = supervisor
    async with supervisor.running():
        try:
            if wait:
                with trio.move_on_after(connect_limit + LEAVE_LIMIT):
                    for link in links.values():
                        await link.settled.wait()
            yield servers
        finally:
            with trio.move_on_after(LEAVE_LIMIT, shield=True):
                await _close(links.values())


async def _close(links: Iterable[Link]) -> None:
    """All of them at once: the supervisor would stop one after the other."""
    listed = tuple(links)
    for link in listed:
        link.close()
    for link in listed:
        await link.ended.wait()


async def _load() -> Callable[..., McpServer]:
    try:
        module: Any = await trio.to_thread.run_sync(importlib.import_module, f"{__package__}.server")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "atrio":
            raise
        raise ConfigError("MCP servers", f"the package {error.name} is not installed", REMEDY) from error
    make: Callable[..., McpServer] = module.McpServer
    return make


def _log(folder: Path | None, config: ServerConfig) -> ServerLog:
    return ServerLog(folder / f"mcp-{config.name}.log" if folder is not None else None)
