"""
Step 1: results that are too long are kept in files, and the model gets their beginning. Pure.

A result is decided on once, when it is new. Whoever calls writes the texts of ``persist`` before the request goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from ..messages import Message, TextBlock, ToolResultBlock, UserMessage
from ..preview import preview, result_file_name
from ..tokens import Estimates, estimate_text
from .plan import ContextPlan
from .step import ContextLimits, Moment, Persist, StepResult
from .units import call_names, replace_results, result_chars

__all__ = ["budget_results"]

SMALLEST_CHARS = 4_000
"""A preview of less than this would save next to nothing."""


def budget_results(
    messages: Sequence[Message],
    plan: ContextPlan,
    limits: ContextLimits,
    *,
    moment: Moment,
    estimates: Estimates,
) -> StepResult:
    """
    No new result over its tool's limit, and no new message over 200,000 characters of results, as far as files can
    help: of a message too large the largest results go first, those of tools without a limit last.
    """
    start = _first_undecided(messages, plan)
    persist = _decide(messages, start, plan, limits)
    new = {item.call_id: preview(item.text, path=item.path) for item in persist}
    persisted = {**plan.persisted, **new} if new else plan.persisted
    freed: dict[str, int] = {}
    shown = list(messages)
    if persisted:
        shown = [replace_results(message, persisted, media=False, estimates=estimates) for message in messages]
    for index in range(start, len(messages)) if new else ():
        if shown[index] is not messages[index]:
            freed[messages[index].uuid] = estimates.of(messages[index]) - estimates.of(shown[index])
    through = messages[-1].uuid if messages else plan.budgeted_through
    return StepResult(
        messages=tuple(shown),
        plan=attrs.evolve(plan, persisted=persisted, budgeted_through=through),
        freed=freed,
        notes=tuple(
            f"The output of call {item.call_id} ({len(item.text):,} characters) is in a file." for item in persist
        ),
        persist=persist,
    )


def _first_undecided(messages: Sequence[Message], plan: ContextPlan) -> int:
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].uuid == plan.budgeted_through:
            return index + 1
    return 0


def _decide(messages: Sequence[Message], start: int, plan: ContextPlan, limits: ContextLimits) -> tuple[Persist, ...]:
    # A response may have been decided on while its calls were still open.
    names = call_names(messages[max(0, start - 10) :])
    chosen: list[Persist] = []
    for message in messages[start:]:
        if isinstance(message, UserMessage) and not message.pinned:
            chosen += _choose(message, names, plan, limits)
    return tuple(chosen)


def _choose(message: UserMessage, names: Mapping[str, str], plan: ContextPlan, limits: ContextLimits) -> list[Persist]:
    open_results: list[tuple[bool, int, Persist]] = []
    chosen: list[Persist] = []
    total = 0
    for block in message.content:
        if not isinstance(block, ToolResultBlock) or block.tool_use_id in plan.persisted:
            continue
        chars = result_chars(block)
        total += chars
        if chars < SMALLEST_CHARS or (item := _persist(block, limits)) is None:
            continue
        limit = limits.tool_result_chars.get(names.get(block.tool_use_id, ""), limits.result_chars)
        if limit is not None and chars > limit:
            chosen.append(item)
            total -= chars
        else:
            open_results.append((limit is not None, chars, item))
    for _, chars, item in sorted(open_results, key=lambda entry: entry[:2], reverse=True):
        if total <= limits.message_result_chars:
            break
        chosen.append(item)
        total -= chars
    return chosen


def _persist(block: ToolResultBlock, limits: ContextLimits) -> Persist | None:
    """What would be written, if the preview is shorter than what it stands for."""
    parts = block.content if isinstance(block.content, tuple) else (TextBlock(block.content),)
    text = "\n".join(part.text for part in parts if isinstance(part, TextBlock))
    path = f"{limits.results_dir.rstrip('/')}/{result_file_name(block.tool_use_id)}"
    if estimate_text(preview(text, path=path)) >= sum(estimate_text(p.text) for p in parts if isinstance(p, TextBlock)):
        return None
    return Persist(call_id=block.tool_use_id, path=path, text=text)
