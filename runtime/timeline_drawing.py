"""
Pictures of spans: bars for a terminal, and a self-contained SVG. Pure.

Labels come from models and files: terminal control characters and what XML forbids are taken out of them.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from .spans import Kind, Overlap, Span, lanes_of, measure

__all__ = ["render_svg", "render_text"]

MAX_LANES: Final = 40
"""Lanes of a picture; those beyond are counted only: nobody reads more, and a run may have thousands of calls."""

NAME_COLUMNS: Final = 30
LEAST_COLUMNS: Final = 40
"""A narrower terminal gets lines this wide, which it may wrap."""

TICK_EVERY: Final = 12
"""About so many columns lie between two marks of the time axis."""

BARS: Final[dict[Kind, str]] = {"model": "█", "tool": "▓", "wait": "·"}
FAILED_BAR: Final = "▒"
SEAM: Final = "▌"
"""Ends a request's bar where the next one begins at once."""

LANE_HEIGHT: Final = 24
SVG_NAME_WIDTH: Final = 300
SVG_PLOT_WIDTH: Final = 800
SVG_TOP: Final = 56
SVG_FOOT: Final = 52
COLOURS: Final[dict[Kind, str]] = {"model": "#4878a8", "tool": "#5a9a5a", "wait": "#c8c8c8"}
FAILED_COLOUR: Final = "#c0504d"

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# --- for a terminal -------------------------------------------------------------------------------


