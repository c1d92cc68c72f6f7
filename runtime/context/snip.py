"""
Step 2: old calls in the middle that say nothing any more are left out as a whole. Pure.

Such are calls that were made again later with the same input, and calls that failed, whose response says nothing
beside. It is done when the window fills up and only if it brings enough, since it changes the prefix.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ..messages import (
    AssistantMessage,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from ..plain_json import json_line
from ..tokens import Estimates
from .pins import protected
from .plan import ContextPlan
from .step import ContextLimits, Moment, StepResult
from .units import covered, units

__all__ = ["snip"]


def snip(
    messages: Sequence[Message],
    plan: ContextPlan,
    limits: ContextLimits,
    *,
    moment: Moment,
    estimates: Estimates,
) -> StepResult:
    """The messages without those that the plan leaves out, and without outdated calls if room is short."""
    full = moment.tokens >= limits.snip_share * moment.levels.effective
    if not (full or plan.snipped or plan.snip_requests):
        return StepResult(messages=tuple(messages), plan=plan)
    kept = protected(messages, limits.task_list_tools)
    # A range that a summary stands for is found by its ends.
    inside = covered(messages, (*plan.staged, *plan.collapses))
    gone = _whole(messages, plan.snipped - kept) if plan.snipped else frozenset[str]()
    asked = _whole(messages, plan.snip_requests - kept - inside)
    new = asked - gone
    if full:
        found = _outdated(messages, kept | inside, limits) - gone
        least = max(1, int(limits.snip_min_share * moment.levels.effective))
        if sum(estimates.of(message) for message in messages if message.uuid in found) >= least:
            new |= found
    decided = attrs.evolve(plan, snipped=plan.snipped | new, snip_requests=frozenset())
    if not gone and not new:
        return StepResult(messages=tuple(messages), plan=decided)
    freed = {message.uuid: estimates.of(message) for message in messages if message.uuid in new}
    shown = tuple(message for message in messages if message.uuid not in gone and message.uuid not in new)
    notes: tuple[str, ...] = ()
    if new:
        notes = (f"{len(new)} messages of old calls were left out (about {sum(freed.values()):,} tokens).",)
    return StepResult(messages=shown, plan=decided, freed=freed, notes=notes)


def _whole(messages: Sequence[Message], named: frozenset[str]) -> frozenset[str]:
    """Of these messages those that no call or result is left without its other half by."""
    if not named:
        return named
    gone: set[str] = set()
    for unit in units(messages):
        uuids = [message.uuid for message in messages[unit.start : unit.end]]
        if named.issuperset(uuids):
            gone.update(uuids)
    return frozenset(gone)


def _outdated(messages: Sequence[Message], kept: frozenset[str], limits: ContextLimits) -> frozenset[str]:
    with_calls = [unit for unit in units(messages) if unit.calls]
    made_later: set[tuple[str, bytes]] = set()
    gone: set[str] = set()
    for number, unit in enumerate(reversed(with_calls)):
        part = messages[unit.start : unit.end]
        calls = _calls(part)
        old = number >= limits.keep_rounds and not any(message.uuid in kept for message in part)
        if old and _says_nothing_else(part) and all(_is_over(call, part, made_later) for call in calls):
            gone.update(message.uuid for message in part)
        made_later.update((call.name, json_line(call.input)) for call in calls if not _failed(call, part))
    return frozenset(gone)


def _calls(part: Sequence[Message]) -> tuple[ToolUseBlock, ...]:
    return tuple(call for message in part if isinstance(message, AssistantMessage) for call in message.tool_uses)


def _says_nothing_else(part: Sequence[Message]) -> bool:
    return not any(
        isinstance(block, TextBlock)
        if isinstance(message, AssistantMessage)
        else not isinstance(block, ToolResultBlock)
        for message in part
        if isinstance(message, AssistantMessage | UserMessage)
        for block in message.content
    )


def _is_over(call: ToolUseBlock, part: Sequence[Message], made_later: set[tuple[str, bytes]]) -> bool:
    if (call.name, json_line(call.input)) in made_later:
        return True
    return _failed(call, part)


def _failed(call: ToolUseBlock, part: Sequence[Message]) -> bool:
    return any(
        isinstance(block, ToolResultBlock) and block.tool_use_id == call.id and block.is_error
        for message in part
        if isinstance(message, UserMessage)
        for block in message.content
    )
