"""
Small questions to the model beside the work, which never feels them.

One attempt in bounded time, over a connection of its own. It stays away while the server limits this program, and a
limit that it meets itself is not passed on to those whose requests matter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import attrs
import httpx
import trio

from atrio.runtime.asides import Question
from atrio.runtime.messages import TextBlock, Usage
from atrio.runtime.model import ModelFailure, ModelRequest, Provider

from .exchange import Exchange
from .gate import RateGate
from .http import HttpPool
from .side_call import Answer
from .watchdog import IdleLimits, PulseBoard

__all__ = ["Asker", "Book"]

Book = Callable[[str, str, Usage], object]
"""Takes what a response cost: its message id, the model, the usage."""

NO_IDLE_LIMITS: Final = IdleLimits(event=None, byte=None)
"""Each question has a time limit as a whole."""

_log: Final = logging.getLogger("atrio.asides")
_log.addHandler(logging.NullHandler())  # a library prints nothing unless the program asks for it


@attrs.frozen(kw_only=True)
class Asker:
    """
    Asks, with what a session has for that. Several questions may be under way at once.

    Args:
        gate: the one that the session's other requests go through. It is looked at, never changed.
    """

    provider: Provider
    gate: RateGate
    model: str
    transport: httpx.AsyncBaseTransport | None
    tls: bool
    max_event_bytes: int
    new_id: Callable[[], str]

    async def ask(self, question: Question, *, limit: float, book: Book) -> str | None:
        """
        The answer's text; None if there is none within ``limit`` seconds. Why not is in the log, at debug level.

        Whatever was paid for is booked, also when the answer came to nothing. Cancelled: the connection is closed.
        """
        if self.gate.limited:
            _log.debug("not asked: the model server limits requests at the moment")
            return None
        answer, failure = Answer(), None
        pool = HttpPool(self.transport, tls=self.tls)
        try:
            with trio.move_on_after(limit) as patience:
                failure = await self._attempt(pool, question, answer)
        finally:
            if answer.usage.reported:
                book(answer.message_id or self.new_id(), answer.model or self.model, answer.usage)
            await pool.aclose()  # noqa: ASYNC102  # shielded and bounded there
        if patience.cancelled_caught or failure is not None:
            reason = failure.message if failure is not None else f"it took more than {limit:g} s"
            _log.debug("no answer from %s: %s", self.model, reason)
            return None
        if answer.stop_reason != "end_turn":
            _log.debug("the answer of %s is no whole one: %s", self.model, answer.stop_reason)
            return None
        return "".join(block.text for block in answer.content if isinstance(block, TextBlock))

    async def _attempt(self, pool: HttpPool, question: Question, answer: Answer) -> ModelFailure | None:
        board = PulseBoard()
        with board.watching(NO_IDLE_LIMITS, lambda stalled: None) as pulse:
            exchange = Exchange(
                client=await pool.client(),
                provider=self.provider,
                request=ModelRequest(
                    model=self.model,
                    messages=({"role": "user", "content": [{"type": "text", "text": question.text}]},),
                    system=(question.system,),
                    max_tokens=question.max_tokens,
                ),
                pulse=pulse,
                deliver=answer.take,
                max_event_bytes=self.max_event_bytes,
                opened=board.touch,
            )
            return await exchange.perform(streaming=True)
