"""
Fan-out of events: numbering, and one queue for each subscriber.

Publishing never waits. A subscriber that reads too slowly loses partial events (a `Lagged` event in their
place says how many) and keeps every durable one: those are few and describe what the history holds anyway.
"""

from __future__ import annotations

from collections import deque

import trio

from atrio.runtime.events import Event, Lagged, Partial, stamp

__all__ = ["Broadcaster", "Subscription"]

PARTIAL_CAPACITY = 4_096
"""Partial events that wait for one subscriber; some 20 s of a fast model's stream."""

YIELD_EVERY = 2_048
"""
Events handed out without a checkpoint: more than the loop publishes in one go, or a reader that does nothing else
could still fall behind.
"""


class Subscription:
    """One subscriber's queue. Iterate it in one task. Without ``partials`` it gets durable events alone."""

    def __init__(self, *, partials: bool = True) -> None:
        self._wants_partials = partials
        self._queue: deque[Event] = deque()
        self._partials = 0
        self._dropped = 0
        self._since_checkpoint = 0
        self._closed = False
        self._reader_waits = False
        # A token that wakes the reader; room for one, for a second says nothing new.
        self._wake, self._woken = trio.open_memory_channel[None](1)

    def put(self, event: Event) -> None:
        if isinstance(event, Partial):
            if not self._wants_partials:
                return
            if self._partials >= PARTIAL_CAPACITY:
                self._dropped += 1
                return
            self._partials += 1
        if self._dropped:
            self._mark_gap()
        self._queue.append(event)
        if self._reader_waits:
            self._wake_reader()

    def _mark_gap(self) -> None:
        if self._dropped:
            self._queue.append(Lagged(dropped=self._dropped))
            self._dropped = 0

    def close(self) -> None:
        """Nothing more comes; what waits can still be read."""
        self._mark_gap()
        self._closed = True
        if self._reader_waits:
            self._wake_reader()

    def drain(self) -> list[Event]:
        """What waits now, at once."""
        events, self._partials = list(self._queue), 0
        self._queue.clear()
        return events

    def _wake_reader(self) -> None:
        self._reader_waits = False
        self._wake.send_nowait(None)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        """The next event. Cancelled: nothing is lost, the event stays in the queue."""
        self._since_checkpoint += 1
        if self._since_checkpoint >= YIELD_EVERY:
            self._since_checkpoint = 0
            await trio.lowlevel.checkpoint()
        while not self._queue:
            if self._closed:
                await trio.lowlevel.checkpoint()
                raise StopAsyncIteration
            self._since_checkpoint = 0
            self._reader_waits = True
            try:
                await self._woken.receive()
            finally:
                self._reader_waits = False
        event = self._queue.popleft()
        if isinstance(event, Partial):
            self._partials -= 1
        return event


class Broadcaster:
    """Numbers a session's events and gives them to whoever listens now."""

    def __init__(self) -> None:
        self._seq = 0
        self._subscriptions: list[Subscription] = []

    @property
    def last_seq(self) -> int:
        return self._seq

    def subscribe(self, *, partials: bool = True) -> Subscription:
        """From the next event on."""
        subscription = Subscription(partials=partials)
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """It gets nothing more, and its reader comes to the end of what it has."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        subscription.close()

    def publish(self, event: Event) -> None:
        self._seq += 1
        stamp(event, self._seq)
        for subscription in self._subscriptions:
            subscription.put(event)
