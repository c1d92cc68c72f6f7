"""
Hooks of the embedding program: functions that look at a run's end and may send it round again (stop hooks), and
objects that look at tool calls and may refuse them, change them, put them off or end the run (tool hooks).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import trio

from atrio.runtime.messages import Message, ToolResultBlock
from atrio.runtime.observations import StopHooksEnded

__all__ = [
    "StopContext",
    "StopDecision",
    "StopHook",
    "ToolCall",
    "ToolDecision",
    "ToolHook",
    "ask_tool_hooks",
    "run_stop_hooks",
]

STOP_HOOK_LIMIT = 60.0
"""Seconds that a stop hook may take; then it counts as having nothing to say."""

TOOL_HOOK_LIMIT = 60.0
"""The same for a tool hook."""


@attrs.frozen(kw_only=True)
class StopContext:
    """
    What a stop hook sees.

    ``active``: a stop hook has already made this run go on, so that one that always blocks can know better.
    """

    session_id: str
    run_id: str
    text: str
    """The last text of the model."""
    messages: Sequence[Message]
    active: bool


@attrs.frozen(kw_only=True)
class StopDecision:
    """
    What a stop hook says; None in its place says nothing.

    ``block``: why the work isn't done, for the model, which then goes on. ``prevent``: why the run ends here in any
    case, whatever other hooks say.
    """

    block: str | None = None
    prevent: str | None = None


StopHook: TypeAlias = Callable[[StopContext], Awaitable[StopDecision | None]]


async def run_stop_hooks(
    hooks: Sequence[StopHook], context: StopContext, report: Callable[[str], None]
) -> StopHooksEnded:
    """
    Ask all hooks at once. One that fails or is too slow is reported and has no say.

    Cancelled: the hooks are cancelled.
    """
    decisions: list[StopDecision | None] = [None] * len(hooks)

    async def ask(position: int, hook: StopHook) -> None:
        name = getattr(hook, "__name__", type(hook).__name__)
        with trio.move_on_after(STOP_HOOK_LIMIT) as patience:
            try:
                decisions[position] = await hook(context)
            except Exception as error:
                report(f"stop hook {name} failed: {type(error).__name__}: {error}")
        if patience.cancelled_caught:
            report(f"stop hook {name} said nothing within {STOP_HOOK_LIMIT:g} s")

    async with trio.open_nursery() as nursery:
        for position, hook in enumerate(hooks):
            nursery.start_soon(ask, position, hook)
    said = [decision for decision in decisions if decision is not None]
    return StopHooksEnded(
        blocking=tuple(decision.block for decision in said if decision.block),
        prevent=next((decision.prevent for decision in said if decision.prevent), None),
    )


# --- tool hooks -----------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ToolCall:
    """The call that a tool hook looks at."""

    session_id: str
    run_id: str
    call_id: str
    name: str
    input: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class ToolDecision:
    """
    What a tool hook says. Of several, the strictest holds: deny, then defer, then allow.

    Args:
        deny: why the call must not run, for the model.
        defer: the call is put off: it doesn't run, and the run ends for somebody else to answer it.
        allow: it may run without any rule that allows it (a rule that denies it still does).
        input: takes the place of the call's input.
        stop: why the run shall end after this turn's calls.
        output: after a call, takes the place of its result's text.
        feedback: after a call, is added to its result, for the model.
    """

    deny: str | None = None
    defer: bool = False
    allow: bool = False
    input: Mapping[str, Any] | None = None
    stop: str | None = None
    output: str | None = None
    feedback: str | None = None


class ToolHook:
    """Looks at calls. Override what you need; None says nothing."""

    async def before(self, call: ToolCall) -> ToolDecision | None:
        """The call is well-formed and is about to be permitted or not."""
        return None

    async def after(self, call: ToolCall, result: ToolResultBlock) -> ToolDecision | None:
        """The call has run, or failed; ``stop``, ``output`` and ``feedback`` have a meaning now."""
        return None


Ask: TypeAlias = Callable[[ToolHook], Awaitable[ToolDecision | None]]


async def ask_tool_hooks(hooks: Sequence[ToolHook], ask: Ask) -> tuple[ToolDecision, tuple[str, ...]]:
    """
    What all hooks say together, asked one after the other, and what went wrong with some of them: a hook that fails or
    is too slow has no say.

    Cancelled: the hook that is being asked is cancelled.
    """
    together = ToolDecision()
    problems: list[str] = []
    for hook in hooks:
        name = type(hook).__name__
        decision: ToolDecision | None = None
        with trio.move_on_after(TOOL_HOOK_LIMIT) as patience:
            try:
                decision = await ask(hook)
            except Exception as error:
                problems.append(f"tool hook {name} failed: {type(error).__name__}: {error}")
        if patience.cancelled_caught:
            problems.append(f"tool hook {name} said nothing within {TOOL_HOOK_LIMIT:g} s")
        if decision is not None:
            together = _stricter(together, decision)
    return together, tuple(problems)


def _stricter(one: ToolDecision, other: ToolDecision) -> ToolDecision:
    return ToolDecision(
        deny=one.deny or other.deny,
        defer=one.defer or other.defer,
        allow=one.allow or other.allow,
        input=other.input if other.input is not None else one.input,
        stop=one.stop or other.stop,
        output=other.output if other.output is not None else one.output,
        feedback="\n".join(text for text in (one.feedback, other.feedback) if text) or None,
    )
