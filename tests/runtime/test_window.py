"""The window's marks, and that no size falls between two of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.context import CompactHistory, Verdict, autocompact
from atrio.runtime.window import (
    Level,
    ModelWindow,
    WindowLevels,
    WindowSettings,
    choose_window,
    levels_of,
    output_room,
)

BIG = ModelWindow(tokens=200_000)


def test_the_marks_of_a_window_of_200_000_are_the_known_ones() -> None:
    assert levels_of(BIG) == WindowLevels(
        window=200_000,
        reserve=20_000,
        effective=180_000,
        auto=167_000,
        warning=147_000,
        blocking=177_000,
        summary_tokens=20_000,
    )


@pytest.mark.parametrize(
    ("tokens", "level"),
    [
        (146_999, Level.NORMAL),
        (147_000, Level.WARNING),
        (167_000, Level.COMPACT),
        (177_000, Level.BLOCKED),
        (5_000_000, Level.BLOCKED),
    ],
)
def test_a_level_begins_at_its_mark(tokens: int, level: Level) -> None:
    assert level is levels_of(BIG).level(tokens)


def test_a_large_window_is_used_to_its_end() -> None:
    """B057: compaction at an eighth of the window."""
    assert Level.NORMAL is levels_of(ModelWindow(tokens=1_000_000)).level(120_000)
    assert 967_000 == levels_of(ModelWindow(tokens=1_000_000)).auto


def test_an_unknown_window_counts_as_200_000_and_is_told_once() -> None:
    first = choose_window("new-model", tokens=None)
    again = choose_window("new-model", tokens=None, told=first.told)
    other = choose_window("other", tokens=None, told=again.told)
    assert (200_000, False) == (first.window.tokens, first.window.known)
    assert first.note is not None
    assert "new-model" in first.note
    assert (first.window, None) == (again.window, again.note)
    assert other.note is not None


def test_a_known_window_is_not_spoken_of() -> None:
    choice = choose_window("m", tokens=1_000_000, max_output_tokens=64_000)
    assert (ModelWindow(tokens=1_000_000, max_output_tokens=64_000), None) == (choice.window, choice.note)


def test_a_large_output_cap_starts_compaction_before_the_server_refuses() -> None:
    """B061: 140k of history and 64k of output don't fit into 200k."""
    window = ModelWindow(tokens=200_000, max_output_tokens=64_000)
    verdict = autocompact(140_000, levels_of(window, max_tokens=64_000), CompactHistory(), turn=5)
    assert Verdict.COMPACT is verdict.verdict
    assert Verdict.NOT_NEEDED is autocompact(140_000, levels_of(window), CompactHistory(), turn=5).verdict


def test_the_users_window_and_share_only_lower_the_marks() -> None:
    assert 100_000 == levels_of(BIG, WindowSettings(window_tokens=100_000)).window
    assert 200_000 == levels_of(BIG, WindowSettings(window_tokens=900_000)).window
    assert 90_000 == levels_of(BIG, WindowSettings(auto_share=0.5)).auto
    assert 167_000 == levels_of(BIG, WindowSettings(auto_share=1.0)).auto


def test_a_smaller_window_of_the_users_leaves_room_for_long_answers_anyway() -> None:
    window = ModelWindow(tokens=200_000, max_output_tokens=64_000)
    assert 20_000 == levels_of(window, WindowSettings(window_tokens=100_000), max_tokens=64_000).reserve


@given(
    tokens=st.integers(-5, 3_000_000),
    output=st.integers(1, 200_000),
    wanted=st.none() | st.integers(1, 200_000),
    share=st.none() | st.floats(0, 1),
)
def test_the_marks_of_any_window_are_in_order_and_leave_room_for_a_summary(
    tokens: int, output: int, wanted: int | None, share: float | None
) -> None:
    levels = levels_of(
        ModelWindow(tokens=tokens, max_output_tokens=output), WindowSettings(auto_share=share), max_tokens=wanted
    )
    assert 0 <= levels.warning <= levels.auto <= levels.blocking <= levels.effective < levels.window
    assert levels.blocking + levels.summary_tokens <= levels.window
    if share is None:
        assert levels.auto < levels.blocking


def test_the_output_cap_shrinks_to_what_is_left() -> None:
    window = ModelWindow(tokens=200_000, max_output_tokens=64_000)
    assert 64_000 == output_room(window, 100_000, 90_000)
    assert 20_000 == output_room(window, 180_000, 64_000)
    assert 1_000 == output_room(window, 250_000, 64_000)
