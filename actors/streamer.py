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

from atrio.runtime.actor import Status
from atrio.runtime.backoff import Attempts, Position, Retry, RetryPolicy, plan_retry
from atrio.runtime.mailbox import Address, Inbox
from atrio.runtime.model import FailureKind, ModelFailure, Provider, StreamItem

from .exchange import Exchange
from .gate import HEARTBEAT, Pass, RateGate
from .http import HttpPool
from .protocol import LoopInput, ModelCall, ModelCallFailed, ModelCallRestarted, StreamBatch, Waiting
from .watchdog import IdleLimits, Pulse, PulseBoard

__all__ = ["Streamer", "StreamerSettings"]

LIMITED = frozenset((FailureKind.RATE_LIMIT, FailureKind.OVERLOADED))


@attrs.frozen(kw_only=True)
class StreamerSettings:
    """How patient the streamer is, and how large an event may be (bytes)."""

    retry: RetryPolicy = attrs.field(factory=RetryPolicy)
    idle: IdleLimits = attrs.field(factory=IdleLimits)
    whole_limit: float = 300.0
    """Seconds for an answer without streaming: it is silent until it is whole."""
    max_event_bytes: int = 16 * 1024 * 1024
    jitter: Callable[[], float] = random.random


@attrs.frozen
class _Outcome:
    failure: ModelFailure | None
    position: Position
    delivered: bool


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
        gate: RateGate,
        settings: StreamerSettings,
    ) -> None:
        self._inbox = inbox
        self._loop = loop
        self._pool = pool
        self._provider = provider
        self._board = board
        self._gate = gate
        self._settings = settings
        self.status = Status()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve calls until cancelled. Cancelled: the connection is closed, its pool replaced before the next use."""
        task_status.started()
        async for call in self._inbox:
            with call.scope:
                await self._serve(call)

    async def _serve(self, call: ModelCall) -> None:
        attempts = Attempts()
        streaming = True
        while True:
            outcome, retry = await self._pass_gate_and_try(call, attempts, streaming=streaming)
            failure = outcome.failure
            if failure is None:
                return
            if retry is None:
                await self._loop.send(ModelCallFailed(number=call.number, failure=failure, position=outcome.position))
                return
            attempts = attempts.after(failure, retry)
            streaming = retry.streaming
            until = trio.current_time() + retry.delay
            await self._loop.send(
                ModelCallRestarted(
                    number=call.number, failure=failure, retry=retry, until=until, void=outcome.delivered
                )
            )
            await self._wait(call, f"the next attempt after {failure.kind.value}", until)

    async def _wait(self, call: ModelCall, reason: str, until: float) -> None:
        """Sleep, with a sign of life every now and then."""
        with self.status.waiting(reason, until=until):
            while until - trio.current_time() > HEARTBEAT:
                await trio.sleep(HEARTBEAT)
                await self._loop.send(Waiting(number=call.number, reason=reason, until=until))
            await trio.sleep_until(until)

    async def _pass_gate_and_try(
        self, call: ModelCall, attempts: Attempts, *, streaming: bool
    ) -> tuple[_Outcome, Retry | None]:
        def waiting(until: float) -> None:
            self._loop.offer(Waiting(number=call.number, reason="the rate limit that all requests share", until=until))

        with self.status.waiting("the shared rate gate"):
            async with self._gate.passing(waiting) as admission:
                outcome = await self._attempt(call, streaming=streaming)
                retry = self._plan(call, outcome, attempts)
                self._report(admission, outcome.failure, retry)
                return outcome, retry

    def _plan(self, call: ModelCall, outcome: _Outcome, attempts: Attempts) -> Retry | None:
        if outcome.failure is None:
            return None
        return plan_retry(
            self._settings.retry,
            outcome.failure,
            outcome.position,
            attempts,
            jitter=self._settings.jitter(),
            reached=self._pool.reached,
            has_fallback=call.has_fallback,
        )

    def _report(self, admission: Pass, failure: ModelFailure | None, retry: Retry | None) -> None:
        if failure is None:
            admission.succeeded()
        elif failure.kind in LIMITED:
            wait = failure.retry_after if failure.retry_after is not None else (retry.delay if retry else 0.0)
            # The gate is no more patient than we are: else the wait that was announced would not be the one that is.
            admission.limited(min(wait, self._settings.retry.patience))

    async def _attempt(self, call: ModelCall, *, streaming: bool) -> _Outcome:
        client = await self._pool.client()
        # In doubt until the exchange ends well: a cancellation must not leave a half-open slot behind.
        self._pool.doubt()
        idle = self._settings.idle if streaming else IdleLimits(event=None, byte=self._settings.whole_limit)
        with self._board.watching(idle, self._loop.offer) as pulse:
            exchange = Exchange(
                client=client,
                provider=self._provider,
                request=call.request,
                pulse=pulse,
                deliver=self._deliver_to_loop(call.number),
                max_event_bytes=self._settings.max_event_bytes,
                opened=self._board.touch,
            )
            with self.status.waiting("the model's response"):
                failure = await exchange.perform(streaming=streaming)
            pulse.done = True
        self._pool.reached = self._pool.reached or exchange.answered
        finished = exchange.position is Position.FINISHED
        if pulse.done and failure is None:
            self._pool.trust()
        elif not pulse.done:
            failure = None if finished else _stalled(pulse)
        return _Outcome(failure, exchange.position, exchange.delivered)

    def _deliver_to_loop(self, number: int) -> Callable[[Sequence[StreamItem]], Awaitable[None] | None]:
        offer, send = self._loop.offer, self._loop.send
        batch = StreamBatch(number, [])
        batch.take()

        def deliver(items: Sequence[StreamItem]) -> Awaitable[None] | None:
            nonlocal batch
            if batch.add(items):
                return None
            batch = StreamBatch(number, list(items))
            return None if offer(batch) else send(batch)

        return deliver


def _stalled(pulse: Pulse) -> ModelFailure:
    fired = pulse.fired
    assert fired is not None
    return ModelFailure(
        kind=FailureKind.STALLED,
        message=f"the model server sent no {fired.level} for {fired.limit:g} s; the request was cut",
        retryable=True,
    )
