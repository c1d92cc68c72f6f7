"""
What a person wants to know of a run while it goes on, as short plain lines. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from .events import (
    ActivitySummary,
    Event,
    Heartbeat,
    MessageWithdrawn,
    ModelChanged,
    Notice,
    PermissionDenied,
    RequestStarted,
    RetryScheduled,
    RunStarted,
    StallWarning,
    ToolEnded,
    ToolStarted,
    ToolUseSummary,
)
from .result import Result

__all__ = ["call_label", "outcome_line", "printable", "progress_line", "told"]

SHOWN_CHARS: Final = 100
"""Of a call's input: what fits into one line of a terminal."""

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_TELLING: Final = ("command", "file_path", "path", "pattern", "url", "query", "description")
"""Fields that say what a call is about, the most telling first."""


def printable(text: str) -> str:
    """The text without what steers a terminal: a model's or a file's words must not move the cursor."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def call_label(name: str, input: Mapping[str, Any]) -> str:
    """A call in a few words: its tool and what it is about."""
    about = next((input[key] for key in _TELLING if isinstance(input.get(key), str) and input[key]), "")
    about = " ".join(printable(about[: 4 * SHOWN_CHARS]).split())
    if len(about) > SHOWN_CHARS:
        about = f"{about[: SHOWN_CHARS - 3]}..."
    name = printable(name[:SHOWN_CHARS])
    return f"{name}({about})" if about else name


def progress_line(event: Event) -> str | None:
    """One line for the events that are worth one."""
    match event:
        case RunStarted():
            return f"session {event.session_id}, {event.model}, {event.permission_mode}, in {event.cwd}"
        case RequestStarted():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            return f"turn {event.turn}: asking {event.model}{again}"
        case ToolStarted():
            return f"started {call_label(event.name, event.input)}"
        case ToolEnded():
            return f"{'failed' if event.result.is_error else 'ended'} {event.name} after {event.duration:.1f} s"
        case PermissionDenied():
            return f"denied {call_label(event.name, event.input)}: {event.reason}"
        case RetryScheduled():
            of = f" of {event.max_attempts}" if event.max_attempts is not None else ""
            return f"retry {event.attempt}{of} in {event.delay:.1f} s: {event.message}"
        case MessageWithdrawn():
            return f"a response was withdrawn: {event.reason}"
        case Heartbeat():
            return f"waiting for {event.reason}"
        case StallWarning():
            return f"nothing from the model for {event.idle:.0f} s (limit {event.limit:.0f} s)"
        case ModelChanged():
            return f"model {event.new} instead of {event.old}: {event.reason}"
        case ActivitySummary():
            return f"now: {event.text}"
        case ToolUseSummary():
            return f"so far: {event.text}"
        case Notice():
            return f"{event.level}: {event.source}: {event.text}"
        case _:
            return None


def outcome_line(result: Result) -> str:
    """How the run went, in numbers."""
    tokens = result.usage
    turns = f"{result.num_turns} turn{'' if result.num_turns == 1 else 's'}"
    cost = "cost unknown" if result.cost_usd is None else f"{result.cost_usd:.4f} USD"
    read = tokens.context_tokens - tokens.output_tokens
    return f"{turns}, {read:,} tokens in, {tokens.output_tokens:,} out, {cost}, {result.duration:.1f} s"


def told(error: BaseException) -> str:
    """An unexpected error in a few words; of a group, the first one in it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
