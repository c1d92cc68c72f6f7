"""
The clients that `bench/stream.py` compares, from a bare socket to a whole session.

Each takes the address of a flood and returns what it saw. They differ only in who does the work: the
floor (`raw`) is what anybody pays who uses httpx and parses each event once.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import httpx
import orjson
import trio
from httpx_sse import aconnect_sse

from atrio.actors.agent import Agent
from atrio.actors.session import open_session
from atrio.runtime.assembler import MessageAssembler
from atrio.runtime.config import Config
from atrio.runtime.events import Lagged, TextDelta
from atrio.runtime.sse import EventStreamDecoder

__all__ = ["CLIENTS", "FLOOR", "WHOLE", "Seen"]

FLOOR = "raw"
WHOLE = "session"

RECV_BYTES = 65_536
"""What httpcore asks for as well."""


@attrs.frozen
class Seen:
    """Text deltas that came, and partial events that a session dropped for its reader since it fell behind."""

    deltas: int
    dropped: int = 0


def bare(url: str) -> Seen:
    """A blocking socket: no HTTP framing beyond passing chunk sizes over, which are never ``data:`` lines."""
    parts = urlsplit(url)
    deltas, rest = 0, b""
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.sendall(f"POST {parts.path}/v1/messages HTTP/1.1\r\ncontent-length: 2\r\n\r\n{{}}".encode())
        while not rest.endswith(b"0\r\n\r\n"):
            lines = (rest + connection.recv(RECV_BYTES)).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if line.startswith(b"data: ") and orjson.loads(line[6:])["type"] == "content_block_delta":
                    deltas += 1
            if not rest and lines[-2:] == [b"0\r", b"\r"]:
                return Seen(deltas)
    return Seen(deltas)


def raw(url: str) -> Seen:
    """The floor: httpx on Trio, `aiter_raw`, lines split by hand, one orjson parse for each ``data:`` line."""
    return trio.run(_raw, url)


def _client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=None)


async def _raw(url: str) -> Seen:
    deltas, rest = 0, b""
    async with _client() as client, client.stream("POST", f"{url}/v1/messages", content=b"{}") as response:
        async for chunk in response.aiter_raw():
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if line.startswith(b"data: ") and orjson.loads(line[6:])["type"] == "content_block_delta":
                    deltas += 1
    return Seen(deltas)


def httpx_sse(url: str) -> Seen:
    """httpx-sse's decoder and orjson."""
    return trio.run(_httpx_sse, url)


async def _httpx_sse(url: str) -> Seen:
    deltas = 0
    async with _client() as client, aconnect_sse(client, "POST", f"{url}/v1/messages", content=b"{}") as source:
        async for event in source.aiter_sse():
            if orjson.loads(event.data)["type"] == "content_block_delta":
                deltas += 1
    return Seen(deltas)


def pieces(url: str) -> Seen:
    """atrio's decoder and assembler on httpx: typed events and whole blocks, but no actors."""
    return trio.run(_pieces, url)


async def _pieces(url: str) -> Seen:
    deltas = 0
    decoder, assembler = EventStreamDecoder(), MessageAssembler()
    async with _client() as client, client.stream("POST", f"{url}/v1/messages", content=b"{}") as response:
        async for chunk in response.aiter_raw():
            for event in decoder.feed(chunk):
                for item in assembler.feed(event):
                    if isinstance(item, TextDelta):
                        deltas += 1
    return Seen(deltas)


def session(url: str) -> Seen:
    """All of atrio: supervised actors, watchdog, journal, numbered events, read with ``async for``."""
    return trio.run(_session, url)


async def _session(url: str) -> Seen:
    deltas = dropped = 0
    with tempfile.TemporaryDirectory(prefix="atrio-bench-") as folder:
        config = Config(home=Path(folder, "home"), base_url=url)
        agent = Agent(model="bench")
        async with open_session(agent, cwd=folder, config=config) as opened, opened.submit("talk") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    deltas += 1
                elif isinstance(event, Lagged):
                    dropped += event.dropped
    if run.result.is_error:
        raise RuntimeError(f"the run failed: {run.result.errors}")
    return Seen(deltas, dropped)


CLIENTS: dict[str, Callable[[str], Seen]] = {
    "bare": bare,
    FLOOR: raw,
    "httpx-sse": httpx_sse,
    "pieces": pieces,
    WHOLE: session,
}
