"""
A question to the model beside the main stream: a summary, a short line. One answer, with the same care for retries.

It shares the session's provider, HTTP pool and rate gate with the streamer, and is watched like any stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio

from atrio.runtime.backoff import Attempts, Position, RetryPolicy, plan_retry
from atrio.runtime.messages import Block, StopReason, Usage
from atrio.runtime.model import (
    BlockCompleted,
    FailureKind,
    MessageEnded,
    MessageStarted,
    ModelFailure,
    ModelRequest,
    Provider,
    StreamItem,
)

from .exchange import Exchange
from .gate import RateGate
from .http import HttpPool
from .watchdog import IdleLimits, PulseBoard

__all__ = ["Answer", "SideCall"]

LIMITED = frozenset((FailureKind.RATE_LIMIT, FailureKind.OVERLOADED))


@attrs.define(eq=False)
class Answer:
    """A whole answer, as it came."""

    message_id: str = ""
    model: str = ""
    content: list[Block] = attrs.field(factory=list)
    stop_reason: StopReason | None = None
    usage: Usage = attrs.field(factory=Usage)

    def take(self, items: Sequence[StreamItem]) -> None:
        for item in items:
            match item:
                case MessageStarted():
                    self.message_id, self.model, self.usage = item.message_id, item.model, item.usage
                case BlockCompleted():
                    self.content.append(item.block)
                case MessageEnded():
                    self.stop_reason, self.usage = item.stop_reason, item.usage
                case _:
                    continue


@attrs.define(eq=False, kw_only=True)
class SideCall:
    """Asks; several may be under way at once."""

    provider: Provider
    pool: HttpPool
    gate: RateGate
    board: PulseBoard
    idle: IdleLimits
    retry: RetryPolicy
    max_event_bytes: int
    jitter: Callable[[], float]

    async def ask(self, request: ModelRequest) -> Answer | ModelFailure:
        """
        The model's answer, or why there is none. Cancelled: the connection is closed.

        A broken answer is asked for again as long as nobody has acted on it: all of it counts, or none.
        """
        attempts = Attempts()
        while True:
            answer = Answer()
            async with self.gate.passing(lambda until: None) as admission:
                failure = await self._attempt(request, answer)
                if failure is None:
                    admission.succeeded()
                    return answer
                retry = plan_retry(
                    self.retry, failure, Position.NOTHING, attempts, jitter=self.jitter(), reached=self.pool.reached
                )
                if failure.kind in LIMITED:
                    wait = failure.retry_after if failure.retry_after is not None else (retry.delay if retry else 0.0)
                    # As in the streamer: the gate is no more patient than we are.
                    admission.limited(min(wait, self.retry.patience))
            if retry is None or not retry.streaming:
                return failure
            attempts = attempts.after(failure, retry)
            await trio.sleep(retry.delay)

    async def _attempt(self, request: ModelRequest, answer: Answer) -> ModelFailure | None:
        client = await self.pool.client()
        with self.board.watching(self.idle, lambda stalled: None) as pulse:
            exchange = Exchange(
                client=client,
                provider=self.provider,
                request=request,
                pulse=pulse,
                deliver=answer.take,
                max_event_bytes=self.max_event_bytes,
                opened=self.board.touch,
            )
            failure = await exchange.perform(streaming=True)
            pulse.done = True
        if exchange.position is Position.FINISHED:
            return None
        if pulse.fired is not None and not pulse.done:
            return ModelFailure(
                kind=FailureKind.STALLED,
                message=f"the model server sent no {pulse.fired.level} for {pulse.fired.limit:g} s",
                retryable=True,
            )
        return failure
