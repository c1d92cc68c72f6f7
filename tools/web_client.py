"""
One HTTP request at a time, to checked addresses only, within limits of size and time.

A host is looked up once, every address found is checked, and the connection goes to one of just these: what the name
stands for later doesn't matter. Proxies of the environment are not used, since behind one nothing can be checked.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
import ssl
import zlib
from collections.abc import Callable
from typing import Any, Final

import attrs
import h11
import httpx
import trio

from atrio.runtime.errors import ToolError, ToolRejected

from .web_address import AllowedHosts, Target

__all__ = ["Answer", "FetchFailed", "fetch"]

CONNECT_LIMIT: Final = 10.0
"""Seconds for one address, with the TLS handshake."""

SILENCE_LIMIT: Final = 30.0
"""Seconds without a byte."""

MAX_ADDRESSES: Final = 4
"""So many of a host's addresses are tried."""

HEADER_BYTES: Final = 128 * 1024
CHUNK_BYTES: Final = 65_536

_HEADERS: Final = (
    ("User-Agent", "atrio-webfetch/0.1"),
    ("Accept", "text/markdown, text/html;q=0.9, text/plain;q=0.9, application/json;q=0.9, */*;q=0.5"),
    ("Accept-Encoding", "gzip, deflate"),
    ("Connection", "close"),
)


@attrs.define(eq=False, slots=False)
class FetchFailed(ToolError):
    """Nothing came from ``url``, or not all of its answer."""

    url: str
    reason: str

    def __str__(self) -> str:
        return f"Can't fetch {self.url}: {self.reason}."


