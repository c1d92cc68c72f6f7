"""
The actor of one server: it owns the connection in one task, serves requests from its mailbox, and raises when the
connection is lost, so that its supervisor starts it again.

The pause before a new attempt is the actor's own first act, so it can say no to requests meanwhile. A server that is
lost again and again is left alone until somebody asks for it: then one attempt a minute is made.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import mcp_types
import trio
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from atrio.runtime.actor import Status
from atrio.runtime.errors import ToolError

from .config import HttpServer, StdioServer
from .connection import SESSION_ENDED, describe, innermost, perform, read_catalogue
from .http_transport import HttpTransport
from .link import Link, McpServerLost, Reconnect, Request
from .transport import StdioTransport
from .values import Catalogue, Failure, ServerStatus

__all__ = ["CONNECT_LIMIT", "McpServer", "pause_before"]

CONNECT_LIMIT: Final = 30.0
"""Seconds to start, shake hands and list everything. Package runners download what they run first."""

LIST_LIMIT: Final = 30.0

REFRESH_PAUSE: Final = 0.1
"""Seconds between two looks at a server that keeps saying that its lists have changed."""

STABLE: Final = 10.0
"""Seconds after which a connection counts as having been of use."""

SHOWN_TAIL_CHARS: Final = 600

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 60.0
MAX_FAILURES: Final = 5
"""In a row, after which there is no further attempt unless somebody asks."""


def pause_before(failures: int, jitter: float) -> float:
    """Seconds before the next attempt: none at first, little after one loss, then 0.5, 1, 2. ``jitter``: 0 to 1."""
    if failures <= 1:
        return FIRST_PAUSE * failures
    if failures >= MAX_FAILURES:
        return LONGEST_PAUSE
    return min(LONGEST_PAUSE, 0.5 * 2.0 ** (failures - 2)) * (1 + 0.25 * jitter)


@attrs.define(eq=False, kw_only=True)
class McpServer:
    """
    One life of the actor, from the pause before it to the loss of the connection.

    Args:
        environ, cwd: what a stdio server gets.
        roots: folders that the server is told of.
    """

    link: Link
    environ: Mapping[str, str]
    cwd: Path
    roots: Sequence[Path] = ()
    connect_limit: float = CONNECT_LIMIT
    jitter: Callable[[], float] = random.random
    status: Status = attrs.field(factory=Status)
    _open: set[Request] = attrs.field(init=False, factory=set)
    _asked: bool = attrs.field(init=False, default=False)
    """The connection is given up because somebody wants a new one."""
    _stale: trio.Event = attrs.field(init=False, factory=trio.Event)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """
        Live. Returns when the link was closed; raises `McpServerLost` when the connection could not be made or ended.

        When it is left, in whichever way, all requests under way are answered and the server's processes are gone.
        """
        link = self.link
        task_status.started()
        if link.closed:
            return
        try:
            with trio.CancelScope() as link.scope:
                await self._wait_turn()
                await self._live()
        except McpServerLost:
            if not link.closed:
                raise
        finally:
            link.scope = None
            for request in self._open:
                request.reply.close()
            if link.closed:
                link.finish()

    # --- the pause --------------------------------------------------------------------------------

    async def _wait_turn(self) -> None:
        """Return when the next attempt is due. Requests get a refusal meanwhile, unless the pause is short."""
        link = self.link
        pause = pause_before(link.failures, self.jitter())
        if link.failures <= 1:
            await trio.sleep(pause)
            return
        due = trio.current_time() + pause
        parked = link.failures >= MAX_FAILURES
        with self.status.waiting("the next attempt", until=None if parked else due):
            while True:
                with trio.move_on_at(math.inf if parked else due):
                    request = await link.inbox.receive()
                    if isinstance(request.wish, Reconnect):
                        link.restarting()
                        request.answer({})
                        return
                    if trio.current_time() >= due:
                        self._open.add(request)
                        return
                    request.answer(Failure(text=self._refusal(due)))
                    continue
                return

    def _refusal(self, due: float) -> str:
        wait = max(1, math.ceil(due - trio.current_time()))
        return f"not connected: {self.link.reason} Don't try again within {wait} s; do without it if you can."

    # --- the connection ---------------------------------------------------------------------------

    async def _live(self) -> None:
        link = self.link
        link.log.begin()
        transport = self._transport()
        began = trio.current_time()
        try:
            await self._use(transport)
        except Exception as error:  # a border: whatever comes out of the SDK, alone or in groups, means the same
            raise self._lost(error, transport, began) from error
        except BaseExceptionGroup as group:
            cancelled, rest = group.split(trio.Cancelled)
            if cancelled is None or (rest is not None and not isinstance(rest, Exception)):
                raise
            raise cancelled from rest

    def _transport(self) -> StdioTransport | HttpTransport:
        config = self.link.config
        if isinstance(config, StdioServer):
            return StdioTransport(config=config, environ=self.environ, cwd=self.cwd, log=self.link.log)
        assert isinstance(config, HttpServer)
        return HttpTransport(config=config, log=self.link.log)

    async def _use(self, transport: StdioTransport | HttpTransport) -> None:
        link = self.link
        with trio.fail_after(self.connect_limit) as limit, self.status.waiting("the connection"):
            # Some servers end at the probe for newer versions; they get the old handshake the next time.
            mode = "legacy" if link.old_handshake else "auto"
            link.old_handshake = not link.old_handshake
            async with Client(
                transport.running(),
                mode=mode,
                cache=None,
                message_handler=self._hear,
                list_roots_callback=self._list_roots if self.roots else None,
                client_info=mcp_types.Implementation(name="atrio", version="0"),
            ) as client:
                catalogue = await read_catalogue(client, link.name)
                limit.deadline = math.inf
                link.connected(catalogue, getattr(transport, "pid", None))
                await self._serve(client, transport)

    async def _serve(self, client: Client, transport: StdioTransport | HttpTransport) -> None:
        """Serve until the link is closed or the connection lost."""
        with trio.CancelScope() as self.link.serving:
            try:
                await self._serve_all(client, transport)
            finally:
                self.link.serving = None

    async def _serve_all(self, client: Client, transport: StdioTransport | HttpTransport) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._refresh, client)
            nursery.start_soon(self._watch, transport)
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                nursery.start_soon(self._listen, client)
            for request in tuple(self._open):
                nursery.start_soon(self._perform, client, transport, request)
            while True:
                request = await self.link.inbox.receive()
                if isinstance(request.wish, Reconnect):
                    self._asked = True
                    self.link.restarting()
                    request.answer({})
                    raise McpServerLost(self.link.name, "a new connection was asked for.")
                self._open.add(request)
                nursery.start_soon(self._perform, client, transport, request)

    async def _watch(self, transport: StdioTransport | HttpTransport) -> None:
        await transport.gone.wait()
        raise McpServerLost(self.link.name, "the connection ended.")

    async def _perform(self, client: Client, transport: StdioTransport | HttpTransport, request: Request) -> None:
        outcome: Mapping[str, Any] | Failure | None = None
        with request.scope:
            outcome = await perform(client, request.wish, request.progress)
        if transport.gone.is_set() and isinstance(outcome, Failure):
            return  # it is answered with the reason for that, which is known in a moment
        self._open.discard(request)
        if isinstance(outcome, Failure) and outcome.text == SESSION_ENDED:
            request.answer(Failure(text="it had forgotten this session and did nothing; a new one is made, try again."))
            raise McpServerLost(self.link.name, "it no longer knew the session.")
        if isinstance(outcome, Failure) and isinstance(transport, HttpTransport) and transport.ended is not None:
            outcome = Failure(text=f"{transport.ended}: {outcome.text}")
        if outcome is None:
            request.reply.close()
        else:
            self.link.failures = 0
            request.answer(outcome if isinstance(outcome, Failure) else dict(outcome))

    def _lost(self, error: Exception, transport: StdioTransport | HttpTransport, began: float) -> McpServerLost:
        """Note the loss, and answer all that waits for the server with it."""
        link = self.link
        reason = self._reason(error, transport)
        used = self._asked or link.status is ServerStatus.CONNECTED
        if used and trio.current_time() - began >= STABLE:
            link.failures = 0
        link.failures += 1
        if self._asked:
            link.failures = 0
        elif isinstance(transport, HttpTransport) and transport.needs_auth:
            link.failures = max(link.failures, MAX_FAILURES)
            link.lost(ServerStatus.NEEDS_AUTH, reason)
        else:
            # One that ended in the handshake may only not have understood it, and gets a simpler one at once.
            retried = link.failures == 1 and transport.ended is not None and not used
            link.lost(ServerStatus.FAILED, reason, settled=not retried)
        effect = "The call failed, and may or may not have had an effect:" if used else "The call was not made:"
        for request in self._open:
            request.answer(Failure(text=f"{effect} {reason}"))
        return McpServerLost(link.name, reason)

    def _reason(self, error: Exception, transport: StdioTransport | HttpTransport) -> str:
        """What ended the connection, in whole sentences."""
        tail = self.link.log.tail
        said = f" The last it wrote to stderr:\n{tail[-SHOWN_TAIL_CHARS:]}\n" if tail else ""
        cause = innermost(error)
        if isinstance(cause, ToolError):
            return f"{cause}."
        if transport.ended is not None:
            return f"{transport.ended}.{said}"
        if isinstance(cause, McpServerLost):
            return cause.reason
        if isinstance(cause, trio.TooSlowError):
            return f"it did not get ready within {self.connect_limit:g} s.{said}"
        if isinstance(transport, HttpTransport):
            return f"{transport.config.target} can't be used: {describe(cause)}."
        return f"{describe(cause)}.{said}"

    # --- what the server says by itself -----------------------------------------------------------

    async def _hear(self, message: IncomingMessage) -> None:
        match message:
            case Exception():
                self.link.log.note(f"not a message: {describe(message)}")
            case (
                mcp_types.ToolListChangedNotification()
                | mcp_types.PromptListChangedNotification()
                | mcp_types.ResourceListChangedNotification()
            ):
                self._stale.set()
            case _:
                pass

    async def _listen(self, client: Client) -> None:
        """Newer servers tell of changes only to those who subscribe."""
        offers = client.server_capabilities
        tools = offers.tools is not None and offers.tools.list_changed is True
        prompts = offers.prompts is not None and offers.prompts.list_changed is True
        while tools or prompts:
            try:
                async with client.listen(tools_list_changed=tools, prompts_list_changed=prompts) as changes:
                    async for _ in changes:
                        self._stale.set()
                return
            except SubscriptionLost:
                self._stale.set()  # what happened meanwhile was not heard
                await trio.sleep(LIST_LIMIT)
            except MCPError as error:
                self.link.log.note(f"it does not tell of changes: {describe(error)}")
                return

    async def _refresh(self, client: Client) -> None:
        while True:
            await self._stale.wait()
            await trio.sleep(REFRESH_PAUSE)  # several changes at once need one look
            self._stale = trio.Event()
            catalogue: Catalogue | None = None
            try:
                with trio.fail_after(LIST_LIMIT):
                    catalogue = await read_catalogue(client, self.link.name)
            except (MCPError, ValidationError, trio.TooSlowError) as error:
                self.link.log.note(f"its new list can't be read: {describe(error)}")
            if catalogue is not None and catalogue != self.link.catalogue:
                self.link.refreshed(catalogue)

    async def _list_roots(self, context: ClientRequestContext) -> mcp_types.ListRootsResult:
        roots = [{"uri": path.as_uri(), "name": path.name} for path in self.roots]
        return mcp_types.ListRootsResult.model_validate({"roots": roots})
