"""Stop hooks: functions of the embedding program that look at a run's end and may send it round again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import attrs
import trio

from atrio.runtime.messages import Message
from atrio.runtime.observations import StopHooksEnded

__all__ = ["StopContext", "StopDecision", "StopHook", "run_stop_hooks"]

STOP_HOOK_LIMIT = 60.0
"""Seconds that a stop hook may take; then it counts as having nothing to say."""


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
