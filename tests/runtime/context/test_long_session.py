"""A session of 2,000 turns with large results in a window of 200,000 tokens: it stays within, and goes on."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # the benches are in no package

from bench.context import LEVELS, Session, draw

from atrio.runtime.context import Verdict
from atrio.runtime.window import ModelWindow, levels_of

TURNS = 2_000


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_a_session_of_2_000_turns_stays_within_its_window_and_compacts_now_and_then() -> None:
    session = Session(random.Random(7))
    session.run(TURNS)
    assert max(session.fills) < LEVELS.effective
    gaps = [after - before for before, after in zip(session.compacted_at, session.compacted_at[1:], strict=False)]
    assert 10 <= len(session.compacted_at) <= TURNS // 10
    assert min(gaps) > 3
    assert [] == session.prefix_breaks
    late = [abs(error) for error in session.errors[20:]]
    assert sum(late) / len(late) < 0.02
    assert "u" in [message.uuid for message in session.history]


@pytest.mark.slow
def test_what_fills_the_window_again_at_once_ends_the_compactions() -> None:
    small = levels_of(ModelWindow(tokens=40_000))
    session = Session(random.Random(7), levels=small, result_chars=(49_000,))
    verdicts = [session.turn(number) for number in range(40)]
    assert Verdict.RAPID_REFILL in verdicts
    first = verdicts.index(Verdict.RAPID_REFILL)
    assert verdicts[:first].count(Verdict.COMPACT) <= 8


def test_the_picture_is_drawn_for_any_number_of_turns() -> None:
    for fills in ([], [1], [10_000, 167_000, 30_000]):
        assert draw(fills, LEVELS).endswith("</svg>\n")
