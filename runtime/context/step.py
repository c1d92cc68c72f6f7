"""What every step of the pipeline takes and gives. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from ..messages import Message
from ..tokens import Estimates
from ..window import ModelWindow, WindowLevels, levels_of
from .plan import ContextPlan

__all__ = ["ContextLimits", "Moment", "Persist", "Step", "StepResult"]

COMPACTABLE_TOOLS = frozenset(("Read", "Bash", "Grep", "Glob", "WebSearch", "WebFetch", "Edit", "Write"))
"""Their results can be had again, or are of no use once they are old."""


@attrs.frozen(kw_only=True)
class ContextLimits:
    """The bounds of the steps; fixed while a session lasts, since decisions depend on them."""

    results_dir: str
    """The folder that the full texts of results go to."""
    result_chars: int = 50_000
    message_result_chars: int = 200_000
    tool_result_chars: Mapping[str, int | None] = attrs.field(factory=lambda: {"Read": None})
    """Where a tool has a limit of its own; None: not replaced for its own size (its text is in a file already)."""
    compactable_tools: frozenset[str] = COMPACTABLE_TOOLS
    microcompact_gap: float = 3_600.0
    """Seconds since the last response after which the provider's cache is surely cold."""
    microcompact_keep: int = 5
    keep_rounds: int = 10
    """The newest calls, which are neither left out nor collapsed."""
    snip_share: float = 0.6
    """Of the effective window; below it nothing is left out."""
    snip_min_share: float = 0.03
    """What leaving out has to bring, of the effective window, to be worth a new prefix."""
    collapse_part_share: float = 0.15
    """How much of the effective window one collapse takes in."""
    task_list_tools: frozenset[str] = frozenset(("TodoWrite",))


@attrs.frozen(kw_only=True)
class Moment:
    """What holds at this request: how full the window is, its marks, and the time (Unix, in seconds)."""

    tokens: int = 0
    levels: WindowLevels = attrs.field(factory=lambda: levels_of(ModelWindow(tokens=200_000)))
    now: float = 0.0
    last_response_at: float | None = None

    def less(self, tokens: int) -> Moment:
        """After a step has freed so many."""
        return attrs.evolve(self, tokens=max(0, self.tokens - tokens))


@attrs.frozen(kw_only=True)
class Persist:
    """A text that has to be at ``path`` before the request is sent which names it."""

    call_id: str
    path: str
    text: str


@attrs.frozen(kw_only=True)
class StepResult:
    """
    The messages after a step, and what it decided.

    ``freed`` says by message uuid how many (estimated) tokens went away by decisions that are new; what was decided
    at an earlier request isn't freed again.
    """

    messages: tuple[Message, ...]
    plan: ContextPlan
    freed: Mapping[str, int] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()
    persist: tuple[Persist, ...] = ()

    @property
    def freed_tokens(self) -> int:
        """All of it, in estimated tokens; never less than zero."""
        return max(0, sum(self.freed.values()))


class Step(Protocol):
    """
    One of the pipeline's steps: pure, idempotent, never growing the messages' tokens, keeping their order, pairs of
    calls and results, thinking blocks and pinned texts.
    """

    def __call__(
        self,
        messages: Sequence[Message],
        plan: ContextPlan,
        limits: ContextLimits,
        *,
        moment: Moment,
        estimates: Estimates,
    ) -> StepResult: ...
