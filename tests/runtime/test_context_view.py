"""A window report as text."""

from __future__ import annotations

from atrio.runtime.context.report import Item, Part, WindowReport
from atrio.runtime.context_view import render_report
from atrio.runtime.window import ModelWindow, levels_of

LEVELS = levels_of(ModelWindow(tokens=100_000))


def test_the_bar_is_the_window_and_the_table_says_what_is_in_it() -> None:
    parts = (
        Part("system prompt", 10_000),
        Part("results", 40_000, tuple(Item(f"Tool{n}", 8_000 - n) for n in range(7))),
    )
    text = render_report(WindowReport(parts=parts, tokens=50_000, measured=True, levels=LEVELS), width=50)
    lines = text.splitlines()
    assert "50,000 of 100,000 tokens (measured)" in lines[0]
    assert 50 == len(lines[1])
    assert 5 == lines[1].count("█")
    assert 20 == lines[1].count("▓")
    assert 1 == lines[1].count("|")
    assert any("results" in line and "40.0%" in line for line in lines)
    assert any("(2 more)" in line for line in lines)
    assert "50.0%" in lines[-1]


def test_a_full_window_has_no_room_to_show() -> None:
    report = WindowReport(parts=(Part("results", 120_000),), tokens=120_000, measured=False, levels=LEVELS)
    lines = render_report(report, width=20).splitlines()
    assert 19 == lines[1].count("█")
    assert "0.0%" in lines[-1]
