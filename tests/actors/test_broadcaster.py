"""Fan-out: numbering, lag, ends."""

from __future__ import annotations

import trio
import trio.testing

from atrio.actors.broadcaster import PARTIAL_CAPACITY, YIELD_EVERY, Broadcaster
from atrio.runtime.events import Event, Lagged, Notice, TextDelta


def delta(n: int) -> TextDelta:
    return TextDelta({}, 0, str(n))


def notice(text: str) -> Notice:
    return Notice(level="info", source="test", text=text)


async def rest(events: object) -> list[Event]:
    return [event async for event in events]  # type: ignore[attr-defined]  # a Subscription


async def test_events_are_numbered_without_gaps_for_all_subscribers() -> None:
    bus = Broadcaster()
    one = bus.subscribe()
    bus.publish(delta(1))
    two = bus.subscribe()
    bus.publish(notice("x"))
    bus.unsubscribe(one)
    bus.unsubscribe(two)
    assert [1, 2] == [event.seq for event in await rest(one)]
    assert [2] == [event.seq for event in await rest(two)]


async def test_a_slow_subscriber_loses_partials_and_is_told_how_many_but_no_durable_event() -> None:
    bus = Broadcaster()
    slow = bus.subscribe()
    for n in range(PARTIAL_CAPACITY + 10):
        bus.publish(delta(n))
    bus.publish(notice("a"))
    bus.publish(notice("b"))
    bus.unsubscribe(slow)
    events = await rest(slow)
    assert PARTIAL_CAPACITY == sum(isinstance(event, TextDelta) for event in events)
    assert [Lagged(dropped=10), notice("a"), notice("b")] == events[-3:]


async def test_a_subscriber_that_keeps_up_gets_everything(autojump_clock: trio.testing.MockClock) -> None:
    bus = Broadcaster()
    events = bus.subscribe()
    got: list[Event] = []

    async def read() -> None:
        async for event in events:
            got.append(event)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        for n in range(3 * PARTIAL_CAPACITY):
            bus.publish(delta(n))
            if n % 500 == 0:
                await trio.testing.wait_all_tasks_blocked()
        bus.unsubscribe(events)
    assert 3 * PARTIAL_CAPACITY == len(got)


async def test_reading_gives_way_to_others() -> None:
    bus = Broadcaster()
    events = bus.subscribe()
    for n in range(10 * YIELD_EVERY):
        bus.publish(notice(str(n)))
    bus.unsubscribe(events)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await rest(events)
        nursery.cancel_scope.cancel()
    assert turns >= 9


async def test_a_cancelled_reader_loses_nothing(autojump_clock: trio.testing.MockClock) -> None:
    bus = Broadcaster()
    events = bus.subscribe()
    with trio.move_on_after(1):
        await events.__anext__()
    bus.publish(notice("kept"))
    assert notice("kept") == await events.__anext__()
