"""
The timeline of a run: spans collected from its events, and pictures of them. Pure.

    builder = TimelineBuilder()
    async for event in run:
        builder.take(event, trio.current_time())
    print(render_text(builder.spans(), width=100))

The model has one lane and each tool call one of its own. Times are seconds from the first event.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from .events import Event, RequestStarted, ResponseEnded, RetryScheduled, RunEnded, ToolEnded, ToolStarted
from .spans import MODEL, Kind, Overlap, Span, lanes_of, measure
from .timeline_drawing import render_svg, render_text

__all__ = ["MODEL", "Kind", "Overlap", "Span", "TimelineBuilder", "lanes_of", "measure", "render_svg", "render_text"]

NAMING_FIELDS: Final = ("description", "file_path", "command", "pattern", "path", "url")
"""Which input of a call says best what it is about; the first that is there is shown."""

LANE_CHARS: Final = 60
"""Characters of a lane's name; pictures shorten it further."""


@attrs.frozen
class _Open:
    lane: str
    kind: Kind
    label: str
    start: float

    def close(self, end: float, *, failed: bool = False) -> Span:
        return Span(self.lane, self.kind, self.label, self.start, max(self.start, end), failed=failed)


@attrs.define
class TimelineBuilder:
    """
    Collects spans from a run's events, given in their order; most events (deltas) cost one look-up.

    A call's result is published in call order, which may be long after its end: so a call's span ends as long after
    its start as its ``duration`` says. A call that never started has no span.
    """

    _origin: float | None = attrs.field(init=False, default=None)
    _last: float = attrs.field(init=False, default=0.0)
    _request: _Open | None = attrs.field(init=False, default=None)
    _wait: _Open | None = attrs.field(init=False, default=None)
    _calls: dict[str, _Open] = attrs.field(init=False, factory=dict)
    _done: list[Span] = attrs.field(init=False, factory=list)
    _lanes: dict[str, int] = attrs.field(init=False, factory=dict)

    def take(self, event: Event, at: float) -> None:
        """Note an event that came at ``at`` (seconds on any clock that doesn't run backwards)."""
        if self._origin is None:
            self._origin = at
        self._last = now = max(self._last, at - self._origin)
        match event:
            case RequestStarted():
                self._end_model(now, failed=True)
                label = f"turn {event.turn}" if event.attempt == 1 else f"turn {event.turn}, attempt {event.attempt}"
                self._request = _Open(MODEL, "model", label, now)
            case ResponseEnded():
                self._end_model(now)
            case RetryScheduled():
                self._end_model(now, failed=True)
                self._wait = _Open(MODEL, "wait", f"waits: {event.kind}", now)
            case ToolStarted():
                lane = self._lane(event.name, event.input)
                self._calls[event.call_id] = _Open(lane, "tool", event.name, now)
            case ToolEnded():
                call = self._calls.pop(event.call_id, None)
                if call is not None:
                    end = min(now, call.start + event.duration) if event.duration > 0 else now
                    self._done.append(call.close(end, failed=event.result.is_error))
            case RunEnded():
                self._end_model(now, failed=True)
            case _:
                pass

    def spans(self) -> tuple[Span, ...]:
        """What was collected, by start; what is still open ends at the last event."""
        still = [span for span in (self._request, self._wait, *self._calls.values()) if span is not None]
        return tuple(sorted([*self._done, *(span.close(self._last) for span in still)], key=lambda span: span.start))

    def _end_model(self, now: float, *, failed: bool = False) -> None:
        if self._request is not None:
            self._done.append(self._request.close(now, failed=failed))
        if self._wait is not None:
            self._done.append(self._wait.close(now))
        self._request = self._wait = None

    def _lane(self, name: str, input: Any) -> str:
        subject = next((value for key in NAMING_FIELDS if isinstance(value := input.get(key), str) and value), "")
        lane = " ".join(f"{name} {subject}".split())[:LANE_CHARS]
        count = self._lanes[lane] = self._lanes.get(lane, 0) + 1
        return lane if count == 1 else f"{lane} ({count})"
