"""
The context window's arithmetic: what is reserved, where compaction begins, where a request is refused. Pure.

Both size checks, the one that starts a compaction and the one that refuses, start from the same effective window, so
that no size is too large for the second without the first having acted.
"""

from __future__ import annotations

from enum import Enum

import attrs

__all__ = [
    "UNKNOWN_WINDOW_TOKENS",
    "Level",
    "ModelWindow",
    "WindowChoice",
    "WindowLevels",
    "WindowSettings",
    "choose_window",
    "levels_of",
    "output_room",
]

UNKNOWN_WINDOW_TOKENS = 200_000

SUMMARY_TOKENS = 20_000
"""Reserved for the answer: of all summaries, 99.99 % are shorter than 17,387 tokens."""

AUTOCOMPACT_TOKENS = 13_000
"""A turn's results may come on top before anything is tested again."""

WARNING_TOKENS = 20_000

BLOCKING_TOKENS = 3_000
"""The room in which a compaction's own instructions fit at the hard limit."""

USUAL_EFFECTIVE_TOKENS = 180_000
"""The window these constants are made for; in smaller ones they shrink in proportion."""

SMALLEST_WINDOW_TOKENS = 1_000
SMALLEST_OUTPUT_TOKENS = 1_000

COLLAPSE_SHARE = 0.90
COLLAPSE_BLOCKING_SHARE = 0.95
"""Of the effective window: where collapses are committed, and where they no longer suffice."""


@attrs.frozen(kw_only=True)
class ModelWindow:
    """How large a model's window is. ``known`` is false for the number that stands in for an unknown one."""

    tokens: int
    max_output_tokens: int = 32_000
    known: bool = True


@attrs.frozen(kw_only=True)
class WindowSettings:
    """
    What the user sets: compaction at all, by itself, a smaller window, an earlier start (share of the effective
    window, 0 to 1).
    """

    compact: bool = True
    auto_compact: bool = True
    window_tokens: int | None = None
    auto_share: float | None = None


@attrs.frozen
class WindowChoice:
    """The window to count with. ``note`` is for the user, once for each model: ``told`` goes into the next call."""

    window: ModelWindow
    note: str | None
    told: frozenset[str]


def choose_window(
    model: str, *, tokens: int | None, max_output_tokens: int | None = None, told: frozenset[str] = frozenset()
) -> WindowChoice:
    """The model's window where ``tokens`` is known (catalogue, configuration), else 200,000, which is said once."""
    output = max_output_tokens or 32_000
    if tokens is not None and tokens > 0:
        return WindowChoice(ModelWindow(tokens=tokens, max_output_tokens=output), None, told)
    window = ModelWindow(tokens=UNKNOWN_WINDOW_TOKENS, max_output_tokens=output, known=False)
    if model in told:
        return WindowChoice(window, None, told)
    note = (
        f"The context window of {model} is not known; {UNKNOWN_WINDOW_TOKENS:,} tokens are assumed. "
        "Set the window of this model in the configuration if it is another."
    )
    return WindowChoice(window, note, told | {model})


class Level(Enum):
    """How full a window is, in rising order."""

    NORMAL = "normal"
    WARNING = "warning"
    COMPACT = "compact"
    BLOCKED = "blocked"


@attrs.frozen(kw_only=True)
class WindowLevels:
    """A window's marks, all in tokens: ``auto`` starts a compaction, from ``blocking`` on nothing is sent."""

    window: int
    reserve: int
    effective: int
    auto: int
    warning: int
    blocking: int
    summary_tokens: int
    """What a summary may take."""

    @property
    def collapse(self) -> int:
        """From here on staged collapses are committed."""
        return int(self.effective * COLLAPSE_SHARE)

    @property
    def collapse_blocking(self) -> int:
        """From here on a full compaction runs although collapses are in use."""
        return int(self.effective * COLLAPSE_BLOCKING_SHARE)

    def level(self, tokens: int) -> Level:
        """Where so many tokens stand."""
        if tokens >= self.blocking:
            return Level.BLOCKED
        if tokens >= self.auto:
            return Level.COMPACT
        return Level.WARNING if tokens >= self.warning else Level.NORMAL


def levels_of(
    window: ModelWindow, settings: WindowSettings | None = None, *, max_tokens: int | None = None
) -> WindowLevels:
    """
    The marks of a window. ``max_tokens`` is the output cap of the requests, where it is more than is reserved anyway:
    the API counts it against the window, whether it is used or not.
    """
    settings = settings or WindowSettings()
    total = max(SMALLEST_WINDOW_TOKENS, min(window.tokens, settings.window_tokens or window.tokens))
    summary = min(window.max_output_tokens, SUMMARY_TOKENS, total // 2)
    # The API's limit is the model's window, whatever smaller one the user compacts by.
    spare = max(0, window.tokens - total)
    reserve = min(max(summary, min(max_tokens or 0, window.max_output_tokens) - spare), total // 2)
    effective = total - reserve
    scale = min(1.0, effective / USUAL_EFFECTIVE_TOKENS)
    auto = effective - int(AUTOCOMPACT_TOKENS * scale)
    if settings.auto_share is not None:
        auto = min(auto, int(effective * max(0.0, settings.auto_share)))
    return WindowLevels(
        window=total,
        reserve=reserve,
        effective=effective,
        auto=auto,
        warning=max(0, auto - int(WARNING_TOKENS * scale)),
        blocking=effective - int(BLOCKING_TOKENS * scale),
        summary_tokens=summary,
    )


def output_room(window: ModelWindow, tokens: int, wanted: int) -> int:
    """The output cap to send, for a context of ``tokens``: ``wanted`` or what is left, at least 1,000."""
    return max(SMALLEST_OUTPUT_TOKENS, min(wanted, window.max_output_tokens, window.tokens - tokens))
