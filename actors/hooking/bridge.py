"""
A hook engine as the hooks that an agent has: put these into `Agent.tool_hooks` and `Agent.stop_hooks`, and
`EngineApproval` where a session takes its ``can_use_tool``.

What their decisions have no room for (text for the model, messages for the user) goes to ``tell``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs
import trio

from atrio.actors.call import CanUseTool
from atrio.actors.hooks import StopContext, StopDecision, ToolCall, ToolDecision, ToolHook
from atrio.runtime.messages import TextBlock, ToolResultBlock
from atrio.runtime.plain_json import json_line
from atrio.runtime.tool import ToolContext

from .engine import HookEngine
from .payloads import (
    HookEvent,
    HookName,
    permission_request,
    post_tool_use,
    post_tool_use_failure,
    pre_tool_use,
    stop,
    subagent_stop,
)
from .verdicts import HookOutcome, Permission

__all__ = ["Approve", "EngineApproval", "EngineStopHook", "EngineToolHook", "Subagent", "Tell", "text_of"]

BRIDGE_LIMIT: Final = 50.0
"""
Seconds that hooks and an approval get together here: less than `atrio.actors.hooks` waits for one of its hooks, also
with the time that stopping a late process takes. It would otherwise forget what the others have said, a deny too.
"""

Tell: TypeAlias = Callable[[HookEvent, HookOutcome], None]
"""Hears what all hooks said of an event. Synchronous, never blocks."""

Approve: TypeAlias = Callable[[ToolCall, str], Awaitable[bool | str]]
"""Asks somebody about a call, with the hook's reason: True lets it go on, False or a text (why) denies it."""

NOBODY_ALLOWS: Final = "no rule allows this call and nobody is there to approve it"
NOBODY_THERE: Final = "a hook wants this call to be approved, and nobody is there to approve it"


def _silent(event: HookEvent, outcome: HookOutcome) -> None:
    pass


class EngineToolHook(ToolHook):
    """
    PreToolUse before a call, PostToolUse or PostToolUseFailure after it.

    Where a hook wants a call to be asked about, ``approve`` is; without it, the call is denied.
    """

    def __init__(self, engine: HookEngine, *, tell: Tell = _silent, approve: Approve | None = None) -> None:
        self._engine = engine
        self._tell = tell
        self._approve = approve

    async def before(self, call: ToolCall) -> ToolDecision | None:
        """Cancelled: the hooks' processes are gone."""
        if not self._engine.has(HookName.PRE_TOOL_USE):
            return None
        deadline = trio.current_time() + BRIDGE_LIMIT
        event = pre_tool_use(call.name, call.input, call.call_id)
        outcome = await self._engine.fire(event, limit=BRIDGE_LIMIT)
        self._tell(event, outcome)
        deny = outcome.reason if outcome.permission is Permission.DENY else None
        if outcome.permission is Permission.ASK:
            deny = await self._ask(call, outcome, deadline)
        return ToolDecision(
            deny=deny,
            defer=outcome.permission is Permission.DEFER,
            allow=outcome.permission is Permission.ALLOW,
            input=outcome.updated_input,
            stop=outcome.stop,
        )

    async def after(self, call: ToolCall, result: ToolResultBlock) -> ToolDecision | None:
        """Cancelled: the hooks' processes are gone."""
        name = HookName.POST_TOOL_USE_FAILURE if result.is_error else HookName.POST_TOOL_USE
        if not self._engine.has(name):
            return None
        make = post_tool_use_failure if result.is_error else post_tool_use
        event = make(call.name, call.input, call.call_id, text_of(result))
        outcome = await self._engine.fire(event, limit=BRIDGE_LIMIT)
        self._tell(event, outcome)
        output = outcome.updated_output
        if output is not None and not isinstance(output, str):
            output = json_line(output).decode().rstrip("\n")
        return ToolDecision(stop=outcome.stop, output=output, feedback=outcome.block)

    async def _ask(self, call: ToolCall, outcome: HookOutcome, deadline: float) -> str | None:
        """Why the call must not run; None: it was approved, as far as hooks go. Fails closed: no answer, no call."""
        if self._approve is None:
            return f"{NOBODY_THERE}: {outcome.reason}" if outcome.reason else NOBODY_THERE
        if outcome.updated_input is not None:
            call = attrs.evolve(call, input=outcome.updated_input)
        answer: bool | str = "no approval came in time"
        with trio.CancelScope(deadline=deadline):
            try:
                answer = await self._approve(call, outcome.reason or "a hook asks for it")
            except Exception as error:
                answer = f"the approval failed: {type(error).__name__}: {error}"
        return _why_not(answer)


def _why_not(answer: bool | str) -> str | None:
    if answer is True:
        return None
    return answer if isinstance(answer, str) and answer else "the user denied this call"


class EngineApproval:
    """
    PermissionRequest when no rule decides a call; where no hook does either, ``otherwise`` is asked. A `CanUseTool`.

    An approval that comes with another input, which can't be taken over here, approves nothing.
    """

    def __init__(self, engine: HookEngine, *, otherwise: CanUseTool | None = None, tell: Tell = _silent) -> None:
        self._engine = engine
        self._otherwise = otherwise
        self._tell = tell

    async def __call__(self, name: str, input: Mapping[str, Any], ctx: ToolContext) -> bool | str:
        """True, or why not. Cancelled: the hooks' processes are gone."""
        if self._engine.has(HookName.PERMISSION_REQUEST):
            event = permission_request(name, input, ctx.call_id)
            outcome = await self._engine.fire(event)
            self._tell(event, outcome)
            if outcome.permission is Permission.ALLOW and outcome.updated_input not in (None, dict(input)):
                return "a hook allows this call only with another input, which can't be taken over here"
            if outcome.permission is not None:
                return outcome.permission is Permission.ALLOW or outcome.reason or "a hook denied this call"
        if self._otherwise is None:
            return NOBODY_ALLOWS
        return await self._otherwise(name, input, ctx)


@attrs.frozen(kw_only=True)
class Subagent:
    """Which subagent's end a stop hook is for."""

    agent_id: str
    agent_type: str
    transcript_path: str | None = None


class EngineStopHook:
    """Stop when the model thinks it is done; SubagentStop if ``subagent`` is given. To be called as a `StopHook`."""

    def __init__(self, engine: HookEngine, *, tell: Tell = _silent, subagent: Subagent | None = None) -> None:
        self._engine = engine
        self._tell = tell
        self._subagent = subagent

    async def __call__(self, context: StopContext) -> StopDecision | None:
        """Text for the model makes the run go on as a block does. Cancelled: the hooks' processes are gone."""
        event = self._event(context)
        if not self._engine.has(event.name):
            return None
        outcome = await self._engine.fire(event, limit=BRIDGE_LIMIT)
        self._tell(event, outcome)
        block = "\n\n".join((*outcome.blocks, *outcome.contexts)) or None
        if block is None and outcome.stop is None:
            return None
        return StopDecision(block=block, prevent=outcome.stop)

    def _event(self, context: StopContext) -> HookEvent:
        agent = self._subagent
        if agent is None:
            return stop(context.text, active=context.active)
        return subagent_stop(
            agent.agent_id,
            agent.agent_type,
            context.text,
            active=context.active,
            transcript_path=agent.transcript_path,
        )


def text_of(result: ToolResultBlock) -> str:
    """A result's text, without images and the like: what hooks are told of it."""
    if isinstance(result.content, str):
        return result.content
    return "\n".join(block.text for block in result.content if isinstance(block, TextBlock))
