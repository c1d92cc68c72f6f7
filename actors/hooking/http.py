"""
Runs a hook that is a web address: the event is posted to it as JSON, and its body is read within bounds.

Loopback and private addresses are as good as any: who configured the hook chose the address. Redirects are not
followed, as they could lead the event, and the headers with it, to where nobody chose.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from typing import Final, cast

import attrs
import httpx
import trio

from atrio.runtime.errors import AtrioError

from .answers import OUTPUT_LIMIT_BYTES, HttpReply
from .config import HttpHandler

__all__ = ["HookUnreachable", "post_hook"]

CONNECT_LIMIT: Final = 10.0
"""Seconds to connect in. The hook's own deadline bounds the rest."""

_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@attrs.define(eq=False, slots=False)
class HookUnreachable(AtrioError):
    """The address gave no answer that could be read."""

    reason: str

    def __str__(self) -> str:
        return f"no answer: {self.reason}"


async def post_hook(handler: HttpHandler, payload: bytes, *, env: Mapping[str, str]) -> HttpReply:
    """
    Post it, with the environment ``env`` for its headers. Raises `HookUnreachable`.

    Cancelled: the connection is closed. So a time limit is a cancel scope around the call.
    """
    url = httpx.URL(handler.url)
    verify: ssl.SSLContext | bool = await trio.to_thread.run_sync(_tls) if url.scheme == "https" else False
    headers = {"content-type": "application/json", "accept-encoding": "identity", **_headers(handler, env)}
    timeout = httpx.Timeout(None, connect=CONNECT_LIMIT)
    try:
        # A client of its own: hooks are rare, and a request that was cut off can spoil a pool for good.
        async with (
            httpx.AsyncClient(
                verify=verify, timeout=timeout, follow_redirects=False, trust_env=not _is_near(url.host)
            ) as client,
            client.stream("POST", url, content=payload, headers=headers) as response,
        ):
            return await _read(response)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        # ValueError: a header that can't be sent.
        raise HookUnreachable(str(error) or type(error).__name__) from error


async def _read(response: httpx.Response) -> HttpReply:
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise HookUnreachable("its body is compressed, though that was not asked for")
    body = bytearray()
    with trio.CancelScope() as enough:
        async with contextlib.aclosing(cast("AsyncGenerator[bytes]", response.aiter_raw())) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > OUTPUT_LIMIT_BYTES:
                    # Leaving the loop would drop httpx's inner generators half-way; a cancellation unwinds them.
                    enough.cancel(reason="the body is over its limit")
    cut = len(body) > OUTPUT_LIMIT_BYTES
    return HttpReply(status=response.status_code, body=bytes(body[:OUTPUT_LIMIT_BYTES]), cut=cut)


def _headers(handler: HttpHandler, env: Mapping[str, str]) -> dict[str, str]:
    def value_of(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return env.get(name, "") if name in handler.variables else ""

    return {name.lower(): _VARIABLE.sub(value_of, value) for name, value in handler.headers}


def _is_near(host: str) -> bool:
    """On this machine or in its network: no proxy knows the way there."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private or address.is_link_local


@functools.cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()
