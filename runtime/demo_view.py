"""
How the demo shows a run: one line for what a person wants to follow, with the second it came at. Pure.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Final

import attrs

from .demo_script import PROMPT
from .events import (
    AssistantBlock,
    Event,
    Notice,
    PermissionDenied,
    RequestStarted,
    ResponseEnded,
    RetryScheduled,
    RunEnded,
    RunStarted,
    ToolEnded,
    ToolStarted,
)
from .messages import TextBlock, ToolResultBlock
from .timeline_drawing import columns, fit, printable

__all__ = ["DemoView"]

BOLD: Final = "1"
DIM: Final = "2"
RED: Final = "31"
GREEN: Final = "32"
BLUE: Final = "34"

LABEL_WIDTH: Final = 17
"""Columns of the time and of the word that says what a line is."""

SUBJECTS: Final = {"Grep": "pattern", "Bash": "command"}
"""The input that says what a call is about; for the file tools it is the path."""


@attrs.define
class DemoView:
    """
    Writes events as lines, at most ``width`` columns wide. ``colour``: with the escape sequences of a terminal.

    What ``write`` raises goes up.
    """

    write: Callable[[str], object]
    width: int = 100
    colour: bool = False
    _origin: float | None = attrs.field(init=False, default=None)
    _streaming: bool = attrs.field(init=False, default=False)

    def take(self, event: Event, at: float) -> None:
        """Show ``event``, which came at ``at`` seconds."""
        if self._origin is None:
            self._origin = at
        now = at - self._origin
        match event:
            case RunStarted():
                self._line(now, "prompt", PROMPT, BOLD)
            case RequestStarted():
                self._streaming = True
            case ResponseEnded():
                self._streaming = False
            case AssistantBlock(block=TextBlock(text)):
                self._line(now, "model", text, BLUE)
            case ToolStarted():
                where = "  (the model still streams)" if self._streaming else ""
                self._line(now, "  start", f"{event.name} {_subject(event)}", keep=where)
            case ToolEnded():
                self._ended(now, event)
            case PermissionDenied():
                self._line(now, "  denied", f"{event.name}: {event.reason}", RED)
            case RetryScheduled():
                self._streaming = False
                self._line(now, "retry", f"in {event.delay:.1f} s: {event.message}", RED)
            case Notice():
                self._line(now, event.level, f"{event.source}: {event.text}", RED)
            case RunEnded():
                style = GREEN if event.result.is_success else RED
                end = f"{event.result.terminal_reason} after {event.result.num_turns} turns"
                self._line(now, "end", ". ".join((end, *event.result.errors)), style)
            case _:
                pass

    def note(self, text: str = "", style: str = "") -> None:
        """Lines of our own, as they are."""
        self.write(self._styled(text, style) + "\n")

    def _ended(self, now: float, event: ToolEnded) -> None:
        failed = event.result.is_error
        took = f"  ({event.duration * 1000:.0f} ms)"
        self._line(
            now, "  failed" if failed else "  done", f"{event.name}: {_gist(event)}", RED if failed else DIM, took
        )

    def _line(self, now: float, what: str, text: str, style: str = "", keep: str = "") -> None:
        """One line; long ones are wrapped for the model's words and cut else. ``keep`` stands behind what was cut."""
        label = f"{now:6.2f}  {what:<9}"
        room = max(20, self.width - LABEL_WIDTH - columns(keep))
        flat = printable(" ".join(text.split()))
        for number, part in enumerate(_wrap(flat, room) if what in ("model", "prompt") else [_cut(flat, room)]):
            head = self._styled(label, DIM) if number == 0 else " " * LABEL_WIDTH
            self.write(f"{head}{self._styled(part, style)}{self._styled(keep, DIM)}\n")

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.colour and style and text else text


def _subject(event: ToolStarted) -> str:
    subject = event.input.get(SUBJECTS.get(event.name, "file_path"), "")
    if not isinstance(subject, str):
        return ""
    # Where the interpreter lies says nothing here, and is long.
    return subject.replace(shlex.quote(sys.executable), "python", 1) if event.name == "Bash" else subject


def _gist(event: ToolEnded) -> str:
    """The line of a result that says most: a test run's verdict, a complaint, or how many lines there are."""
    lines = [line.strip() for line in _text_of(event.result).splitlines() if line.strip()]
    if not lines:
        return "no output"
    if event.name == "Bash":
        verdicts = [line for line in lines if line.startswith(("OK", "FAILED", "Ran "))]
        return ", ".join(verdicts) or lines[-1]
    if event.result.is_error or len(lines) == 1:
        return lines[0]
    return f"{len(lines)} lines"


def _text_of(result: ToolResultBlock) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(block.text for block in result.content if isinstance(block, TextBlock))


def _cut(text: str, width: int) -> str:
    return fit(text, width).rstrip()


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".strip()
        if lines[-1] and columns(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines
