"""Silence is noticed, warned about, and cut."""

from __future__ import annotations

import trio
import trio.testing

from atrio.actors.protocol import Stalled
from atrio.actors.watchdog import IdleLimits, PulseBoard, Watchdog


async def test_event_silence_warns_at_half_and_cuts_at_the_limit(autojump_clock: trio.testing.MockClock) -> None:
    board, warnings = PulseBoard(), list[tuple[float, Stalled]]()
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(Watchdog(board=board).run)
        with board.watching(
            IdleLimits(event=90, byte=180), lambda s: warnings.append((trio.current_time() - start, s))
        ) as pulse:
            pulse.open()
            board.touch()
            await trio.sleep_forever()
        assert trio.current_time() - start == 90
        assert pulse.fired == Stalled(level="event", idle=90, limit=90)
        nursery.cancel_scope.cancel()
    assert [(45, Stalled(level="event", idle=45, limit=90))] == warnings


async def test_before_the_response_begins_only_bytes_count(autojump_clock: trio.testing.MockClock) -> None:
    board = PulseBoard()
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(Watchdog(board=board).run)
        with board.watching(IdleLimits(event=90, byte=180), lambda s: None) as pulse:
            await trio.sleep_forever()
        assert trio.current_time() - start == 180
        assert pulse.fired is not None
        assert pulse.fired.level == "byte"
        nursery.cancel_scope.cancel()


async def test_pings_keep_alive_but_are_no_progress(autojump_clock: trio.testing.MockClock) -> None:
    board = PulseBoard()
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        await nursery.start(Watchdog(board=board).run)
        with board.watching(IdleLimits(event=90, byte=30), lambda s: None) as pulse:
            pulse.open()
            board.touch()
            while True:
                await trio.sleep(20)
                pulse.beat(progress=False)
        assert trio.current_time() - start == 90
        assert pulse.fired is not None
        assert pulse.fired.level == "event"
        nursery.cancel_scope.cancel()


async def test_a_slow_but_steady_stream_is_never_cut(autojump_clock: trio.testing.MockClock) -> None:
    board, warnings = PulseBoard(), list[Stalled]()
    async with trio.open_nursery() as nursery:
        await nursery.start(Watchdog(board=board).run)
        with board.watching(IdleLimits(event=60, byte=60), warnings.append) as pulse:
            pulse.open()
            for _ in range(30):
                await trio.sleep(20)
                pulse.beat(progress=True)
        assert pulse.fired is None
        nursery.cancel_scope.cancel()
    assert [] == warnings


async def test_each_silence_is_warned_about_once(autojump_clock: trio.testing.MockClock) -> None:
    board, warnings = PulseBoard(), list[Stalled]()
    async with trio.open_nursery() as nursery:
        await nursery.start(Watchdog(board=board).run)
        with board.watching(IdleLimits(event=60, byte=None), warnings.append) as pulse:
            pulse.open()
            board.touch()
            for _ in range(3):
                await trio.sleep(50)
                board.touch()
                await trio.sleep(5)
                pulse.beat(progress=True)
        nursery.cancel_scope.cancel()
    assert 3 == len(warnings)


async def test_a_restarted_watchdog_guards_what_was_there(autojump_clock: trio.testing.MockClock) -> None:
    board = PulseBoard()
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        with board.watching(IdleLimits(event=90, byte=180), lambda s: None) as pulse:
            pulse.open()
            await trio.sleep(10)
            await nursery.start(Watchdog(board=board).run)
            await trio.sleep_forever()
        assert pulse.fired is not None
        assert trio.current_time() - start == 90
        nursery.cancel_scope.cancel()


async def test_switched_off_levels_never_fire(autojump_clock: trio.testing.MockClock) -> None:
    board = PulseBoard()
    async with trio.open_nursery() as nursery:
        await nursery.start(Watchdog(board=board).run)
        with board.watching(IdleLimits(event=None, byte=None), lambda s: None) as pulse:
            pulse.open()
            await trio.sleep(100_000)  # noqa: ASYNC116  # longer than any limit
        assert pulse.fired is None
        nursery.cancel_scope.cancel()