@attrs.frozen(kw_only=True)
class Answer:
    """A response. ``cut``: the body was longer than the limit, and its end is missing."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    cut: bool = False


async def fetch(
    target: Target,
    allowed: AllowedHosts,
    *,
    limit_bytes: int,
    wants_body: Callable[[int, dict[str, str]], bool],
    on_bytes: Callable[[int], None],
) -> Answer:
    """
    GET ``target``, without following redirects. ``wants_body`` is asked with status and headers (names in lower case);
    ``on_bytes`` hears how many bytes there are by now, unpacked. Raises `FetchFailed`, and `ToolRejected` for a host
    at an address that is not allowed.

    Cancelled: the connection is closed.
    """
    try:
        stream = await _connect(target, allowed)
        try:
            exchange = _Exchange(target, stream)
            status, headers = await exchange.ask()
            if not wants_body(status, headers):
                return Answer(status=status, headers=headers)
            body, cut = await exchange.body(headers, limit_bytes, on_bytes)
            return Answer(status=status, headers=headers, body=body, cut=cut)
        finally:
            await trio.aclose_forcefully(stream)  # noqa: ASYNC102  # it waits for nothing
    except (OSError, trio.BrokenResourceError, h11.ProtocolError, zlib.error) as error:
        raise FetchFailed(target.url, _reason(error)) from error
    except trio.TooSlowError as error:
        raise FetchFailed(target.url, f"the server was silent for {SILENCE_LIMIT:g} s") from error


# --- connecting -----------------------------------------------------------------------------------


async def _connect(target: Target, allowed: AllowedHosts) -> trio.abc.Stream:
    failure: FetchFailed | None = None
    for address in (await _look_up(target, allowed))[:MAX_ADDRESSES]:
        try:
            with trio.fail_after(CONNECT_LIMIT):
                stream = await trio.open_tcp_stream(address, target.port)
                return stream if target.scheme == "http" else await _encrypted(stream, target.host)
        except (OSError, trio.BrokenResourceError) as error:
            failure = FetchFailed(target.url, _reason(error))
        except trio.TooSlowError:
            failure = FetchFailed(target.url, f"no connection came about within {CONNECT_LIMIT:g} s")
    raise failure or FetchFailed(target.url, f"the host {target.host} has no address")


async def _encrypted(stream: trio.SocketStream, host: str) -> trio.abc.Stream:
    tls = await trio.to_thread.run_sync(_tls)
    secure: trio.SSLStream[trio.SocketStream] = trio.SSLStream(stream, tls, server_hostname=host, https_compatible=True)
    done = False
    try:
        await secure.do_handshake()
        done = True
    finally:
        if not done:
            await trio.aclose_forcefully(stream)  # noqa: ASYNC102  # it waits for nothing
    return secure


@functools.cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()


async def _look_up(target: Target, allowed: AllowedHosts) -> list[str]:
    """The host's addresses. Raises `ToolRejected` if a single one is not allowed: such a name serves no good end."""
    host = target.host
    try:
        with trio.fail_after(CONNECT_LIMIT):
            found = await trio.socket.getaddrinfo(host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise FetchFailed(target.url, f"the host {host} was not found ({why})") from error
    except trio.TooSlowError as error:
        raise FetchFailed(target.url, f"looking up {host} took more than {CONNECT_LIMIT:g} s") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for text in addresses:
        objection = allowed.objection(host, ipaddress.ip_address(text.partition("%")[0]))
        if objection is not None:
            where = "is" if host == text else f"is at {text}, which is"
            raise ToolRejected(
                f"{host} {where} {objection}. WebFetch reaches public addresses only, unless the program that runs "
                "this session allows others; don't try to reach it in other ways."
            )
    return addresses


def _reason(error: Exception) -> str:
    """The cause that says most."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, ssl.SSLError):
            return f"the TLS connection failed: {getattr(at, 'verify_message', '') or at.reason or at}"
        if isinstance(at, OSError) and at.strerror:
            return at.strerror
        at = at.__cause__ or at.__context__
    if isinstance(error, zlib.error):
        return f"its compressed content is broken ({error})"
    if isinstance(error, h11.ProtocolError):
        return f"its answer is not valid HTTP ({error})"
    return str(error) or type(error).__name__


# --- one request ----------------------------------------------------------------------------------


class _Exchange:
    """A request and its response over a connection of their own."""

    def __init__(self, target: Target, stream: trio.abc.Stream) -> None:
        self._target = target
        self._stream = stream
        self._http = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=HEADER_BYTES)

    async def ask(self) -> tuple[int, dict[str, str]]:
        """Send the request and await the response's head."""
        headers = [("Host", self._target.authority), *_HEADERS]
        request = self._http.send(h11.Request(method="GET", target=self._target.path, headers=headers))
        ending = self._http.send(h11.EndOfMessage())
        with trio.fail_after(SILENCE_LIMIT):
            await self._stream.send_all((request or b"") + (ending or b""))
        while not isinstance(event := await self._next(), h11.Response):
            if isinstance(event, h11.ConnectionClosed):
                raise FetchFailed(self._target.url, "the server closed the connection without an answer")
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        return event.status_code, found

    async def body(
        self, headers: dict[str, str], limit_bytes: int, on_bytes: Callable[[int], None]
    ) -> tuple[bytes, bool]:
        """The body, unpacked, and whether it was cut at the limit."""
        unpacking = _unpacking(self._target, headers.get("content-encoding", ""))
        body = bytearray()
        while isinstance(event := await self._next(), h11.Data):
            body += unpacking.take(bytes(event.data), limit_bytes + 1 - len(body))
            on_bytes(len(body))
            if len(body) > limit_bytes:
                return bytes(body[:limit_bytes]), True
        if not unpacking.complete:
            raise FetchFailed(self._target.url, "its compressed content ended too early")
        return bytes(body), False

    async def _next(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            with trio.fail_after(SILENCE_LIMIT):
                self._http.receive_data(bytes(await self._stream.receive_some(CHUNK_BYTES)))
        return event


@attrs.define(eq=False)
class _Unpacking:
    """Undoes the packing of a body. ``inflate`` is None where there is none."""

    inflate: Any = None
    taken: bool = False

    def take(self, chunk: bytes, room: int) -> bytes:
        """At most ``room`` bytes, however small a chunk they are packed into."""
        self.taken = self.taken or bool(chunk)
        if self.inflate is None:
            return chunk[:room]
        data: bytes = self.inflate.decompress(chunk, room)
        return data

    @property
    def complete(self) -> bool:
        return self.inflate is None or not self.taken or bool(self.inflate.eof)


def _unpacking(target: Target, encoding: str) -> _Unpacking:
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return _Unpacking()
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Unpacking(zlib.decompressobj(47))  # gzip and zlib, told apart by their heads
    raise FetchFailed(target.url, f"its content is packed with {encoding[:40]!r}, which was not asked for")
