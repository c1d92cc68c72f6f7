"""
The streamer: one model request at a time, sent until it is answered or must not be sent again.

It owns nothing but the attempt in progress; the HTTP pool is the session's, so that a restarted streamer can
start with a fresh one. Whether and when to retry is decided by `atrio.runtime.backoff`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from atrio.runtime.backoff import Attempts, Position, RetryPolicy, plan_retry
from atrio.runtime.mailbox import Address, Inbox
from atrio.runtime.model import FailureKind, ModelFailure, Provider, StreamItem

from .exchange import Exchange
from .http import HttpPool
from .protocol import LoopInput, ModelCall, ModelCallFailed, ModelCallRestarted, StreamBatch
from .watchdog import IdleLimits, Pulse, PulseBoard

__all__ = ["Streamer", "StreamerSettings"]


@attrs.frozen(kw_only=True)
class StreamerSettings:
    """How patient the streamer is, and how large an event may be (bytes)."""

    retry: RetryPolicy = attrs.field(factory=RetryPolicy)
    idle: IdleLimits = attrs.field(factory=IdleLimits)
    max_event_bytes: int = 16 * 1024 * 1024
    jitter: Callable[[], float] = random.random


class Streamer:
    """The actor. A crash of it is a retryable failure of the attempt in progress; the loop decides."""

    name = "streamer"

    def __init__(
        self,
        *,
        inbox: Inbox[ModelCall],
        loop: Address[LoopInput],
        pool: HttpPool,
        provider: Provider,
        board: PulseBoard,
        settings: StreamerSettings,
    ) -> None:
        self._inbox = inbox
        self._loop = loop
        self._pool = pool
        self._provider = provider
        self._board = board
        self._settings = settings
        self._reached = False

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve calls until cancelled. Cancelled: the connection is closed and its pool replaced before the next use."""
        task_status.started()
        async for call in self._inbox:
            await self._serve(call)

    async def _serve(self, call: ModelCall) -> None:
        attempts = Attempts()
        while True:
            failure, position, delivered = await self._attempt(call)
            if failure is None:
                return
            retry = plan_retry(
                self._settings.retry,
                failure,
                position,
                attempts,
                jitter=self._settings.jitter(),
                reached=self._reached,
            )
            if retry is None:
                await self._loop.send(ModelCallFailed(number=call.number, failure=failure, position=position))
                return
            attempts = attempts.after(retry)
            until = trio.current_time() + retry.delay
            await self._loop.send(
                ModelCallRestarted(number=call.number, failure=failure, retry=retry, until=until, void=delivered)
            )
            await trio.sleep_until(until)

    async def _attempt(self, call: ModelCall) -> tuple[ModelFailure | None, Position, bool]:
        client = await self._pool.client()
        # In doubt until the exchange ends well: a cancellation must not leave a half-open slot behind.
        self._pool.doubt()
        with self._board.watching(self._settings.idle, self._loop.offer) as pulse:
            exchange = Exchange(
                client=client,
                provider=self._provider,
                request=call.request,
                pulse=pulse,
                deliver=self._deliver_to_loop(call.number),
                max_event_bytes=self._settings.max_event_bytes,
                opened=self._board.touch,
            )
            failure = await exchange.stream()
        self._reached = self._reached or exchange.answered
        if pulse.fired is not None and exchange.position is not Position.FINISHED:
            failure = _stalled(pulse)
        elif pulse.fired is not None:
            failure = None
        elif failure is None:
            self._pool.trust()
        return failure, exchange.position, exchange.delivered

    def _deliver_to_loop(self, number: int) -> Callable[[Sequence[StreamItem]], Awaitable[None] | None]:
        offer, send = self._loop.offer, self._loop.send

        def deliver(items: Sequence[StreamItem]) -> Awaitable[None] | None:
            batch = StreamBatch(number, items)
            return None if offer(batch) else send(batch)

        return deliver


def _stalled(pulse: Pulse) -> ModelFailure:
    fired = pulse.fired
    assert fired is not None
    what = "event" if fired.level == "event" else "byte"
    return ModelFailure(
        kind=FailureKind.STALLED,
        message=f"the model server sent no {what} for {fired.limit:g} s; the request was cut",
        retryable=True,
    )
