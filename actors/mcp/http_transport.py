"""The way to a server over streamable HTTP: the SDK's, with our own client, limits and mended lists of tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import httpx2
import trio
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from .config import HttpServer
from .listing import MendedStream
from .server_log import ServerLog

__all__ = ["HttpTransport"]

CONNECT_LIMIT: Final = 30.0
"""Seconds to reach the server and to send a request. Reading has none: calls may take long, and have limits."""

_AUTH: Final = (401, 403)


@attrs.define(eq=False, kw_only=True)
class HttpTransport:
    """One connection. ``ended`` says what the server last refused a request with."""

    config: HttpServer
    log: ServerLog
    ended: str | None = attrs.field(init=False, default=None)
    gone: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Never set: a server that is gone is noticed at the next request."""
    needs_auth: bool = attrs.field(init=False, default=False)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[TransportStreams]:
        """
        The two streams that the SDK's client wants, for the length of the block.

        When cancelled, the server isn't told that the session ends.
        """
        # Reading the certificates takes tens of milliseconds.
        http = await trio.to_thread.run_sync(self._client)
        async with http, streamable_http_client(self.config.url, http_client=http) as (incoming, outgoing):
            yield MendedStream(incoming, self.log.note), outgoing

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=dict(self.config.headers),
            timeout=httpx2.Timeout(CONNECT_LIMIT, read=None),
            event_hooks={"response": [self._look_at]},
        )

    async def _look_at(self, response: httpx2.Response) -> None:
        if response.status_code < 400:
            self.ended = None
        elif response.request.method == "POST":
            self.ended = f"it answered with HTTP {response.status_code} {response.reason_phrase}".rstrip()
            self.needs_auth = self.needs_auth or response.status_code in _AUTH
