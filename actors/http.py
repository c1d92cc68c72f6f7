"""The streamer's HTTP client: small, owned by one session, replaced whenever its state is in doubt."""

from __future__ import annotations

import functools
import ssl

import httpcore  # noqa: F401  # httpx imports it with its first client, which would be in the middle of a run
import httpx
import trio

from atrio.runtime.model import FailureKind, ModelFailure

__all__ = ["HttpPool", "failure_of"]

CLOSE_LIMIT = 1.0
"""Closing sockets is local work; a transport that needs longer is left behind."""

TIMEOUT = httpx.Timeout(connect=15.0, write=60.0, pool=15.0, read=None)
"""No read limit here: silence is the watchdog's business, which knows pings from progress."""

LIMITS = httpx.Limits(max_connections=4, max_keepalive_connections=2, keepalive_expiry=60.0)


@functools.cache
def _tls() -> ssl.SSLContext:
    # Loading the certificate store costs tens of milliseconds: once for the process, not for each session.
    return httpx.create_ssl_context()


class HttpPool:
    """
    Hands out a client.

    A request that was cancelled while connecting can leave a slot of the connection pool taken for good
    (encode/httpcore#1093), so a pool in doubt is thrown away as a whole.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None, *, tls: bool = True) -> None:
        self._transport = transport
        # Without it nothing is verified, so only for plain http. Setting TLS up takes tens of milliseconds.
        self.tls = tls
        self._client: httpx.AsyncClient | None = None
        self._doubtful = False
        self.reached = False
        """The endpoint has answered anything in this session."""

    def doubt(self) -> None:
        """The present client is replaced before it is used again."""
        self._doubtful = True

    def trust(self) -> None:
        """The last exchange ended well: its connection may serve again."""
        self._doubtful = False

    async def client(self) -> httpx.AsyncClient:
        """The client to use now. Cancelled: the old one may stay open until `aclose`."""
        if self._doubtful:
            await self.aclose()
            self._doubtful = False
        if self._client is None:
            self._client = self._open()
        return self._client

    def _open(self) -> httpx.AsyncClient:
        if self._transport is not None:
            return httpx.AsyncClient(transport=_Borrowed(self._transport), timeout=TIMEOUT)
        verify = _tls() if self.tls else False
        return httpx.AsyncClient(verify=verify, timeout=TIMEOUT, limits=LIMITS, follow_redirects=False)

    async def aclose(self) -> None:
        """Close what is open. Shielded and bounded, so that it may be called while cancelled."""
        client, self._client = self._client, None
        if client is not None:
            with trio.move_on_after(CLOSE_LIMIT, shield=True):
                await client.aclose()


class _Borrowed(httpx.AsyncBaseTransport):
    """A transport that somebody else owns: closing the client leaves it open."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._transport.handle_async_request(request)


def failure_of(error: httpx.HTTPError | httpx.InvalidURL) -> ModelFailure:
    """What a transport error means."""
    text = str(error) or type(error).__name__
    match error:
        case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.ProxyError():
            if _is_tls(error):
                return ModelFailure(kind=FailureKind.TLS, message=f"TLS failed: {text}", retryable=False)
            return ModelFailure(
                kind=FailureKind.UNREACHABLE, message=f"can't connect to the model server: {text}", retryable=True
            )
        case httpx.UnsupportedProtocol() | httpx.InvalidURL() | httpx.LocalProtocolError():
            return ModelFailure(kind=FailureKind.INVALID_REQUEST, message=text, retryable=False)
        case httpx.TimeoutException():
            return ModelFailure(
                kind=FailureKind.TIMEOUT,
                message=f"the model server did not take the request in time: {text}",
                retryable=True,
            )
        case httpx.DecodingError():
            return ModelFailure(
                kind=FailureKind.MALFORMED, message=f"the response can't be decompressed: {text}", retryable=True
            )
        case _:
            return ModelFailure(
                kind=FailureKind.CONNECTION, message=f"the connection to the model server broke: {text}", retryable=True
            )


def _is_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False
