"""
Step 4: ranges of the history for which a summary lies ready are shown as that summary. Pure.

The summaries are made in the background, before room is short (`next_range` says of what), and committed when it is.
The history itself keeps everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from ..messages import Message, TextBlock, UserMessage
from ..tokens import Estimates
from .pins import protected
from .plan import Collapse, ContextPlan
from .step import ContextLimits, Moment, StepResult
from .units import covered, units

__all__ = ["collapse", "next_range"]


@attrs.frozen
class _Range:
    start: int
    end: int
    shown: tuple[Message, ...]
    """The summary, then what is pinned."""
    freed: Mapping[str, int]


def collapse(
    messages: Sequence[Message],
    plan: ContextPlan,
    limits: ContextLimits,
    *,
    moment: Moment,
    estimates: Estimates,
) -> StepResult:
    """
    Committed summaries in place of their ranges. Near the limit staged ones are committed, oldest first, until it is
    far enough; a summary that would save nothing, or whose range is no longer whole, is dropped.
    """
    staged, committed = plan.staged, plan.collapses
    if not staged and not committed:
        return StepResult(messages=tuple(messages), plan=attrs.evolve(plan, draining=False))
    index = {message.uuid: position for position, message in enumerate(messages)}
    pinned = protected(messages, limits.task_list_tools)
    ranges: list[_Range] = []
    kept: list[Collapse] = []
    for item in committed:
        # One that isn't there was put in by an earlier pass over the same messages.
        found = _find(item, messages, index, pinned, estimates, ranges)
        kept.append(item)
        if found is not None:
            ranges.append(found)
    tokens, freed, notes = moment.tokens, dict[str, int](), list[str]()
    while staged and (plan.draining or tokens >= moment.levels.collapse):
        item, staged = staged[0], staged[1:]
        found = _find(item, messages, index, pinned, estimates, ranges)
        if found is None or sum(found.freed.values()) <= 0:
            notes.append("A summary was dropped: its part is no longer there as a whole, or is shorter.")
            continue
        ranges.append(found)
        kept.append(item)
        freed.update(found.freed)
        tokens -= sum(found.freed.values())
        notes.append(f"{found.end - found.start} messages are now shown as their summary.")
    return StepResult(
        messages=_shown(messages, ranges),
        plan=attrs.evolve(plan, staged=staged, collapses=tuple(kept), draining=False),
        freed=freed,
        notes=tuple(notes),
    )


def _find(
    item: Collapse,
    messages: Sequence[Message],
    index: Mapping[str, int],
    pinned: frozenset[str],
    estimates: Estimates,
    taken: Sequence[_Range],
) -> _Range | None:
    """The range, if it is there as a whole and overlaps no other."""
    start, last = index.get(item.first_uuid), index.get(item.last_uuid)
    if start is None or last is None or last < start:
        return None
    end = last + 1
    if any(start < other.end and other.start < end for other in taken):
        return None
    # Only units at the edges could be torn.
    if _tears(messages, start) or _tears(messages, end):
        return None
    hidden = [message for message in messages[start:end] if message.uuid not in pinned]
    if not hidden:
        return None
    summary = _summary(item)
    freed = {message.uuid: estimates.of(message) for message in hidden}
    cost = estimates.of(summary)
    freed[summary.uuid] = -cost
    rest = tuple(message for message in messages[start:end] if message.uuid in pinned)
    return _Range(start, end, (summary, *rest), freed)


def _tears(messages: Sequence[Message], at: int) -> bool:
    """A unit begins before ``at`` and goes on after it."""
    begin = max(0, at - 8)
    return any(begin + unit.start < at < begin + unit.end for unit in units(messages[begin : at + 8]))


def _summary(item: Collapse) -> UserMessage:
    text = f"[An earlier part of this conversation, summarised to save room:]\n{item.summary}"
    return UserMessage(uuid=f"{item.first_uuid}-collapse", content=(TextBlock(text),), origin="attachment", hidden=True)


def _shown(messages: Sequence[Message], ranges: Sequence[_Range]) -> tuple[Message, ...]:
    shown: list[Message] = []
    at = 0
    for part in sorted(ranges, key=lambda part: part.start):
        shown += messages[at : part.start]
        shown += part.shown
        at = part.end
    return (*shown, *messages[at:])


def next_range(
    messages: Sequence[Message],
    plan: ContextPlan,
    limits: ContextLimits,
    *,
    moment: Moment,
    estimates: Estimates,
) -> tuple[str, str] | None:
    """
    The first and last uuid of the oldest part that should be summarised next, in the background: whole units, before
    the newest ones, with nothing pinned in it and in no other range; None if there is too little.
    """
    parts = list(units(messages))
    calls = [unit for unit in parts if unit.calls]
    if len(calls) <= limits.keep_rounds:
        return None
    until = calls[-limits.keep_rounds].start
    pinned = protected(messages, limits.task_list_tools)
    busy = covered(messages, (*plan.staged, *plan.collapses))
    wanted = int(limits.collapse_part_share * moment.levels.effective)
    first: int | None = None
    size = 0
    for unit in parts:
        part = messages[unit.start : unit.end]
        if unit.end > until:
            return None
        if any(message.uuid in pinned or message.uuid in busy for message in part):
            first, size = None, 0
            continue
        first = unit.start if first is None else first
        size += estimates.total(part)
        if size >= wanted:
            return messages[first].uuid, messages[unit.end - 1].uuid
    return None
