"""
One HTTP exchange with a model: a request goes out, stream items come back, or a failure.

This is where bytes become items: the decoder and the assembler are pure, httpx moves the bytes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import cast

import attrs
import httpx
import trio
from httpx_sse import aconnect_sse

from atrio.runtime.backoff import Position
from atrio.runtime.errors import EventTooLarge
from atrio.runtime.events import InputJsonDelta, TextDelta, ThinkingDelta
from atrio.runtime.messages import RedactedThinkingBlock, ThinkingBlock
from atrio.runtime.model import (
    Assembler,
    BlockCompleted,
    FailureKind,
    MessageEnded,
    ModelFailure,
    ModelRequest,
    Provider,
    StreamFailed,
    StreamItem,
)
from atrio.runtime.sse import EventStreamDecoder

from .http import failure_of
from .watchdog import Pulse

__all__ = ["Exchange"]

ERROR_BODY_LIMIT = 1024 * 1024
"""Bytes of an error answer that are read; the rest can't say more."""

MESSAGE_BODY_LIMIT = 256 * 1024 * 1024
"""Bytes of a non-streaming answer."""

TAIL_LIMIT = 0.2
"""Seconds to wait for the end of the body after the message's end, so that the connection can be used again."""

_DELTAS = frozenset((TextDelta, ThinkingDelta, InputJsonDelta))

Deliver = Callable[[Sequence[StreamItem]], Awaitable[None] | None]
_Noted = tuple[Awaitable[None] | None, ModelFailure | None]


@attrs.define(eq=False)
class Exchange:
    """
    One attempt at one request. Not reusable.

    ``deliver`` takes items as they come and may return something to wait for (backpressure). Afterwards
    ``position`` says how far the response came.
    """

    client: httpx.AsyncClient
    provider: Provider
    request: ModelRequest
    pulse: Pulse
    deliver: Deliver
    max_event_bytes: int
    opened: Callable[[], None]
    """Called when the response has begun, since its silence is measured from here on."""
    position: Position = Position.NOTHING
    answered: bool = False
    """The server answered anything at all."""
    delivered: bool = False

    async def perform(self, *, streaming: bool) -> ModelFailure | None:
        """
        Send and receive; None when the message was complete.

        Cancelled: the connection is closed, what was delivered stays delivered.
        """
        http = self.provider.http_request(self.request, stream=streaming)
        try:
            async with aconnect_sse(
                self.client, http.method, http.url, content=http.body, headers=dict(http.headers)
            ) as source:
                return await self._receive(source.response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return self._unless_finished(failure_of(error))

    async def _receive(self, response: httpx.Response) -> ModelFailure | None:
        self.answered = True
        self.pulse.open()
        self.opened()
        if response.status_code != 200:
            body = await self._body(response, ERROR_BODY_LIMIT)
            return self.provider.classify(response.status_code, dict(response.headers), body, now=time.time())
        content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type == "text/event-stream" or not content_type:
            return await self._receive_events(response)
        body = await self._body(response, MESSAGE_BODY_LIMIT)
        if not body.lstrip().startswith(b"{"):
            return ModelFailure(
                kind=FailureKind.MALFORMED,
                message=f"the server answered with {content_type}, not with an event stream: {_excerpt(body)}",
                retryable=True,
                status=response.status_code,
            )
        return await self._take(self.provider.parse_body(body)) or self._incomplete()

    async def _receive_events(self, response: httpx.Response) -> ModelFailure | None:
        decoder = EventStreamDecoder(max_event_bytes=self.max_event_bytes)
        assembler = self.provider.assembler()
        plain = response.headers.get("content-encoding", "identity") == "identity"
        chunks = cast("AsyncGenerator[bytes]", response.aiter_raw() if plain else response.aiter_bytes())
        failure: ModelFailure | None = None
        with trio.CancelScope() as tail:
            async with aclosing(chunks):
                async for chunk in chunks:
                    if failure is not None:
                        continue
                    wait, failure = self._feed(decoder, assembler, chunk)
                    if wait is not None:
                        await wait
                    if failure is not None:
                        # Leaving by `return` would drop httpx's inner generators half-way; a cancellation from
                        # below unwinds them.
                        tail.cancel(reason="the attempt failed")
                    elif self.position is Position.FINISHED and tail.deadline == float("inf"):
                        tail.deadline = trio.current_time() + TAIL_LIMIT
        if failure is not None:
            return failure
        if self.position is Position.FINISHED:
            return None
        return await self._take(assembler.finish()) or self._incomplete()

    def _feed(self, decoder: EventStreamDecoder, assembler: Assembler, chunk: bytes) -> _Noted:
        try:
            events = decoder.feed(chunk)
        except EventTooLarge as error:
            return None, ModelFailure(kind=FailureKind.MALFORMED, message=str(error), retryable=False)
        if len(events) == 1:
            event = events[0]
            self.pulse.beat(progress=event.event != "ping")
            items = assembler.feed(event)
            if len(items) == 1 and type(items[0]) in _DELTAS:
                # By far the most frequent: nothing to note about it.
                self.delivered = True
                return self.deliver(items), None
            return self._note(items)
        self.pulse.beat(progress=any(event.event != "ping" for event in events))
        return self._note([item for event in events for item in assembler.feed(event)])

    def _note(self, items: Sequence[StreamItem]) -> _Noted:
        """Keep track of the position and hand on what came (before a failure, if there is one)."""
        for number, item in enumerate(items):
            kind = type(item)
            if kind is BlockCompleted:
                self.position = max(self.position, _position_of(item))
            elif kind is MessageEnded:
                self.position = Position.FINISHED
            elif kind is StreamFailed:
                assert isinstance(item, StreamFailed)
                return self._hand_on(items[:number]), self._unless_finished(item.failure)
        return self._hand_on(items), None

    def _hand_on(self, items: Sequence[StreamItem]) -> Awaitable[None] | None:
        if not items:
            return None
        self.delivered = True
        return self.deliver(items)

    async def _take(self, items: Sequence[StreamItem]) -> ModelFailure | None:
        wait, failure = self._note(items)
        if wait is not None:
            await wait
        return failure

    def _unless_finished(self, failure: ModelFailure) -> ModelFailure | None:
        """A failure after the message's end changes nothing."""
        return None if self.position is Position.FINISHED else failure

    def _incomplete(self) -> ModelFailure | None:
        return self._unless_finished(
            ModelFailure(
                kind=FailureKind.TRUNCATED,
                message="the response ended before its message was complete",
                retryable=True,
            )
        )

    async def _body(self, response: httpx.Response, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        with trio.CancelScope() as enough:
            async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_bytes())) as chunks:
                async for chunk in chunks:
                    self.pulse.beat(progress=True)
                    if size < limit:
                        parts.append(chunk)
                        size += len(chunk)
                    else:
                        enough.cancel(reason="the body is over its limit")
        return b"".join(parts)[:limit]


def _position_of(item: StreamItem) -> Position:
    assert isinstance(item, BlockCompleted)
    thinking = isinstance(item.block, ThinkingBlock | RedactedThinkingBlock)
    return Position.THINKING if thinking else Position.COMMITTED


def _excerpt(body: bytes) -> str:
    text = " ".join(body[:400].decode("utf-8", "replace").split())
    return f"{text[:200]!r}"
