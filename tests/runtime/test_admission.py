"""The reader/writer rule for tool calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.admission import CallState, admit

Q, E, C, Y = CallState.QUEUED, CallState.EXECUTING, CallState.COMPLETED, CallState.YIELDED


@pytest.mark.parametrize(
    ("expected", "calls"),
    [
        ([], []),
        ([0], [(Q, False)]),
        ([0, 1, 2], [(Q, True), (Q, True), (Q, True)]),
        ([0], [(Q, False), (Q, True)]),
        ([0, 1], [(Q, True), (Q, True), (Q, False), (Q, True)]),
        ([], [(E, False), (Q, True)]),
        ([], [(E, True), (Q, False), (Q, True)]),
        ([1], [(E, True), (Q, True), (Q, False)]),
        ([1], [(C, False), (Q, False), (Q, True)]),
        ([2], [(Y, True), (C, True), (Q, False)]),
    ],
)
def test_table(expected: list[int], calls: list[tuple[CallState, bool]]) -> None:
    assert expected == admit(calls, limit=10)


def test_no_more_than_the_limit_run() -> None:
    assert [2] == admit([(E, True), (E, True), (Q, True), (Q, True)], limit=3)


@given(st.lists(st.tuples(st.sampled_from([Q, E, C, Y]), st.booleans()), max_size=20), st.integers(1, 10))
def test_an_unsafe_call_never_runs_beside_another(calls: list[tuple[CallState, bool]], limit: int) -> None:
    running_before = [safe for state, safe in calls if state is E]
    started = admit(calls, limit=limit)
    running = running_before + [calls[n][1] for n in started]
    if started:
        assert len(running) == 1 or all(running)
        assert len(running) <= max(limit, len(running_before))


@given(st.lists(st.tuples(st.sampled_from([Q, E, C, Y]), st.booleans()), max_size=20))
def test_nothing_overtakes_a_queued_call(calls: list[tuple[CallState, bool]]) -> None:
    started = admit(calls, limit=10)
    queued = [n for n, (state, _) in enumerate(calls) if state is Q]
    assert started == queued[: len(started)]


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 10))
def test_every_queue_is_worked_off(safeties: list[bool], limit: int) -> None:
    states = [Q] * len(safeties)
    for _ in range(len(safeties) + 1):
        for n in admit(list(zip(states, safeties, strict=True)), limit=limit):
            states[n] = E
        running = [n for n, state in enumerate(states) if state is E]
        if not running:
            break
        states[running[0]] = C
    assert states == [C] * len(safeties)
