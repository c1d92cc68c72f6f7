"""The scripted model as an httpx transport: no sockets, no threads, no tasks; time is Trio's clock alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
import trio

from .replies import Ending, Reply

if TYPE_CHECKING:
    from .scripted import ScriptedModel

__all__ = ["ScriptedTransport"]


class ScriptedTransport(httpx.AsyncBaseTransport):
    """
    Answers requests from a scripted model. Any number of clients may share it; closing it does nothing.

    A client's read timeout holds as on a socket. Cancelled: the response ends where it is.
    """

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """
        The response, its body still to come.

        Raises httpx.ConnectError where the plan says so, httpx.ReadTimeout where the client's patience ends.
        """
        body = await request.aread()
        reply = self._model.respond(
            request.method, request.url.path, dict(request.headers), body, at=trio.current_time()
        )
        clock = _Patience(request)
        await clock.wait_until(trio.current_time() + reply.delay)
        if reply.refused:
            raise httpx.ConnectError("connection refused (by the fault plan)", request=request)
        return httpx.Response(
            reply.status,
            headers=list(reply.headers),
            stream=_Body(reply, clock, request),
            extensions={"http_version": b"HTTP/1.1"},
        )


class _Patience:
    """Waits as a client does that gives up after its read timeout (seconds)."""

    def __init__(self, request: httpx.Request) -> None:
        self._request = request
        self._limit: float | None = request.extensions.get("timeout", {}).get("read")

    async def wait_until(self, time: float) -> None:
        wait = time - trio.current_time()
        if wait <= 0:
            await trio.lowlevel.checkpoint()
        elif self._limit is not None and wait > self._limit:
            await trio.sleep(self._limit)
            raise httpx.ReadTimeout("", request=self._request)
        else:
            await trio.sleep_until(time)


class _Body(httpx.AsyncByteStream):
    """
    The frames, one chunk each, at their times.

    An iterator object, not an async generator: one that is dropped half-way needs no finalizer.
    """

    def __init__(self, reply: Reply, clock: _Patience, request: httpx.Request) -> None:
        self._frames = iter(reply.frames)
        self._left = len(reply.frames)
        self._reply = reply
        self._clock = clock
        self._request = request
        self._start = trio.current_time()
        self._closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._closed:
            raise StopAsyncIteration
        frame = next(self._frames, None)
        if frame is None:
            return await self._end()
        await self._clock.wait_until(self._start + frame.at)
        self._left -= 1
        if self._left == 0:
            self._reply.delivered()
        return frame.data

    async def _end(self) -> bytes:
        match self._reply.ending:
            case Ending.CUT:
                await trio.lowlevel.checkpoint()
                raise httpx.RemoteProtocolError(
                    "peer closed connection without sending complete message body (incomplete chunked read)",
                    request=self._request,
                )
            case Ending.STALL:
                await self._clock.wait_until(float("inf"))
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._closed = True
