"""
Step 3: after a long pause old results of tools are emptied, as the provider's cache is cold anyway. Pure.

Beside it, the API's own clearing, for providers that have it: it happens on the server and changes nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ..messages import JsonObject, Message, ToolResultBlock, UserMessage
from ..tokens import Estimates, estimate_block
from .pins import protected
from .plan import ContextPlan
from .step import ContextLimits, Moment, StepResult
from .units import call_names, covered, replace_results

__all__ = ["CLEARED", "context_management", "microcompact"]

CLEARED = "[Old tool result content cleared]"

API_TRIGGER_TOKENS = 180_000
API_KEPT_TOKENS = 40_000
API_CLEARS = ("Bash", "Glob", "Grep", "Read", "WebFetch", "WebSearch")


def microcompact(
    messages: Sequence[Message],
    plan: ContextPlan,
    limits: ContextLimits,
    *,
    moment: Moment,
    estimates: Estimates,
) -> StepResult:
    """All but the newest results of `ContextLimits.compactable_tools` emptied, if the last response is long ago."""
    new = _to_clear(messages, plan, limits) if _is_cold(moment, limits) else frozenset[str]()
    cleared = plan.cleared | new
    if not cleared:
        return StepResult(messages=tuple(messages), plan=plan)
    texts = dict.fromkeys(cleared, CLEARED)
    shown = tuple(replace_results(message, texts, media=True, estimates=estimates) for message in messages)
    freed: dict[str, int] = {}
    old = dict.fromkeys(plan.cleared, CLEARED)
    for message, changed in zip(messages, shown, strict=True) if new else ():
        if changed is not message:
            before = replace_results(message, old, media=True, estimates=estimates)
            freed[message.uuid] = estimates.of(before) - estimates.of(changed)
    notes = (f"After a pause, the results of {len(new)} old calls were cleared.",) if new else ()
    return StepResult(messages=tuple(shown), plan=attrs.evolve(plan, cleared=cleared), freed=freed, notes=notes)


def _is_cold(moment: Moment, limits: ContextLimits) -> bool:
    return moment.last_response_at is not None and moment.now - moment.last_response_at > limits.microcompact_gap


def _to_clear(messages: Sequence[Message], plan: ContextPlan, limits: ContextLimits) -> frozenset[str]:
    names = call_names(messages)
    kept = protected(messages, limits.task_list_tools) | covered(messages, plan.collapses)
    results = [
        (message.uuid, block)
        for message in messages
        if isinstance(message, UserMessage)
        for block in message.content
        if isinstance(block, ToolResultBlock) and names.get(block.tool_use_id) in limits.compactable_tools
    ]
    old = results[: -max(1, limits.microcompact_keep)]
    return frozenset(
        block.tool_use_id
        for uuid, block in old
        # What is in a file keeps its preview: it says where the file is.
        if uuid not in kept and block.tool_use_id not in plan.persisted and _saves(block)
    )


def _saves(block: ToolResultBlock) -> bool:
    return block.content != CLEARED and estimate_block(block) > estimate_block(attrs.evolve(block, content=CLEARED))


def context_management(trigger_tokens: int = API_TRIGGER_TOKENS, *, thinking: bool = False) -> JsonObject:
    """The request's ``context_management``: from so many input tokens on the server clears old results."""
    edits: list[JsonObject] = []
    if thinking:
        # The API wants this edit first.
        edits.append({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}})
    edits.append(
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": trigger_tokens},
            "clear_at_least": {"type": "input_tokens", "value": max(0, trigger_tokens - API_KEPT_TOKENS)},
            "clear_tool_inputs": list(API_CLEARS),
        }
    )
    return {"edits": edits}
