"""Timelines: spans from events, the overlap, and both pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.events import (
    Event,
    Heartbeat,
    RequestStarted,
    ResponseEnded,
    RetryScheduled,
    RunEnded,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from atrio.runtime.messages import AssistantMessage, TextBlock, ToolResultBlock
from atrio.runtime.result import Result, TerminalReason
from atrio.runtime.timeline import Kind, Overlap, Span, TimelineBuilder, lanes_of, measure, render_svg, render_text
from atrio.runtime.timeline_drawing import columns, ticks

SVG: Final = "{http://www.w3.org/2000/svg}"


def request(turn: int = 1, attempt: int = 1) -> Event:
    return RequestStarted(turn=turn, attempt=attempt, model="m")


def response() -> Event:
    message = AssistantMessage(
        uuid="u", message_id="msg", model="m", content=(TextBlock("hi"),), stop_reason="end_turn"
    )
    return ResponseEnded(message=message, cost_usd=None)


def started(id: str, name: str = "Read", **input: Any) -> Event:
    return ToolStarted(call_id=id, name=name, input=input)


def ended(id: str, duration: float, *, is_error: bool = False) -> Event:
    result = ToolResultBlock(tool_use_id=id, content="x", is_error=is_error)
    return ToolEnded(uuid="u", call_id=id, name="Read", result=result, duration=duration)


def over() -> Event:
    result = Result(subtype="success", terminal_reason=TerminalReason.COMPLETED, session_id="s", run_id="r")
    return RunEnded(result=result)


def collected(*events: tuple[float, Event]) -> tuple[Span, ...]:
    builder = TimelineBuilder()
    for at, event in events:
        builder.take(event, at)
    return builder.spans()


def test_a_request_and_its_calls_become_spans_that_count_from_the_first_event() -> None:
    assert (
        Span("model", "model", "turn 1", 0.0, 3.0),
        Span("Read a", "tool", "Read", 1.0, 1.5),
        Span("Read b", "tool", "Read", 2.0, 4.0, failed=True),
    ) == collected(
        (100.0, request()),
        (101.0, started("1", file_path="a")),
        (101.2, TextDelta(index=0, text="x", raw={})),
        (101.5, ended("1", 0.5)),
        (102.0, started("2", file_path="b")),
        (103.0, response()),
        (104.0, ended("2", 2.0, is_error=True)),
        (104.0, over()),
    )


def test_a_result_that_waited_for_an_earlier_one_does_not_lengthen_its_call() -> None:
    spans = collected(
        (0.0, started("1", file_path="a")),
        (0.0, started("2", file_path="b")),
        (5.0, ended("1", 5.0)),
        (5.0, ended("2", 1.0)),
    )
    assert {"Read a": 5.0, "Read b": 1.0} == {span.lane: span.end for span in spans}


def test_attempts_that_failed_and_the_waits_after_them_are_shown() -> None:
    def retry(delay: float) -> Event:
        return RetryScheduled(
            attempt=1, max_attempts=10, delay=delay, until=delay, status=529, kind="overloaded", message="busy"
        )

    assert (
        Span("model", "model", "turn 1", 0.0, 1.0, failed=True),
        Span("model", "wait", "waits: overloaded", 1.0, 3.0),
        Span("model", "model", "turn 1, attempt 2", 3.0, 4.0),
    ) == collected(
        (0.0, request()),
        (1.0, retry(2.0)),
        (2.0, Heartbeat(reason="overloaded", until=3.0)),
        (3.0, request(attempt=2)),
        (4.0, response()),
    )


def test_a_call_that_never_started_has_no_span() -> None:
    assert () == collected((0.0, ended("1", 0.0, is_error=True)))


def test_what_is_still_open_ends_at_the_last_event() -> None:
    assert [2.0, 2.0] == [
        span.end
        for span in collected(
            (0.0, request()), (1.0, started("1", file_path="a")), (2.0, Heartbeat(reason="x", until=None))
        )
    ]


def test_a_request_in_flight_at_the_end_of_the_run_has_failed() -> None:
    assert (Span("model", "model", "turn 1", 0.0, 1.0, failed=True),) == collected((0.0, request()), (1.0, over()))


def test_calls_about_the_same_thing_have_lanes_of_their_own() -> None:
    spans = collected(*((float(n), started(str(n), file_path="a")) for n in range(3)))
    assert ["Read a", "Read a (2)", "Read a (3)"] == list(lanes_of(spans))


def test_a_lane_is_named_for_what_its_call_is_about_in_one_short_line() -> None:
    def lane(**input: Any) -> str:
        return collected((0.0, started("1", name="T", **input)))[0].lane

    assert "T say hello" == lane(description="say\n hello", command="echo")
    assert "T" == lane(file_path=7)
    assert 60 == len(lane(command="x" * 1000))


def test_the_models_lane_comes_first() -> None:
    spans = [Span("a", "tool", "T", 0, 1), Span("model", "model", "turn 1", 1, 2)]
    assert ["model", "a"] == list(lanes_of(spans))


def test_a_span_does_not_end_before_it_starts() -> None:
    with pytest.raises(ValueError, match="the end not before"):
        Span("a", "tool", "T", 2.0, 1.0)
    with pytest.raises(ValueError, match="give seconds"):
        Span("a", "tool", "T", 0.0, float("inf"))


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], Overlap()),
        ([("model", 0, 3)], Overlap(model=3, wall=3)),
        ([("model", 0, 3), ("tool", 1, 2), ("tool", 1.5, 4)], Overlap(model=3, tools=3, both=2, wall=4)),
        ([("model", 0, 1), ("tool", 1, 2)], Overlap(model=1, tools=1, both=0, wall=2)),
        ([("model", 0, 1), ("wait", 1, 5), ("tool", 2, 3)], Overlap(model=1, tools=1, both=0, wall=5)),
    ],
    ids=["nothing", "only the model", "two tools at once count once", "one after the other", "waits don't count"],
)
def test_the_overlap_is_the_time_in_which_model_and_tools_both_ran(
    spans: list[tuple[Kind, float, float]], expected: Overlap
) -> None:
    assert expected == measure(Span(f"{kind}{n}", kind, "x", start, end) for n, (kind, start, end) in enumerate(spans))


def test_the_share_is_the_part_of_the_tools_time_that_the_model_hid() -> None:
    assert (0.5, 0.0) == (Overlap(model=4, tools=2, both=1, wall=5).share, Overlap().share)


def test_bars_lie_under_one_another_by_time() -> None:
    spans = [
        Span("model", "model", "turn 1", 0, 2),
        Span("model", "model", "turn 2", 2, 4),
        Span("Read a", "tool", "Read", 1, 3),
        Span("Bash b", "tool", "Bash", 3.5, 4, failed=True),
    ]
    assert [
        "model  ████████████████▌█████████████████",
        "Read a         ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓",
        "Bash b                              ▒▒▒▒▒",
    ] == render_text(spans, width=41).splitlines()[:3]


def test_the_axis_is_marked_at_round_seconds() -> None:
    assert [0, 0.5, 1.0] == pytest.approx(list(ticks(1.2, 3)))
    assert [0, 20, 40, 60] == pytest.approx(list(ticks(61, 5)))


def test_the_shortest_call_shows() -> None:
    spans = [Span("model", "model", "turn 1", 0, 1000), Span("Read a", "tool", "Read", 999.9999, 1000)]
    assert "▓" in render_text(spans, width=80).splitlines()[1]


def test_an_empty_timeline_says_so() -> None:
    assert "nothing ran" == render_text([], width=80)
    ET.fromstring(render_svg([], title="nothing"))


def test_lanes_beyond_what_anyone_reads_are_counted() -> None:
    spans = [Span(f"Read {n}", "tool", "Read", n, n + 1) for n in range(1000)]
    assert "… and 960 more" in render_text(spans, width=80)
    assert len(render_svg(spans, title="many").splitlines()) < 200


def test_names_cannot_steer_the_terminal() -> None:
    text = render_text([Span("\x1b[31mRead \r\u202e", "tool", "Read", 0, 1)], width=80)
    assert not {"\x1b", "\r", "\u202e"} & set(text)


TIMES: Final = st.floats(min_value=0, max_value=1e6, allow_nan=False)
SPANS: Final = st.lists(
    st.builds(
        lambda lane, kind, label, start, length, failed: Span(lane, kind, label, start, start + length, failed=failed),
        st.text(max_size=50),
        st.sampled_from(["model", "tool", "wait"]),
        st.text(),
        TIMES,
        TIMES,
        st.booleans(),
    ),
    max_size=12,
)


@given(SPANS, st.integers(40, 200))
def test_no_line_is_wider_than_asked(spans: list[Span], width: int) -> None:
    assert all(columns(line) <= width for line in render_text(spans, width=width).splitlines())


@given(SPANS, st.text())
def test_svg_is_well_formed_whatever_the_labels_hold(spans: list[Span], title: str) -> None:
    root = ET.fromstring(render_svg(spans, title=title))
    lanes = list(lanes_of(spans).values())
    assert sum(len(lane) for lane in lanes) + 1 == len(root.findall(f"{SVG}rect"))


def test_svg_shows_labels_as_text_and_refers_to_nothing_outside() -> None:
    drawn = render_svg([Span("<b>&", "tool", 'x"</text><script/>', 0, 1)], title="a < b & c")
    root = ET.fromstring(drawn)
    assert "a < b & c" == root.findtext(f"{SVG}title")
    assert [] == root.findall(f".//{SVG}script")
    assert ["http://www.w3.org/2000/svg"] == [word for word in drawn.split('"') if "://" in word]


@given(SPANS)
def test_the_overlap_is_never_more_than_either_side(spans: list[Span]) -> None:
    found = measure(spans)
    assert found.both <= min(found.model, found.tools) + 1e-6
    assert max(found.model, found.tools) <= found.wall + 1e-6
