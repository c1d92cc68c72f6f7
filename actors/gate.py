"""
The shared rate gate: one for each endpoint and key in the process.

When a server says "too many requests", every session that uses the key hears it. Nobody sends before the time
that the server named; then one request goes as a probe, and each success lets one more be under way, until the
limit is forgotten. So twenty sessions don't each burn their retries inside the same closed window.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

__all__ = ["HEARTBEAT", "Pass", "RateGate", "gate_for"]

HEARTBEAT = 30.0
"""Seconds between two signs of life during a long wait."""

FORGET_AT = 64
"""Requests under way at which a limit counts as over."""


@attrs.define(eq=False)
class Pass:
    """Permission for one request. Say what came of it; saying nothing counts as neither."""

    _gate: RateGate
    _said: bool = False

    def limited(self, wait: float) -> None:
        """The server refused the request as one too many; come back in ``wait`` seconds."""
        self._said = True
        self._gate.close_for(wait)

    def succeeded(self) -> None:
        if not self._said:
            self._said = True
            self._gate.widen()


@attrs.define(eq=False)
class RateGate:
    """Open until a server limits somebody; then it opens by and by."""

    _until: float = float("-inf")
    _allowed: int | None = None
    """How many requests may be under way; None: as many as like."""
    _under_way: int = 0
    _changed: trio.Event = attrs.field(factory=trio.Event)

    @property
    def limited(self) -> bool:
        """A server has limited somebody lately, and requests are let through by and by."""
        return self._allowed is not None

    @asynccontextmanager
    async def passing(self, waiting: Callable[[float], None]) -> AsyncIterator[Pass]:
        """
        Wait for permission; the block is the request.

        Args:
            waiting: told the earliest time (Trio) at which this one may go on, every now and then.

        Cancelled: the place is free again.
        """
        await self._wait(waiting)
        self._under_way += 1
        try:
            yield Pass(self)
        finally:
            self._under_way -= 1
            self._wake()

    async def _wait(self, waiting: Callable[[float], None]) -> None:
        while self._allowed is not None:
            now = trio.current_time()
            if now >= self._until and self._under_way < self._allowed:
                return
            if now < self._until:
                waiting(self._until)
            with trio.move_on_at(min(self._until, now + HEARTBEAT) if now < self._until else float("inf")):
                await self._changed.wait()

    def close_for(self, wait: float) -> None:
        self._allowed = 1
        self._until = max(self._until, trio.current_time() + wait)
        self._wake()

    def widen(self) -> None:
        if self._allowed is not None:
            # One more for each success doubles the number each round trip, as TCP's slow start does.
            self._allowed = self._allowed + 1 if self._allowed + 1 < FORGET_AT else None
            self._wake()

    def _wake(self) -> None:
        if self._changed.statistics().tasks_waiting:
            self._changed.set()
            self._changed = trio.Event()


_gates: trio.lowlevel.RunVar[dict[str, RateGate]] = trio.lowlevel.RunVar("atrio_rate_gates")


def gate_for(endpoint: str) -> RateGate:
    """The gate that all sessions of this process share for ``endpoint`` (a base URL and a key, hashed)."""
    try:
        gates = _gates.get()
    except LookupError:
        gates = {}
        _gates.set(gates)
    return gates.setdefault(endpoint, RateGate())