def render_text(spans: Sequence[Span], *, width: int = 100) -> str:
    """The spans as bars over a time axis, ``width`` columns wide at most (at least 40), and the overlap in words."""
    if not spans:
        return "nothing ran"
    width = max(width, LEAST_COLUMNS)
    lanes = lanes_of(spans)
    names = min(NAME_COLUMNS, width // 3, max(columns(printable(name)) for name in lanes))
    first = min(span.start for span in spans)
    scale = _Scale(first, max(span.end for span in spans), width - names - 1)
    lines = [f"{fit(name, names)} {scale.bars(lanes[name])}".rstrip() for name in list(lanes)[:MAX_LANES]]
    if len(lanes) > MAX_LANES:
        lines.append(f"… and {len(lanes) - MAX_LANES} more")
    axis, numbers = scale.axis()
    lines += [f"{'':{names}} {axis}", f"{'seconds':>{names}.{names}} {numbers}".rstrip()]
    legend = f" {FAILED_BAR} ended without success." if any(span.failed for span in spans) else ""
    return "\n".join([*lines, *_wrapped(in_words(measure(spans)) + legend, width)])


def in_words(overlap: Overlap) -> str:
    """The overlap as a sentence or two."""
    ran = f"The model ran for {overlap.model:.2f} s, tools for {overlap.tools:.2f} s, all in {overlap.wall:.2f} s."
    if not overlap.tools:
        return ran
    return f"{ran} Both at once: {overlap.both:.2f} s, {overlap.share:.0%} of the tools' time."


class _Scale:
    """Seconds to columns."""

    def __init__(self, first: float, last: float, width: int) -> None:
        self.first = first
        self.width = width
        self.length = max(last - first, 1e-6)

    def column(self, at: float) -> int:
        return min(self.width - 1, max(0, int((at - self.first) / self.length * self.width)))

    def bars(self, spans: Sequence[Span]) -> str:
        cells = [" "] * self.width
        for span in spans:
            start = self.column(span.start)
            # What ended within a column leaves it to the next one, but each span shows as one column at least.
            end = max(start + 1, math.ceil((span.end - self.first) / self.length * self.width - 0.5))
            bar = FAILED_BAR if span.failed else BARS[span.kind]
            if start and cells[start - 1] == BARS["model"]:
                cells[start - 1] = SEAM
            for cell in range(start, min(end, self.width)):
                cells[cell] = bar
        return "".join(cells).rstrip()

    def axis(self) -> tuple[str, str]:
        line, numbers = ["─"] * self.width, [" "] * (self.width + 8)
        for tick in ticks(self.length, self.width // TICK_EVERY):
            column = self.column(self.first + tick)
            text = f"{tick:g}"
            line[column] = "┴"
            if column + len(text) <= self.width:
                numbers[column : column + len(text)] = text
        return "".join(line), "".join(numbers).rstrip()


def ticks(length: float, most: int) -> Iterator[float]:
    """At most ``most`` + 1 round numbers (1, 2 or 5 times a power of ten) that divide 0 to ``length``."""
    least = length / max(1, most)
    power = 10.0 ** math.floor(math.log10(least))
    step = next((factor * power for factor in (1, 2, 5) if factor * power >= least), 10 * power)
    for number in range(math.floor(length / step + 1e-9) + 1):
        yield number * step


def printable(text: str) -> str:
    """``text`` without what steers a terminal."""
    return "".join(char if char.isprintable() else "�" for char in text)


def columns(text: str) -> int:
    """How many columns a terminal uses for ``text``."""
    return sum(_columns_of(char) for char in text)


def _columns_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, width: int) -> str:
    """``text``, printable, in exactly ``width`` columns: filled up, or cut with an ellipsis."""
    text = printable(text)
    if columns(text) > width:
        while text and columns(text) > width - 1:
            text = text[:-1]
        text += "…"
    return text + " " * (width - columns(text))


def _wrapped(text: str, width: int) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    yield line


# --- SVG ------------------------------------------------------------------------------------------


def render_svg(spans: Sequence[Span], *, title: str) -> str:
    """The spans as one SVG document: a lane a row, a time axis, the overlap in words. It refers to nothing outside."""
    lanes = dict(list(lanes_of(spans).items())[:MAX_LANES])
    overlap = measure(spans)
    first = min((span.start for span in spans), default=0.0)
    scale = SVG_PLOT_WIDTH / max(overlap.wall, 1e-6)
    bottom = SVG_TOP + LANE_HEIGHT * len(lanes)
    width, height = SVG_NAME_WIDTH + SVG_PLOT_WIDTH + 40, bottom + SVG_FOOT
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f"<title>{xml(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="28" font-size="17">{xml(title)}</text>',
        *_svg_axis(max(overlap.wall, 1e-6), scale, bottom),
    ]
    for row, (name, lane) in enumerate(lanes.items()):
        lines += _svg_lane(name, lane, SVG_TOP + row * LANE_HEIGHT, first, scale)
    lines += [f'<text x="12" y="{height - 10}">{xml(in_words(overlap))}</text>', "</svg>"]
    return "\n".join(lines) + "\n"


def _svg_axis(length: float, scale: float, bottom: int) -> Iterator[str]:
    for tick in ticks(length, 10):
        x = SVG_NAME_WIDTH + tick * scale
        yield f'<line x1="{x:.1f}" y1="{SVG_TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="#dddddd"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#555555">{tick:g} s</text>'


def _svg_lane(name: str, spans: Sequence[Span], y: int, first: float, scale: float) -> Iterator[str]:
    short = name if len(name) <= 42 else f"{name[:41]}…"
    yield f'<text x="12" y="{y + 16}">{xml(short)}</text>'
    for span in spans:
        x = SVG_NAME_WIDTH + (span.start - first) * scale
        colour = FAILED_COLOUR if span.failed else COLOURS[span.kind]
        # A call of a millisecond is still a line that one can see.
        yield (
            f'<rect x="{x:.1f}" y="{y + 3}" width="{max(1.5, span.duration * scale):.1f}" height="{LANE_HEIGHT - 8}" '
            f'fill="{colour}"><title>{xml(f"{span.label}: {span.start:.3f} to {span.end:.3f} s")}</title></rect>'
        )


def xml(text: str) -> str:
    """``text`` as XML content; what XML can't hold at all becomes U+FFFD."""
    return escape(_NOT_XML.sub("�", text))
