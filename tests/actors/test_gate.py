"""The rate gate that all sessions of a key share."""

from __future__ import annotations

import trio
import trio.testing

from atrio.actors.gate import HEARTBEAT, RateGate, gate_for


def ignore(until: float) -> None: ...


async def test_an_open_gate_lets_everybody_pass_at_once(autojump_clock: trio.testing.MockClock) -> None:
    gate = RateGate()
    inside = peak = 0

    async def one() -> None:
        nonlocal inside, peak
        async with gate.passing(ignore) as admission:
            inside += 1
            peak = max(peak, inside)
            await trio.sleep(1)
            inside -= 1
            admission.succeeded()

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(one)
    assert 20 == peak
    assert 1 == trio.current_time()


async def test_a_limit_is_probed_by_one_and_then_opens_by_and_by(autojump_clock: trio.testing.MockClock) -> None:
    gate = RateGate()
    sent: list[float] = []

    async def one() -> None:
        async with gate.passing(ignore) as admission:
            sent.append(trio.current_time())
            await trio.sleep(1)
            admission.succeeded()

    gate.close_for(60)
    async with trio.open_nursery() as nursery:
        for _ in range(15):
            nursery.start_soon(one)
    assert [60, 61, 61, 62, 62, 62, 62, 63, 63, 63, 63, 63, 63, 63, 63] == sent


async def test_twenty_clients_of_a_small_limit_finish_without_hammering(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The server allows five requests a minute and says when to come back."""
    gate = RateGate()
    window: dict[int, int] = {}
    requests: list[float] = []

    def server() -> float | None:
        now = trio.current_time()
        requests.append(now)
        minute = int(now // 60)
        window[minute] = window.get(minute, 0) + 1
        return None if window[minute] <= 5 else 60 - now % 60

    async def client() -> None:
        while True:
            async with gate.passing(ignore) as admission:
                await trio.sleep(0.1)
                wait = server()
                if wait is None:
                    admission.succeeded()
                    return
                admission.limited(wait)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(client)
    # All were under way before the first refusal; from then on each window sees its five and few more.
    assert 20 == window[0]
    assert all(count <= 9 for minute, count in window.items() if minute > 0)
    assert 20 == sum(min(count, 5) for count in window.values())


async def test_a_cancelled_probe_makes_room_for_the_next(autojump_clock: trio.testing.MockClock) -> None:
    gate = RateGate()
    gate.close_for(10)

    async def probe(scope: trio.CancelScope) -> None:
        with scope:
            async with gate.passing(ignore):
                await trio.sleep_forever()

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probe, scope)
        await trio.sleep(15)
        scope.cancel(reason="test")
        async with gate.passing(ignore) as admission:
            admission.succeeded()
    assert 15 == trio.current_time()


async def test_a_long_wait_gives_signs_of_life(autojump_clock: trio.testing.MockClock) -> None:
    gate = RateGate()
    told: list[float] = []
    gate.close_for(10 * HEARTBEAT)
    async with gate.passing(told.append):
        pass
    assert 10 == len(told)
    assert {10 * HEARTBEAT} == set(told)


async def test_one_gate_for_each_endpoint() -> None:
    assert gate_for("a") is gate_for("a")
    assert gate_for("a") is not gate_for("b")
