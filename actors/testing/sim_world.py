"""
The world of a simulation: time, chance and wire, so that the same seed makes the same world in any process.

Trio shuffles its tasks; `deterministic_scheduling` gives it a seed, as Trio does by itself under Hypothesis.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar
from uuid import UUID

import attrs
import httpx
import orjson
import trio

from atrio.runtime.messages import JsonObject, Usage

from .faults import Fault
from .replies import Reply
from .scripted import ScriptedModel
from .sim_faults import HARMLESS
from .turns import Turn

__all__ = ["SYSTEM", "Exchange", "Ids", "NotingModel", "Steps", "Wire", "deterministic_scheduling", "wall_clock"]
__all__ += ["without_threads"]

T = TypeVar("T")

SYSTEM = "You are simulated."
"""The agent's system prompt. atrio's own names the folder, whose length would be seen in the token counts."""

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def deterministic_scheduling(seed: int) -> Iterator[None]:
    """
    Trio's order of tasks depends on ``seed`` alone within the block, in this thread and every other.

    The garbage collector pauses: when it runs depends on what the process did before, and finalizers act.
    """
    run: Any = trio._core._run
    before = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r
    collecting = gc.isenabled()
    gc.disable()
    run._ALLOW_DETERMINISTIC_SCHEDULING, run._r = True, Random(seed)
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING, run._r = before
        if collecting:
            gc.enable()


@contextmanager
def without_threads() -> Iterator[None]:
    """What would go to a thread is done at once within the block: a clock that jumps doesn't wait for threads."""
    threads: Any = trio.to_thread
    path: Any = trio._path
    before = threads.run_sync, path.run_sync
    threads.run_sync = path.run_sync = _at_once
    try:
        yield
    finally:
        threads.run_sync, path.run_sync = before


async def _at_once(work: Callable[..., T], *args: Any, **options: object) -> T:
    """`trio.to_thread.run_sync` without a thread."""
    await trio.lowlevel.checkpoint()
    return work(*args)


class Ids:
    """UUIDs from a seed."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)

    def __call__(self) -> str:
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    def fraction(self) -> float:
        """A number in [0, 1)."""
        return self._rng.random()


def wall_clock() -> datetime:
    """The time of day that belongs to Trio's virtual time."""
    return EPOCH + timedelta(seconds=trio.current_time())


class Steps(trio.abc.Instrument):
    """
    Counts the steps of Trio's tasks and acts before chosen ones. The acts are synchronous and must not fail.
    """

    def __init__(self) -> None:
        self.count = 0
        self.failures: list[str] = []
        self._acts: dict[int, list[Callable[[], object]]] = {}

    def begin(self, acts: dict[int, list[Callable[[], object]]]) -> None:
        """Count from 0 again, with these acts."""
        self.count, self._acts = 0, acts

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1
        for act in self._acts.pop(self.count, ()):
            try:
                act()
            except Exception as error:
                # Trio would log it and drop the instrument.
                self.failures.append(f"{type(error).__name__}: {error}")


@attrs.define(eq=False)
class Exchange:
    """One request and what was handed over of its response."""

    number: int
    fault: Fault | None
    status: int
    streaming: bool
    longest: float
    """Seconds that the response takes where nobody cuts it."""
    side: bool
    """It is not the conversation's, but a question beside it."""
    body: bytearray = attrs.field(factory=bytearray)
    whole: bool = False
    """All of the body was handed over, to its end."""

    @property
    def clean(self) -> bool:
        """Nothing went wrong with it on the way."""
        return self.status == 200 and (self.fault is None or self.fault.name.startswith(HARMLESS))

    def message(self) -> tuple[str, Usage] | None:
        """Id and usage as far as they came; of a clean exchange only."""
        if not self.streaming:
            return _of_body(bytes(self.body)) if self.whole else None
        id = ""
        wire: JsonObject = {}
        for chunk in bytes(self.body).split(b"\n\n"):
            _, _, data = chunk.partition(b"data: ")
            if not data:
                continue
            event = orjson.loads(data)
            if event["type"] == "message_start":
                id = event["message"]["id"]
                wire |= event["message"]["usage"]
            elif event["type"] == "message_delta":
                wire |= event["usage"]
        return (id, _usage(wire)) if id else None


def _usage(wire: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=wire["input_tokens"],
        output_tokens=wire["output_tokens"],
        cache_creation_input_tokens=wire["cache_creation_input_tokens"],
        cache_read_input_tokens=wire["cache_read_input_tokens"],
        reported=True,
    )


def _of_body(body: bytes) -> tuple[str, Usage]:
    message = orjson.loads(body)
    return message["id"], _usage(message["usage"])


class NotingModel(ScriptedModel):
    """A scripted model that notes its exchanges. ``calm``: nothing goes wrong any more."""

    def __init__(self, turns: tuple[Turn, ...], faults: Mapping[int, Fault], *, model: str, home: str) -> None:
        super().__init__(turns, model=model, repeat_last=True, faults=self._fault)
        self._planned = faults
        self._home = home.encode()
        self._distorted = False
        self.calm = False
        self.exchanges: list[Exchange] = []

    def _fault(self, number: int, request: JsonObject) -> Fault | None:
        # Called first for each request: the model that is asked is the one that answers.
        self.model = str(request.get("model", self.model))
        return None if self.calm else self._planned.get(number)

    def respond(self, method: str, path: str, headers: Mapping[str, str], body: bytes, *, at: float = 0.0) -> Reply:
        # Ids come from the body; the name of a temporary folder in it is not to be seen in them.
        reply = super().respond(method, path, headers, body.replace(self._home, b"~"), at=at)
        recorded = self.requests[-1]
        if recorded.fault is not None and recorded.fault.name.startswith("frames"):
            self._distorted = True
        self.exchanges.append(
            Exchange(
                number=recorded.number,
                fault=recorded.fault,
                status=0 if reply.refused else reply.status,
                streaming=recorded.streaming,
                side=SYSTEM not in str(recorded.body.get("system")),
                longest=reply.delay + (reply.frames[-1].at if reply.frames else 0.0),
            )
        )
        return reply

    def _genuine(self, thinking: str, signature: str) -> bool:
        # Thoughts that were distorted on the way are refused, and the client can't know that they were.
        return self._distorted or super()._genuine(thinking, signature)

    def say_only(self, turn: Turn) -> None:
        """From now on every response is this, and whole."""
        self.calm = True
        self.turns, self.position = (turn,), 0
        self._attempts.clear()


class Wire(httpx.AsyncBaseTransport):
    """
    The scripted model's transport, which notes what it hands over, and kills its reader where it is told to.
    """

    def __init__(self, model: NotingModel) -> None:
        self._model = model
        self._inner = model.transport()
        self.deadly = 0
        """So many readers from now on crash at the next byte."""
        self.killed = 0

    def strike(self) -> None:
        if self.deadly:
            self.deadly -= 1
            self.killed += 1
            raise RuntimeError("the streamer was killed (by the plan)")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """As the transport within. Raises RuntimeError where the plan kills the reader."""
        self.strike()
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        # A session has one request under way at most: the last one is this one.
        response.stream = _Noting(response.stream, self._model.exchanges[-1], self)
        return response


class _Noting(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, exchange: Exchange, wire: Wire) -> None:
        self._inner = inner
        self._chunks = inner.__aiter__()
        self._exchange = exchange
        self._wire = wire

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._chunks.__anext__()
        except StopAsyncIteration:
            self._exchange.whole = True
            raise
        self._wire.strike()
        self._exchange.body += chunk
        return chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
