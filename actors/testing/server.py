"""The scripted model on loopback: HTTP/1.1 with keep-alive, one HTTP chunk and one send for each frame."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

import attrs
import h11
import trio

from atrio.runtime.groups import collapse

from .replies import Ending, Reply, error_reply
from .scripted import BODY_LIMIT

if TYPE_CHECKING:
    from .scripted import ScriptedModel

__all__ = ["serving"]

HOST = "127.0.0.1"
RECEIVE = 64 * 1024
"""Bytes of one receive."""

BACKLOG = 1024
"""Benches open a thousand connections at once."""

PATIENCE = 4
"""So many times the limit is read of a body that is too large; then the connection closes."""

TORN = 16
"""Bytes that a torn chunk announces beyond those that it has."""


@asynccontextmanager
async def serving(model: ScriptedModel, *, port: int = 0) -> AsyncIterator[str]:
    """
    Serve within the block; gives the base URL. At its end, or cancelled, everything is closed.

    Raises OSError where the port is taken; an error of the script's own functions ends the block.
    """
    listeners = await trio.open_tcp_listeners(port, host=HOST, backlog=BACKLOG)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, partial(_serve, model), listeners)
            try:
                yield f"http://{HOST}:{listeners[0].socket.getsockname()[1]}"
            finally:
                nursery.cancel_scope.cancel(reason="the block that served the scripted model has ended")
    except BaseExceptionGroup as group:
        # The block's own error, not a group of one around it; what it was raised from stays as it is.
        error = collapse(group)
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context
            del error, context


@attrs.frozen(kw_only=True)
class _Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


async def _serve(model: ScriptedModel, stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = _Connection(stream)
    try:
        await connection.serve(model)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return  # the client is gone: that is its right


class _Connection:
    """One client: request, reply, request, until either side has enough."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._early = bytearray()
        """What came before it was asked for."""

    async def serve(self, model: ScriptedModel) -> None:
        while True:
            try:
                request = await self._receive()
            except h11.RemoteProtocolError as error:
                await self._send(error_reply(400, f"not a proper HTTP request: {error}"))
                return
            if request is None:
                return
            now = trio.current_time()
            reply = model.respond(request.method, request.path, request.headers, request.body, at=now)
            if not await self._perform(reply):
                return

    async def _receive(self) -> _Request | None:
        """
        The next request; None when the client has closed, or sends without end.

        Of a body that is too large one piece too many is kept, so that the model refuses it; the rest is read and
        dropped, since a connection that is closed on unread bytes loses the answer.
        """
        parser = h11.Connection(h11.SERVER)
        head: h11.Request | None = None
        body, size = bytearray(), 0
        while True:
            match parser.next_event():
                case h11.Request() as head:
                    if parser.they_are_waiting_for_100_continue:
                        await self._stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                case h11.Data(data=data):
                    size += len(data)
                    if len(body) <= BODY_LIMIT:
                        body += data
                    if size > PATIENCE * BODY_LIMIT:
                        return None
                case h11.EndOfMessage():
                    assert head is not None
                    self._early[:0] = parser.trailing_data[0]
                    return _request(head, bytes(body))
                case h11.ConnectionClosed():
                    return None
                case _:
                    parser.receive_data(await self._more())

    async def _more(self) -> bytes:
        if self._early:
            data = bytes(self._early)
            self._early.clear()
            return data
        return bytes(await self._stream.receive_some(RECEIVE))

    async def _perform(self, reply: Reply) -> bool:
        """Send the reply unless the client leaves; False when the connection is of no more use."""
        usable = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            usable = await self._send(reply)
            nursery.cancel_scope.cancel(reason="the reply is sent")
        return usable

    async def _watch(self, scope: trio.CancelScope) -> None:
        """A client that leaves ends the reply, also one that stalls."""
        while len(self._early) <= BODY_LIMIT:
            try:
                data = await self._stream.receive_some(RECEIVE)
            except trio.BrokenResourceError:
                data = b""
            if not data:
                scope.cancel(reason="the client has closed the connection")
                return
            self._early += data

    async def _send(self, reply: Reply) -> bool:
        try:
            await trio.sleep(reply.delay)
            if reply.refused:
                # No lingering: the client sees a reset, not an orderly end.
                self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            await self._stream.send_all(_head(reply))
            await self._send_frames(reply)
            if reply.ending is Ending.STALL:
                await trio.sleep_forever()
        except trio.BrokenResourceError:
            return False
        return reply.ending is Ending.COMPLETE

    async def _send_frames(self, reply: Reply) -> None:
        start = trio.current_time()
        last = len(reply.frames) - 1
        for number, frame in enumerate(reply.frames):
            if start + frame.at > trio.current_time():
                await trio.sleep_until(start + frame.at)
            chunk = b"%x\r\n%b\r\n" % (len(frame.data), frame.data) if frame.data else b""
            if number == last:
                reply.delivered()
                chunk = _last(chunk, frame.data, reply.ending)
            if chunk:
                await self._stream.send_all(chunk)
        if not reply.frames and reply.ending is Ending.COMPLETE:
            await self._stream.send_all(b"0\r\n\r\n")


def _last(chunk: bytes, data: bytes, ending: Ending) -> bytes:
    match ending:
        case Ending.COMPLETE:
            return chunk + b"0\r\n\r\n"
        case Ending.CUT:
            return b"%x\r\n%b" % (len(data) + TORN, data)
        case Ending.STALL:
            return chunk


def _request(head: h11.Request, body: bytes) -> _Request:
    return _Request(
        method=head.method.decode("ascii"),
        path=head.target.decode("ascii").partition("?")[0],
        headers={name.decode("ascii"): value.decode("latin-1") for name, value in head.headers},
        body=body,
    )


def _head(reply: Reply) -> bytes:
    try:
        phrase = HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = "Overloaded" if reply.status == 529 else "Unknown"
    lines = [f"HTTP/1.1 {reply.status} {phrase}", *(f"{name}: {value}" for name, value in reply.headers)]
    return "\r\n".join((*lines, "transfer-encoding: chunked", "", "")).encode("latin-1")
