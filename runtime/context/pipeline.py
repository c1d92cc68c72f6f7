"""
The view of a history that a request sends: the steps one after the other, each told what the ones before freed. Pure.

It runs before every request; what a turn costs depends on what is new and on what is after the last boundary, never
on what lies before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import attrs

from ..messages import Message
from ..tokens import MARGIN, Estimates, measure
from ..window import WindowLevels
from .collapse import collapse
from .microcompact import microcompact
from .plan import ContextPlan
from .rebuild import after_boundary, measured_since
from .snip import snip
from .step import ContextLimits, Moment, Persist, Step
from .tool_budget import budget_results

__all__ = ["STEPS", "Projection", "project"]

STEPS: Mapping[str, Step] = {
    "tool_budget": budget_results,
    "snip": snip,
    "microcompact": microcompact,
    "collapse": collapse,
}
"""In their order: from what loses nothing to what loses most. The fifth, a full compaction, changes the history."""


@attrs.frozen(kw_only=True)
class Projection:
    """What to send, and what was decided for it. ``persist`` has to be written before it is sent."""

    messages: tuple[Message, ...]
    plan: ContextPlan
    tokens: int
    """How full the context is with these messages: what decisions go by."""
    estimated: int
    """The raw estimate of the whole request, for `Calibration.observed` against what the server reports."""
    freed: Mapping[str, int] = attrs.field(factory=dict)
    """By step: tokens (calibrated) that new decisions took away."""
    persist: tuple[Persist, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def prefix_broken(self) -> bool:
        """A step changed what was sent before, so the provider's cache of it is lost."""
        return any(tokens > 0 for step, tokens in self.freed.items() if step != "tool_budget")


def project(
    history: Sequence[Message],
    plan: ContextPlan,
    *,
    limits: ContextLimits,
    levels: WindowLevels,
    estimates: Estimates,
    overhead: int = 0,
    ratio: float = 1.0,
    now: float = 0.0,
    last_response_at: float | None = None,
) -> Projection:
    """
    The messages of the next request.

    ``overhead`` is the raw estimate of what is sent beside them (system prompt, tools, user context), ``ratio`` the
    model's calibration; ``now`` and ``last_response_at`` are Unix times. ``estimates`` is kept from call to call.
    """
    messages = after_boundary(history)
    quiet = _run(messages, plan, limits, Moment(levels=levels), estimates)
    size = measure(
        quiet.messages, overhead=overhead, ratio=ratio, estimate=estimates.of, since=measured_since(quiet.messages)
    )
    # The server's number covers what stands up to its response; nothing behind it was ever in that number.
    seen = {message.uuid for message in quiet.messages[: size.anchor + 1]} if size.anchor is not None else set()
    tokens = max(0, size.tokens - _off(quiet.freed_by_uuid, seen, ratio))
    moment = Moment(tokens=tokens, levels=levels, now=now, last_response_at=last_response_at)
    done = quiet
    if _may_act(moment, quiet.plan, limits):
        done = _run(messages, quiet.plan, limits, moment, estimates, ratio)
        tokens = max(0, tokens - _off(done.freed_by_uuid, None, ratio))
    estimates.forget_others(messages)
    freed = {name: round(ratio * max(quiet.freed[name], done.freed[name])) for name in STEPS}
    return Projection(
        messages=done.messages,
        plan=done.plan,
        tokens=tokens,
        estimated=overhead + estimates.total(done.messages),
        freed=freed,
        persist=quiet.persist,
        notes=quiet.notes if done is quiet else quiet.notes + done.notes,
    )


@attrs.frozen(kw_only=True)
class _Pass:
    messages: tuple[Message, ...]
    plan: ContextPlan
    freed: Mapping[str, int]
    freed_by_uuid: Mapping[str, int]
    persist: tuple[Persist, ...]
    notes: tuple[str, ...]


def _run(
    messages: tuple[Message, ...],
    plan: ContextPlan,
    limits: ContextLimits,
    moment: Moment,
    estimates: Estimates,
    ratio: float = 1.0,
) -> _Pass:
    freed: dict[str, int] = {}
    by_uuid: dict[str, int] = {}
    persist: tuple[Persist, ...] = ()
    notes: tuple[str, ...] = ()
    for name, step in STEPS.items():
        result = step(messages, plan, limits, moment=moment, estimates=estimates)
        messages, plan = result.messages, result.plan
        persist, notes = persist + result.persist, notes + result.notes
        freed[name] = result.freed_tokens
        for uuid, tokens in result.freed.items():
            by_uuid[uuid] = by_uuid.get(uuid, 0) + tokens
        moment = moment.less(_off(result.freed, None, ratio))
    return _Pass(messages=messages, plan=plan, freed=freed, freed_by_uuid=by_uuid, persist=persist, notes=notes)


def _may_act(moment: Moment, plan: ContextPlan, limits: ContextLimits) -> bool:
    """A step beyond the first could decide something now: without that, a second pass would only cost time."""
    gap = moment.now - moment.last_response_at if moment.last_response_at is not None else 0.0
    return (
        moment.tokens >= limits.snip_share * moment.levels.effective
        or (bool(plan.staged) and moment.tokens >= moment.levels.collapse)
        or gap > limits.microcompact_gap
    )


def _off(freed: Mapping[str, int], seen: Collection[str] | None, ratio: float) -> int:
    """What freed tokens take off a measurement: on the safe side, and only of what was measured (``seen``)."""
    return round(sum(n for uuid, n in freed.items() if seen is None or uuid in seen) * ratio * (1 - MARGIN))
