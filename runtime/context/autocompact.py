"""
Step 5, the decision: whether the history is to be replaced by a summary now, and whether a request may still go. Pure.

A decision goes by measured sizes only: never by what the last message is, and never by tokens summed up over the
session.
"""

from __future__ import annotations

from enum import Enum

import attrs

from ..window import Level, WindowLevels, WindowSettings

__all__ = ["EXEMPT_SOURCES", "CompactHistory", "CompactVerdict", "Verdict", "autocompact", "is_blocked"]

MAX_FAILURES = 3
"""Failed compactions in a row after which none is tried by itself any more."""

RAPID_TURNS = 3
MAX_RAPID = 3
"""Compactions that each came within so many turns of the one before, after which something is wrong."""

SMALLEST_GAIN_SHARE = 0.1
"""Of the effective window. A compaction that can't bring this much is followed by the next one at once."""

USUAL_SUMMARY_TOKENS = 4_000

EXEMPT_SOURCES = frozenset(("compact", "session_memory", "collapse"))
"""Requests that make room themselves; they would wait for themselves."""


class Verdict(Enum):
    """What is to be done about the size of the context."""

    NOT_NEEDED = "not_needed"
    COMPACT = "compact"
    OFF = "off"
    """It would be needed; the user or the kind of request rules it out."""
    BROKEN = "broken"
    """It failed too often; a compaction by hand resets this."""
    RAPID_REFILL = "rapid_refill"
    """The context was full again at once, several times."""
    NO_ROOM = "no_room"
    """What can't be compacted fills the window by itself."""


@attrs.frozen
class CompactVerdict:
    """The verdict, and what to tell the user where something keeps a needed compaction from running."""

    verdict: Verdict
    note: str | None = None


@attrs.frozen(kw_only=True)
class CompactHistory:
    """What happened with compactions so far in this session; turns are counted over the whole session."""

    last_turn: int | None = None
    failures: int = 0
    rapid: int = 0

    def succeeded(self, turn: int, *, manual: bool = False) -> CompactHistory:
        """After a compaction. By hand, all is forgiven."""
        quick = not manual and self.last_turn is not None and turn - self.last_turn <= RAPID_TURNS
        return CompactHistory(last_turn=turn, rapid=self.rapid + 1 if quick else 0)

    def failed(self) -> CompactHistory:
        """After one that brought no summary."""
        return attrs.evolve(self, failures=self.failures + 1)


def autocompact(
    tokens: int,
    levels: WindowLevels,
    history: CompactHistory,
    *,
    turn: int,
    fixed_tokens: int = 0,
    settings: WindowSettings | None = None,
    source: str = "main",
    collapsing: bool = False,
) -> CompactVerdict:
    """
    Whether to compact before this request.

    ``fixed_tokens`` is what stays whatever is done: system prompt, tools, pinned texts. With ``collapsing`` (the
    lighter way of step 4 in use) a full compaction waits until that no longer suffices.
    """
    settings = settings or WindowSettings()
    if tokens < (max(levels.auto, levels.collapse_blocking) if collapsing else levels.auto):
        return CompactVerdict(Verdict.NOT_NEEDED)
    if source in EXEMPT_SOURCES:
        return CompactVerdict(Verdict.OFF)
    if not settings.compact or not settings.auto_compact:
        return CompactVerdict(Verdict.OFF, "The context is nearly full and automatic compaction is off: use /compact.")
    if history.failures >= MAX_FAILURES:
        note = f"Compaction failed {history.failures} times in a row; /compact tries again."
        return CompactVerdict(Verdict.BROKEN, note)
    if no_room := _no_room(tokens, levels, fixed_tokens):
        return CompactVerdict(Verdict.NO_ROOM, no_room)
    if history.rapid >= MAX_RAPID and history.last_turn is not None and turn - history.last_turn <= RAPID_TURNS:
        note = (
            f"The context was full again within {RAPID_TURNS} turns of a compaction, {history.rapid} times in a row: "
            "single results or files are too large for this window. Read less at once, or use /compact."
        )
        return CompactVerdict(Verdict.RAPID_REFILL, note)
    return CompactVerdict(Verdict.COMPACT)


def _no_room(tokens: int, levels: WindowLevels, fixed_tokens: int) -> str | None:
    summary = min(USUAL_SUMMARY_TOKENS, levels.summary_tokens // 2)
    if tokens - fixed_tokens - summary >= SMALLEST_GAIN_SHARE * levels.effective:
        return None
    return (
        f"No room can be made: system prompt, tools and pinned texts take {fixed_tokens:,} of {levels.effective:,} "
        "usable tokens. Use fewer tools or shorter instructions, or a model with a larger window."
    )


def is_blocked(
    tokens: int,
    levels: WindowLevels,
    verdict: Verdict,
    *,
    source: str = "main",
    just_compacted: bool = False,
    room_can_be_made: bool = False,
) -> bool:
    """
    Whether a request of so many tokens is refused before it is sent: at the hard limit, where no compaction will run.

    Exempt are requests that make room themselves, the one right after a compaction (its size is a mere estimate), and
    any for which room can still be made when the server refuses it (collapses staged, reactive compaction to come).
    """
    if verdict in (Verdict.COMPACT, Verdict.NOT_NEEDED):
        return False
    exempt = source in EXEMPT_SOURCES or just_compacted or room_can_be_made
    return not exempt and levels.level(tokens) is Level.BLOCKED
