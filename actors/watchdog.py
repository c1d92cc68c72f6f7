"""
The watchdog: nothing waits for a model for ever.

The streamer opens a `Pulse` for each attempt and beats it for every chunk and every event. The watchdog
sleeps until the earliest moment at which some pulse could be too old, looks, and sleeps again, so a beat costs
one clock reading. Silence is measured on two levels: *events* (pings don't count as progress, and nothing
counts before the response has begun) and *bytes* (anything at all). At half the limit it warns, at the limit
it cancels the attempt's scope; the streamer sees `Pulse.fired` and reports a stall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import attrs
import trio

from atrio.runtime.actor import Status

from .protocol import Stalled

__all__ = ["IdleLimits", "Pulse", "PulseBoard", "Watchdog"]

Level = Literal["event", "byte"]


@attrs.frozen(kw_only=True)
class IdleLimits:
    """Seconds of silence; None switches a level off. Warnings come at half."""

    event: float | None = 90.0
    byte: float | None = 180.0


@attrs.define(eq=False)
class Pulse:
    """The liveness of one attempt. Beaten by the streamer, read by the watchdog."""

    limits: IdleLimits
    scope: trio.CancelScope
    warn: Callable[[Stalled], object]
    last_byte: float
    last_event: float
    opened: bool = False
    """The response has begun; from here on silence on the event level counts."""
    fired: Stalled | None = None
    done: bool = False
    """The guarded work came to its own end, whatever the watchdog did meanwhile."""
    _warned: dict[Level, float] = attrs.field(factory=dict)

    def open(self) -> None:
        self.opened = True
        self.last_event = self.last_byte = trio.current_time()

    def beat(self, *, progress: bool) -> None:
        """Bytes came; with ``progress`` they were more than a keep-alive."""
        self.last_byte = now = trio.current_time()
        if progress:
            self.last_event = now

    def check(self, now: float) -> float:
        """Warn or cut if it is time; returns when to look again."""
        due = float("inf")
        for level, last, limit in self._levels():
            # Compared as points in time, just as they are slept for: a difference may be rounded to less than it was
            # waited for, and then the time to look again would be now, over and over.
            warning, end = last + limit / 2, last + limit
            if now >= end:
                self.fired = Stalled(level=level, idle=now - last, limit=limit)
                self.scope.cancel(reason=f"watchdog: no {level} for {limit:g} s")
                return float("inf")
            if now < warning:
                due = min(due, warning)
                continue
            due = min(due, end)
            if self._warned.get(level) != last:
                self._warned[level] = last
                self.warn(Stalled(level=level, idle=now - last, limit=limit))
        return due

    def _levels(self) -> Iterator[tuple[Level, float, float]]:
        if self.limits.event is not None and self.opened:
            yield "event", self.last_event, self.limits.event
        if self.limits.byte is not None:
            yield "byte", self.last_byte, self.limits.byte


class PulseBoard:
    """The pulses that are beating now. It outlives a restart of the watchdog."""

    def __init__(self) -> None:
        self._pulses: list[Pulse] = []
        # Room for one: a second change before the first was seen needs no second token.
        self._changed_send, self._changed_receive = trio.open_memory_channel[None](1)

    @contextmanager
    def watching(self, limits: IdleLimits, warn: Callable[[Stalled], object]) -> Iterator[Pulse]:
        """Guard the block: it is cancelled, and left normally with ``pulse.fired`` set, when it falls silent."""
        now = trio.current_time()
        with trio.CancelScope() as scope:
            pulse = Pulse(limits=limits, scope=scope, warn=warn, last_byte=now, last_event=now)
            self._pulses.append(pulse)
            self.touch()
            try:
                yield pulse
            finally:
                self._pulses.remove(pulse)

    def touch(self) -> None:
        """Make the watchdog look again: a pulse came, or began to count on another level."""
        try:
            self._changed_send.send_nowait(None)
        except trio.WouldBlock:
            return

    def check(self, now: float) -> float:
        return min((pulse.check(now) for pulse in tuple(self._pulses)), default=float("inf"))

    async def changed(self) -> None:
        await self._changed_receive.receive()


class Watchdog:
    """The actor. It is restarted when it fails; beyond its intensity the session ends, for it would run unguarded."""

    name = "watchdog"

    def __init__(self, *, board: PulseBoard) -> None:
        self._board = board
        self.status = Status()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Guard until cancelled."""
        task_status.started()
        while True:
            due = self._board.check(trio.current_time())
            until = due if due != float("inf") else None
            with trio.move_on_at(due), self.status.waiting("silence", until=until):
                await self._board.changed()
