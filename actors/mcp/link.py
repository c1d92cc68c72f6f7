"""
What the session and the actor of one server share, over all restarts of both the actor and the server.

Requests go through a mailbox, so that any task may ask while one task owns the connection; each carries the cancel
scope in which it is performed, so that whoever asked can end it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import attrs
import trio

from atrio.runtime.errors import AtrioError, PeerGone, ReplyDropped, ToolError
from atrio.runtime.mailbox import Address, Inbox, Reply, open_mailbox, open_reply
from atrio.runtime.messages import JsonObject

from .config import ServerConfig
from .server_log import ServerLog
from .values import Catalogue, Failure, ServerStatus

__all__ = [
    "CallTool",
    "GetPrompt",
    "Link",
    "ListResources",
    "McpFailed",
    "McpServerLost",
    "ReadResource",
    "Reconnect",
    "Request",
    "TakeProgress",
]

CAPACITY: Final = 64

TakeProgress: TypeAlias = Callable[[float, float | None, str | None], None]
"""``take(progress, total, message)``: what a server says about a call under way."""


@attrs.define(eq=False, slots=False)
class McpFailed(ToolError):
    """A server could not do what it was asked for. ``problem`` is a sentence for the model."""

    server: str
    problem: str

    def __str__(self) -> str:
        return f"MCP server {self.server}: {self.problem}"


@attrs.define(eq=False, slots=False)
class McpServerLost(AtrioError):
    """The connection to a server could not be made, or has ended. Its supervisor starts it again."""

    server: str
    reason: str

    def __str__(self) -> str:
        return f"MCP server {self.server}: {self.reason}"


@attrs.frozen(kw_only=True)
class CallTool:
    name: str
    arguments: JsonObject


@attrs.frozen(kw_only=True)
class ReadResource:
    uri: str


@attrs.frozen(kw_only=True)
class ListResources:
    pass


@attrs.frozen(kw_only=True)
class GetPrompt:
    name: str
    arguments: dict[str, str]


@attrs.frozen(kw_only=True)
class Reconnect:
    """End the connection, if there is one, and make a new one."""


Wish: TypeAlias = CallTool | ReadResource | ListResources | GetPrompt | Reconnect


@attrs.frozen(kw_only=True, eq=False)
class Request:
    """A wish, where its answer goes, and the scope that ends it."""

    wish: Wish
    reply: Reply[JsonObject | Failure]
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    progress: TakeProgress | None = None

    def answer(self, outcome: JsonObject | Failure) -> None:
        """Answer it, unless that was done."""
        if not self.reply.settled:
            self.reply.put(outcome)


@attrs.define(eq=False, kw_only=True)
class Link:
    """
    One server, as the session sees it.

    Args:
        changed: called whenever status or catalogue have changed.
    """

    config: ServerConfig
    log: ServerLog
    changed: Callable[[], None]
    address: Address[Request] = attrs.field(init=False)
    inbox: Inbox[Request] = attrs.field(init=False)
    status: ServerStatus = attrs.field(init=False, default=ServerStatus.PENDING)
    reason: str = attrs.field(init=False, default="")
    """Why it isn't connected."""
    catalogue: Catalogue = attrs.field(init=False, factory=Catalogue)
    """What it offered last; kept while it is away, so that the tools of a session don't come and go with it."""
    connections: int = attrs.field(init=False, default=0)
    pid: int | None = attrs.field(init=False, default=None)
    failures: int = attrs.field(init=False, default=0)
    """How often in a row it was lost without having been of use."""
    old_handshake: bool = attrs.field(init=False, default=False)
    """Try the handshake of older servers the next time, without a probe for newer ones."""
    settled: trio.Event = attrs.field(init=False, factory=trio.Event)
    """The first attempt to connect has come to an end, this way or that."""
    closed: bool = attrs.field(init=False, default=False)
    ended: trio.Event = attrs.field(init=False, factory=trio.Event)
    """It was closed, and nothing of it is left."""
    scope: trio.CancelScope | None = attrs.field(init=False, default=None)
    """Around the actor's whole life."""
    serving: trio.CancelScope | None = attrs.field(init=False, default=None)
    """Around the part of it after which the connection is still there to be closed in order."""

    def __attrs_post_init__(self) -> None:
        self.address, self.inbox = open_mailbox(CAPACITY, name=f"mcp {self.config.name}")

    @property
    def name(self) -> str:
        return self.config.name

    async def ask(self, wish: Wish, progress: TakeProgress | None = None) -> JsonObject:
        """
        The server's answer to a wish, as on the wire. Waits while the server is being started again.

        If cancelled, the server is told that nobody waits any more, and an answer that still comes is dropped.

        Raises:
            McpFailed: there is no answer, or it is an error.
        """
        reply: Reply[JsonObject | Failure]
        reply, pending = open_reply()
        request = Request(wish=wish, reply=reply, progress=progress)
        try:
            await self.address.send(request)
            outcome = await pending.get()
        except (PeerGone, ReplyDropped):
            raise McpFailed(self.name, "it was stopped, so there is no answer") from None
        finally:
            request.scope.cancel(reason="nobody waits for it any more")
        if isinstance(outcome, Failure):
            raise McpFailed(self.name, outcome.text)
        return outcome

    def connected(self, catalogue: Catalogue, pid: int | None) -> None:
        """Note that it can be used."""
        self.pid = pid
        self.connections += 1
        self.old_handshake = False
        self._note(ServerStatus.CONNECTED, "", catalogue)

    def refreshed(self, catalogue: Catalogue) -> None:
        """Note that it offers something else."""
        self._note(self.status, self.reason, catalogue)

    def restarting(self) -> None:
        """Note that a new connection is made because somebody wants one."""
        self.failures = 0
        self.settled = trio.Event()
        self.status, self.reason, self.pid = ServerStatus.PENDING, "it is being connected again.", None

    def lost(self, status: ServerStatus, reason: str, *, settled: bool = True) -> None:
        """Note that it can't be used. Not ``settled``: the next attempt follows at once."""
        self.pid = None
        self._note(status, reason, self.catalogue, settled=settled)

    def _note(self, status: ServerStatus, reason: str, catalogue: Catalogue, *, settled: bool = True) -> None:
        self.status, self.reason, self.catalogue = status, reason, catalogue
        if settled:
            self.settled.set()
        self.changed()

    def close(self) -> None:
        """End it for good. Returns at once; `ended` is set when it is done."""
        self.closed = True
        scope = self.serving or self.scope
        if scope is not None:
            scope.cancel(reason="the server is no longer needed")
        else:
            self.finish()

    def finish(self) -> None:
        """Note that nothing of it is left. Who still waits for an answer gets `McpFailed`."""
        self.inbox.close()
        self.ended.set()
