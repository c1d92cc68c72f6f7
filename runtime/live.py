"""
The live view: what a run does right now, at the foot of a terminal. Calls that have ended scroll by above it.

The state follows the events; drawing is separate, because a terminal may be slow (or stopped) and must not hold up
the event loop: `frame` is taken there, `draw` runs in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import attrs
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from .events import (
    ActivitySummary,
    AssistantBlock,
    Event,
    Heartbeat,
    MessageWithdrawn,
    Notice,
    PermissionDenied,
    RequestStarted,
    ResponseEnded,
    RetryScheduled,
    StallWarning,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    ToolUseSummary,
    TurnEnded,
)
from .messages import Usage
from .narration import call_label, printable, progress_line

__all__ = ["DRAW_EVERY", "Frame", "LiveView"]

DRAW_EVERY: Final = 0.1
"""Seconds between two pictures."""

TEXT_LINES: Final = 4
TOOL_LINES: Final = 8
KEPT_CHARS: Final = 2_000
"""Of the text that is being written; only its last lines are shown."""

SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@attrs.frozen(kw_only=True)
class Frame:
    """One picture: lines that stay, and what replaces the last picture."""

    stay: tuple[Text, ...]
    below: Group


@attrs.define(eq=False)
class _Running:
    label: str
    since: float
    note: str = ""


class LiveView:
    """
    The view of one run.

    Args:
        clean: takes secrets out of a text.
        clock: seconds; only differences count.
    """

    def __init__(self, console: Console, *, clean: Callable[[str], str], clock: Callable[[], float]) -> None:
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._console = console
        self._clean = clean
        self._clock = clock
        self._since = clock()
        self._activity = "starting"
        self._activity_since = self._since
        self._summary = ""
        self._running: dict[str, _Running] = {}
        self._text = ""
        self._usage = Usage()
        self._cost: float | None = 0.0
        self._turn = 0
        self._stay: list[Text] = []
        self._lock = threading.Lock()
        self._closed = False

    # --- state ------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Follow one event."""
        match event:
            case RequestStarted():
                self._turn = event.turn
                self._now(f"waiting for {event.model}")
            case TextDelta():
                self._now("writing")
                self._text = (self._text + event.text)[-KEPT_CHARS:]
            case ThinkingDelta():
                self._now("thinking")
            case AssistantBlock():
                self._text += "\n" if self._text else ""
            case ResponseEnded():
                self._usage += event.message.usage
                known = self._cost is not None and event.cost_usd is not None
                self._cost = (self._cost or 0.0) + (event.cost_usd or 0.0) if known else None
            case ToolStarted():
                self._now("working")
                self._running[event.call_id] = _Running(call_label(event.name, event.input), self._clock())
            case ToolProgress() if event.call_id in self._running:
                self._running[event.call_id].note = event.text
            case ToolEnded():
                self._ended(event)
            case TurnEnded():
                self._text = ""
            case RetryScheduled() | Heartbeat() | StallWarning():
                self._now(progress_line(event) or "waiting")
            case ActivitySummary():
                self._summary = event.text
            case ToolUseSummary():
                self._keep(f"• {event.text}", "dim")
            case PermissionDenied() | MessageWithdrawn() | Notice():
                self._keep(progress_line(event) or "", "yellow")

    def _now(self, activity: str) -> None:
        if activity != self._activity:
            self._activity, self._activity_since = activity, self._clock()

    def _ended(self, event: ToolEnded) -> None:
        running = self._running.pop(event.call_id, None)
        label = running.label if running is not None else event.name
        failed = event.result.is_error
        self._keep(f"{'✗' if failed else '✓'} {label}  {event.duration:.1f} s", "red" if failed else "green")

    def _keep(self, text: str, style: str) -> None:
        self._stay.append(self._styled(text, style))

    def _styled(self, text: str, style: str) -> Text:
        line = " ".join(printable(self._clean(text)).split("\n"))
        return Text(line, style=style, no_wrap=True, overflow="ellipsis")

    # --- pictures ---------------------------------------------------------------------------------

    def frame(self) -> Frame:
        """The picture now. Lines that stay are handed out once."""
        now = self._clock()
        stay, self._stay = tuple(self._stay), []
        spin = SPINNER[int(now / DRAW_EVERY) % len(SPINNER)]
        lines = [self._styled(f"{spin} {self._activity}  {now - self._activity_since:.0f} s", "bold")]
        if self._summary:
            lines.append(self._styled(f"  {self._summary}", "italic"))
        running = list(self._running.values())
        for call in running[:TOOL_LINES]:
            note = f"  {call.note}" if call.note else ""
            lines.append(self._styled(f"  {call.label}  {now - call.since:.1f} s{note}", "cyan"))
        if len(running) > TOOL_LINES:
            lines.append(self._styled(f"  and {len(running) - TOOL_LINES} more", "cyan"))
        lines += [
            self._styled(f"  {line}", "default") for line in self._text.rstrip().split("\n")[-TEXT_LINES:] if line
        ]
        lines.append(self._styled(self._numbers(now), "dim"))
        return Frame(stay=stay, below=Group(*lines))

    def _numbers(self, now: float) -> str:
        usage = self._usage
        cost = "cost unknown" if self._cost is None else f"{self._cost:.4f} USD"
        read = usage.context_tokens - usage.output_tokens
        return (
            f"  turn {self._turn}, {read:,} tokens in, {usage.output_tokens:,} out, {cost}, {now - self._since:.0f} s"
        )

    def draw(self, frame: Frame) -> None:
        """Put a picture on the terminal; nothing once the view is closed. May wait for the terminal."""
        with self._lock:
            if self._closed:
                return
            if not self._live.is_started:
                self._live.start()
            for line in frame.stay:
                self._console.print(line)
            self._live.update(frame.below, refresh=True)

    def close(self) -> None:
        """Take the picture away and let the lines that stay be the last. May be called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._live.is_started:
                self._live.stop()
            for line in self._stay:
                self._console.print(line)
