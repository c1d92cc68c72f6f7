"""The restart window: how many failures within a period are too many."""

from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.errors import ConfigError
from atrio.runtime.intensity import RestartWindow

gaps = st.lists(st.floats(min_value=0, max_value=20, allow_nan=False), max_size=40)


def after(window: RestartWindow, times: list[float]) -> RestartWindow:
    for time in times:
        window = window.record(time)
    return window


@pytest.mark.parametrize(
    ("max_restarts", "period", "times", "exceeded"),
    [
        (0, 5.0, [], False),
        (0, 5.0, [1.0], True),
        (1, 5.0, [1.0], False),
        (1, 5.0, [1.0, 2.0], True),
        (1, 5.0, [1.0, 6.0], True),
        (1, 5.0, [1.0, 6.1], False),
        (3, 5.0, [0.0, 1.0, 2.0, 3.0], True),
        (3, 5.0, [0.0, 1.0, 2.0, 5.5], False),
        (3, 5.0, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0], False),
        (2, 5.0, [7.0, 7.0, 7.0], True),
    ],
)
def test_more_restarts_than_tolerated_within_the_period_are_too_many(
    max_restarts: int, period: float, times: list[float], exceeded: bool
) -> None:
    assert exceeded is after(RestartWindow(max_restarts, period), times).exceeded


@given(st.integers(0, 5), st.floats(0.1, 30), gaps)
def test_the_window_agrees_with_counting_all_restarts_ever(
    max_restarts: int, period: float, steps: list[float]
) -> None:
    window = RestartWindow(max_restarts, period)
    now = 100.0
    ever: list[float] = []
    for step in steps:
        now += step
        ever.append(now)
        window = window.record(now)
        assert window.exceeded is (sum(now - time <= period for time in ever) > max_restarts)
        assert len(window.times) <= max_restarts + 1


def test_recording_leaves_the_old_window_as_it_was() -> None:
    window = RestartWindow(1, 5.0, (1.0,))
    assert RestartWindow(1, 5.0, (1.0, 2.0)) == window.record(2.0)
    assert RestartWindow(1, 5.0, (1.0,)) == window
    assert attrs.asdict(window) == {"max_restarts": 1, "period": 5.0, "times": (1.0,)}


@pytest.mark.parametrize(("max_restarts", "period"), [(-1, 5.0), (3, 0.0), (3, -1.0), (3, math.inf), (3, math.nan)])
def test_a_window_that_can_count_nothing_is_refused(max_restarts: int, period: float) -> None:
    with pytest.raises(ConfigError):
        RestartWindow(max_restarts, period)
