"""
Spans: what ran when, in which lane, and how much model and tools overlapped. Pure; times are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import attrs

__all__ = ["MODEL", "Kind", "Overlap", "Span", "lanes_of", "measure"]

Kind: TypeAlias = Literal["model", "tool", "wait"]
"""``wait`` is a pause before another attempt at the model."""

MODEL: Final = "model"
"""The lane of requests and of the waits between them."""


def _span_end(span: Span, attribute: attrs.Attribute[float], end: float) -> None:
    if not (math.isfinite(span.start) and math.isfinite(end) and end >= span.start):
        raise ValueError(f"span {span.label!r} runs from {span.start!r} to {end!r}; give seconds, the end not before")


@attrs.frozen
class Span:
    """
    Something that ran in ``lane`` from ``start`` to ``end`` (seconds). ``failed``: it ended without success.

    Raises ValueError if it ends before it starts.
    """

    lane: str
    kind: Kind
    label: str
    start: float
    end: float = attrs.field(validator=_span_end)
    failed: bool = attrs.field(default=False, kw_only=True)

    @property
    def duration(self) -> float:
        return self.end - self.start


@attrs.frozen(kw_only=True)
class Overlap:
    """
    Seconds in which the model ran, any tool ran, and both did at once; ``wall`` from first start to last end.
    """

    model: float = 0.0
    tools: float = 0.0
    both: float = 0.0
    wall: float = 0.0

    @property
    def share(self) -> float:
        """The part of the tools' time that the model's hid, 0 to 1."""
        return self.both / self.tools if self.tools else 0.0


def measure(spans: Iterable[Span]) -> Overlap:
    """How much model and tools ran at once. Several tools at the same moment count once; waits don't count."""
    spans = tuple(spans)
    if not spans:
        return Overlap()
    # Ends before starts at the same moment, so that spans which only touch do not overlap.
    edges = sorted(
        edge
        for span in spans
        if span.kind != "wait"
        for edge in ((span.start, 1, span.kind), (span.end, -1, span.kind))
    )
    running = {"model": 0, "tool": 0}
    spent = {"model": 0.0, "tool": 0.0, "both": 0.0}
    before = edges[0][0] if edges else 0.0
    for at, change, kind in edges:
        passed = at - before
        before = at
        for name in ("model", "tool"):
            spent[name] += passed if running[name] else 0.0
        spent["both"] += passed if running["model"] and running["tool"] else 0.0
        running[kind] += change
    wall = max(span.end for span in spans) - min(span.start for span in spans)
    return Overlap(model=spent["model"], tools=spent["tool"], both=spent["both"], wall=wall)


def lanes_of(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """The spans of each lane, by start; the model's lane first, the others in the order in which they began."""
    ordered = sorted(spans, key=lambda span: (span.lane != MODEL, span.start))
    lanes: dict[str, list[Span]] = {}
    for span in ordered:
        lanes.setdefault(span.lane, []).append(span)
    return lanes
