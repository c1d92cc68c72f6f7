"""
The model server of the benches: another process, loopback, answers rendered before the clock runs.

The measured process must do only the client's work, so nothing of atrio and nothing that parses HTTP for real is
in here: a request is found by its Content-Length, its turn by the number of tool results in it, and what is sent
back is a list of ready bytes with their times. The base URL names the script:

    http://127.0.0.1:PORT/flood,events=200000     text deltas without pause, one HTTP chunk and one send for each
    http://127.0.0.1:PORT/overlap                 three calls complete at 0.6, 1.2, 1.8 s of a 3 s response; then 0.2 s
    http://127.0.0.1:PORT/paced,turns=4,delay=0.02  text and one call in each turn, ``delay`` seconds between chunks

Run as a program it prints its port, and it ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["TOOL", "ideal", "running_server"]

Piece = tuple[float, bytes]
"""Seconds after the request, and what is sent then."""

TOOL = "wait"
"""The tool that the scripts call; it takes ``seconds`` and ``number``."""

STOP_LIMIT = 5.0

BACKLOG = 4096
"""Connections may come a thousand at a time."""

WRITE_BUFFER = 1 << 20
"""Bytes that wait for a slow client before the script does."""

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_WORDS = ("the quick brown", " fox jumps ov", "er lazy dogs", " and then some")


class Script:
    """One response in the making."""

    def __init__(self, name: str) -> None:
        self.at = 0.0
        self.pieces: list[Piece] = []
        self._index = 0
        self._reason = "end_turn"
        message: dict[str, Any] = {
            "id": f"msg_{name}",
            "type": "message",
            "role": "assistant",
            "model": "bench",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 100, "output_tokens": 1},
        }
        self._emit("message_start", message=message)

    def text(self, deltas: int, *, until: float) -> None:
        """A text block of so many deltas, evenly spread from now to ``until``."""
        texts = [_WORDS[number % len(_WORDS)] for number in range(deltas)]
        self._block({"type": "text", "text": ""}, "text_delta", "text", texts, until)

    def call(self, call_id: str, seconds: float, number: int, *, until: float) -> None:
        """A tool call whose block stops at ``until``."""
        literal = json.dumps({"seconds": seconds, "number": number})
        third = -(-len(literal) // 3)
        parts = [literal[start : start + third] for start in range(0, len(literal), third)]
        block = {"type": "tool_use", "id": call_id, "name": TOOL, "input": {}}
        self._reason = "tool_use"
        self._block(block, "input_json_delta", "partial_json", parts, until)

    def finish(self, *, one_send_each: bool = False) -> Sequence[Piece]:
        """The whole response. Chunks of one moment share a send, unless ``one_send_each``."""
        delta = {"stop_reason": self._reason, "stop_sequence": None}
        self._emit("message_delta", delta=delta, usage={"output_tokens": 50})
        self._emit("message_stop")
        pieces = [(0.0, HEAD), *self.pieces, (self.at, END)]
        if one_send_each:
            return pieces
        moments: dict[float, list[bytes]] = {}
        for at, data in pieces:
            moments.setdefault(at, []).append(data)
        return [(at, b"".join(parts)) for at, parts in moments.items()]

    def _block(self, block: dict[str, Any], kind: str, field: str, texts: Sequence[str], until: float) -> None:
        start = self.at
        self._emit("content_block_start", index=self._index, content_block=block)
        for number, text in enumerate(texts, 1):
            self.at = start + (until - start) * number / len(texts)
            self._emit("content_block_delta", index=self._index, delta={"type": kind, field: text})
        self._emit("content_block_stop", index=self._index)
        self._index += 1

    def _emit(self, kind: str, **fields: Any) -> None:
        data = json.dumps({"type": kind, **fields}, separators=(",", ":"))
        event = f"event: {kind}\ndata: {data}\n\n".encode()
        self.pieces.append((self.at, b"%x\r\n%s\r\n" % (len(event), event)))


@functools.cache
def responses(spec: str) -> Sequence[Sequence[Piece]]:
    """What the script of this name answers, turn by turn."""
    name, *options = spec.split(",")
    values = {key: float(value) for key, _, value in (option.partition("=") for option in options)}
    match name:
        case "flood":
            script = Script("flood")
            script.text(int(values.get("events", 200_000)), until=0.0)
            return [script.finish(one_send_each=True)]
        case "overlap":
            return _overlap(values.get("scale", 1.0))
        case "paced":
            return _paced(int(values.get("turns", 4)), values.get("delay", 0.02))
    raise ValueError(f"there is no script {name!r}; choose from flood, overlap, paced")


def _overlap(scale: float) -> Sequence[Sequence[Piece]]:
    first = Script("overlap_1")
    first.text(4, until=0.3 * scale)
    for number, end in enumerate((0.6, 1.2, 1.8)):
        first.call(f"toolu_{number}", 1.0 * scale, number, until=end * scale)
    first.text(24, until=3.0 * scale)
    second = Script("overlap_2")
    second.text(8, until=0.2 * scale)
    return [first.finish(), second.finish()]


def _paced(turns: int, delay: float) -> Sequence[Sequence[Piece]]:
    made: list[Sequence[Piece]] = []
    for number in range(turns + 1):
        script = Script(f"paced_{number}")
        script.text(8, until=8 * delay)
        if number < turns:
            script.call(f"toolu_{number}", 0.0, number, until=11 * delay)
        made.append(script.finish())
    return made


def ideal(spec: str) -> float:
    """Seconds that the responses of this script take one after the other: what no client can beat."""
    return sum(pieces[-1][0] for pieces in responses(spec))


class _Connection(asyncio.Protocol):
    """One client: gathers a request, then pumps the answer out."""

    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._received = b""
        self._pieces: Iterator[Piece] = iter(())
        self._next: Piece | None = None
        self._began = 0.0
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER)

    def connection_lost(self, exc: Exception | None) -> None:
        self._next = None
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._pump()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or len(rest) < (int(length[1]) if length else 0):
            return
        self._received = b""
        script = responses(head.split(b" ", 2)[1].split(b"/")[1].decode())
        self._pieces = iter(script[_turn_of(script, rest.count(b'"tool_result"'))])
        self._next = next(self._pieces)
        self._began = self._loop.time()
        self._pump()

    def _pump(self) -> None:
        self._timer = None
        write, now = self.transport.write, self._loop.time()
        while self._next is not None and not self._paused:
            at, data = self._next
            if at and self._began + at > now + 0.0002:
                self._timer = self._loop.call_at(self._began + at, self._pump)
                return
            write(data)
            self._next = next(self._pieces, None)


def _turn_of(script: Sequence[Sequence[Piece]], results: int) -> int:
    """Which response is due after so many tool results."""
    asked = 0
    for number, pieces in enumerate(script):
        if results <= asked:
            return number
        asked += sum(data.count(b'"tool_use","id"') for _, data in pieces)
    return len(script) - 1


async def serve(specs: Sequence[str]) -> None:
    """Serve until standard input ends. Cancelled: every connection is dropped."""
    for spec in specs:
        responses(spec)
    gc.freeze()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    server = await loop.create_server(lambda: _Connection(loop), "127.0.0.1", 0, backlog=BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await ended.wait()


@contextmanager
def running_server(*specs: str) -> Iterator[str]:
    """A server process with these scripts ready. Gives its address, to which the script's name is added."""
    command = [sys.executable, __file__, *specs]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError("the bench server did not start; its message stands above")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]))
