"""What a person sees while a run goes on: the live view and the plain lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from atrio.runtime.events import (
    ActivitySummary,
    Event,
    Notice,
    PermissionDenied,
    RequestStarted,
    ResponseEnded,
    RetryScheduled,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    ToolUseSummary,
    TurnEnded,
)
from atrio.runtime.live import LiveView
from atrio.runtime.messages import AssistantMessage, ToolResultBlock, Usage
from atrio.runtime.narration import call_label, outcome_line, printable, progress_line, told
from atrio.runtime.result import Result, TerminalReason


class Screen:
    """A view, its clock, and what was drawn."""

    def __init__(self) -> None:
        self.now = 100.0
        self.file = io.StringIO()
        console = Console(file=self.file, force_terminal=True, width=80, color_system=None)
        self.view = LiveView(console, clean=lambda text: text.replace("secret", "[redacted]"), clock=lambda: self.now)

    def picture(self, *events: Event) -> list[str]:
        for event in events:
            self.view.take(event)
        frame = self.view.frame()
        return [line.plain for line in (*frame.stay, *frame.below.renderables)]  # type: ignore[union-attr]  # all Text


def ended(call: str, *, failed: bool = False) -> ToolEnded:
    result = ToolResultBlock(call, "x", is_error=failed)
    return ToolEnded(uuid="u", call_id=call, name="Bash", result=result, duration=1.25)


def test_a_view_shows_activity_text_and_numbers() -> None:
    screen = Screen()
    message = AssistantMessage(
        uuid="u", message_id="m", model="m", content=(), usage=Usage(input_tokens=1200, output_tokens=30)
    )
    screen.view.take(RequestStarted(turn=2, attempt=1, model="m"))
    screen.view.take(TextDelta({}, 0, "one\ntwo"))
    screen.view.take(ResponseEnded(message=message, cost_usd=0.5))
    screen.now += 3

    assert [
        "⠋ writing  3 s",
        "  one",
        "  two",
        "  turn 2, 1,200 tokens in, 30 out, 0.5000 USD, 3 s",
    ] == screen.picture()


def test_running_calls_are_listed_and_ended_ones_stay() -> None:
    screen = Screen()
    first = screen.picture(
        ToolStarted(call_id="a", name="Bash", input={"command": "make\ntest"}),
        ToolStarted(call_id="b", name="Read", input={"file_path": "x"}),
        ToolProgress("a", "Bash", "half"),
    )
    screen.now += 1
    second = screen.picture(ended("a", failed=True))

    assert ["  Bash(make test)  0.0 s  half", "  Read(x)  0.0 s"] == first[1:3]
    assert ["✗ Bash(make test)  1.2 s", "  Read(x)  1.0 s"] == [second[0], second[2]]


def test_summaries_are_shown_where_they_belong() -> None:
    screen = Screen()
    first = screen.picture(
        ActivitySummary(text="Reading\na.py"), ToolUseSummary(call_ids=("a",), text="Found a secret")
    )

    assert ["• Found a [redacted]", "⠋ starting  0 s", "  Reading a.py"] == first[:3]
    assert ["⠋ starting  0 s", "  Reading b.py"] == screen.picture(ActivitySummary(text="Reading b.py"))[:2]


def test_many_calls_take_few_lines() -> None:
    screen = Screen()
    calls = [ToolStarted(call_id=str(n), name="Read", input={"file_path": str(n)}) for n in range(20)]

    assert "  and 12 more" == screen.picture(*calls)[9]


def test_the_text_of_a_turn_goes_with_it() -> None:
    screen = Screen()

    assert "  gone" not in screen.picture(TextDelta({}, 0, "gone"), TurnEnded(turn=1, transition="next_turn"))


def test_an_unknown_price_is_never_shown_as_zero() -> None:
    screen = Screen()
    message = AssistantMessage(uuid="u", message_id="m", model="m", content=())

    assert "cost unknown" in screen.picture(ResponseEnded(message=message, cost_usd=None))[-1]


def test_neither_secrets_nor_control_characters_reach_the_terminal() -> None:
    screen = Screen()
    screen.view.take(TextDelta({}, 0, "a secret\x1b]0;title\x07 \u202e[bold]"))
    screen.view.draw(screen.view.frame())
    screen.view.close()

    assert "secret" not in screen.file.getvalue()
    assert "a [redacted]\N{REPLACEMENT CHARACTER}]0;title" in screen.file.getvalue()
    assert "[bold]" in screen.file.getvalue()


def test_a_closed_view_draws_no_more_and_keeps_what_stays() -> None:
    screen = Screen()
    frame = screen.view.frame()
    screen.view.take(ended("a"))
    screen.view.close()
    before = screen.file.getvalue()
    screen.view.draw(frame)
    screen.view.close()

    assert "✓ Bash  1.2 s" in before
    assert before == screen.file.getvalue()


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (RequestStarted(turn=1, attempt=2, model="m"), "turn 1: asking m, attempt 2"),
        (ToolStarted(call_id="a", name="Glob", input={"pattern": "*"}), "started Glob(*)"),
        (ended("a"), "ended Bash after 1.2 s"),
        (PermissionDenied(call_id="a", name="X", input={}, reason="no"), "denied X: no"),
        (Notice(level="warning", source="model", text="odd"), "warning: model: odd"),
        (
            RetryScheduled(
                attempt=1, max_attempts=3, delay=2.0, until=0, status=529, kind="overloaded", message="Full"
            ),
            "retry 1 of 3 in 2.0 s: Full",
        ),
        (ActivitySummary(text="Reading a.py"), "now: Reading a.py"),
        (ToolUseSummary(call_ids=("a",), text="Found it"), "so far: Found it"),
        (TurnEnded(turn=1, transition="next_turn"), None),
    ],
)
def test_events_in_plain_words(event: Event, line: str | None) -> None:
    assert line == progress_line(event)


def test_a_label_is_one_short_line() -> None:
    assert "Bash" == call_label("Bash", {"command": 3})
    assert f"Bash({'x' * 97}...)" == call_label("Bash", {"command": "x" * 10_000})
    assert "Bash(a b)" == call_label("Bash", {"command": "a\n\n  b"})


def test_lines_and_tabs_are_printable() -> None:
    assert "a\n\tb\N{REPLACEMENT CHARACTER}" == printable("a\r\n\tb\r")


def test_the_outcome_in_numbers() -> None:
    result = Result(
        subtype="success",
        terminal_reason=TerminalReason.COMPLETED,
        session_id="s",
        run_id="r",
        num_turns=1,
        duration=2.0,
        usage=Usage(input_tokens=1000, cache_read_input_tokens=500, output_tokens=20),
        cost_usd=0.0125,
    )

    assert "1 turn, 1,500 tokens in, 20 out, 0.0125 USD, 2.0 s" == outcome_line(result)


def test_of_a_group_the_first_error_is_told() -> None:
    assert "ValueError: a" == told(ExceptionGroup("g", [ExceptionGroup("h", [ValueError("a")]), KeyError("b")]))
