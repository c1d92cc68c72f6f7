"""The hands of a simulated agent: tools, stop hooks, approvals and compactions that do what they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

import attrs
import trio

from atrio.actors.dependencies import CompactHistory, Prepared
from atrio.actors.hooks import StopContext, StopDecision, StopHook, ToolCall, ToolDecision, ToolHook
from atrio.runtime.errors import ContextExhausted, InvalidToolInput, ToolError
from atrio.runtime.messages import Message, TextBlock, ToolResultBlock, UserMessage
from atrio.runtime.model import ModelFailure
from atrio.runtime.observations import CompactLevel
from atrio.runtime.tool import Tool, ToolContext, ToolOutput

from .sim_plan import ApprovalKind, CompactKind, HookKind, PrepareKind, ToolHookKind

__all__ = ["CallLog", "Hands", "SimToolHook", "approval", "compaction", "preparation", "sim_tools", "stop_hook"]

CLEANUP = 20.0
"""Seconds that a stubborn tool may take for its cleanup."""


@attrs.define(eq=False)
class CallLog:
    """What really happened to calls, noted by the tools themselves."""

    started: Counter[str] = attrs.field(factory=Counter)
    running: int = 0
    seconds: float = 0.0
    """The most that the calls may have taken, had they run one after the other."""


class SimTool(Tool):
    """A tool whose calls say themselves what they do."""

    description = "Does what it is told."

    def __init__(
        self,
        name: str,
        log: CallLog,
        *,
        safe: bool = False,
        permission: Literal["allow", "ask"] = "allow",
        interrupt: Literal["cancel", "block"] = "cancel",
    ) -> None:
        self.name = name
        self.input_schema = {"type": "object", "properties": {"do": {"type": "string"}}}
        self.read_only = self.safe = safe
        self.permission = permission
        self.interrupt = interrupt
        self.log = log

    def parse(self, raw: Mapping[str, Any]) -> Any:
        if not isinstance(raw.get("do", "answer"), str):
            raise InvalidToolInput(self.name, ["do: give a text"])
        return dict(raw)

    def concurrency_safe(self, input: Any) -> bool:
        return self.safe

    async def run(self, input: Any, ctx: ToolContext) -> ToolOutput:
        self.log.started[ctx.call_id] += 1
        self.log.running += 1
        self.log.seconds += float(input.get("seconds", 0.0))
        try:
            output: ToolOutput = await self._do(input, ctx)
            return output
        finally:
            self.log.running -= 1

    async def _do(self, input: Mapping[str, Any], ctx: ToolContext) -> Any:
        match input.get("do"):
            case "sleep":
                await trio.sleep(input["seconds"])
            case "hang":
                await trio.sleep_forever()
            case "crash":
                raise RuntimeError("the tool crashed")
            case "refuse":
                raise ToolError("not this time; try another way")
            case "group":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)
                    raise LookupError("crashed inside a nursery")
            case "fail_all":
                await trio.sleep(input["seconds"])
                return ToolOutput("exit status 1", is_error=True, cancel_siblings=True)
            case "huge":
                return ToolOutput("0123456789\u00e9\n" * (input["size"] // 12))
            case "flood":
                for number in range(input["size"]):
                    ctx.progress(f"step {number}", {"number": number})
                await trio.sleep(0.5)
            case "stubborn":
                await _stubborn(input["seconds"])
            case "empty":
                return ToolOutput("")
            case "nonsense":
                return None
            case "odd_details":
                return ToolOutput("done", details={"object": object, "set": {1}, 3: b"bytes", "nan": float("nan")})
            case "surrogates":
                return ToolOutput("half a pair: \ud83d, and \x00", details={"text": "\udc00"})
        return ToolOutput(f"{self.name} did {input.get('do')} {input.get('number')}")


async def _stubborn(seconds: float) -> None:
    """It needs a while after it was cancelled."""
    try:
        await trio.sleep(seconds)
    finally:
        with trio.move_on_after(CLEANUP, shield=True):
            await trio.sleep(seconds / 2)


def sim_tools(log: CallLog) -> tuple[Tool, ...]:
    """The tools that scripts call."""
    return (
        SimTool("Look", log, safe=True),
        SimTool("Change", log),
        SimTool("Stay", log, safe=True, interrupt="block"),
        SimTool("Ask", log, permission="ask"),
    )


@attrs.define(eq=False)
class Hands:
    """How often the functions of the embedding program were called, and what a compaction did."""

    hooks: int = 0
    approvals: int = 0
    compactions: int = 0
    compacted: bool = False
    """The history was replaced: journal and memory differ from here on."""
    prepared: int = 0


def stop_hook(kind: HookKind, hands: Hands) -> StopHook:
    async def hook(context: StopContext) -> StopDecision | None:
        hands.hooks += 1
        await trio.sleep(0.1)
        match kind:
            case "blocks" if not context.active:
                return StopDecision(block="check once more")
            case "blocks_always":
                return StopDecision(block="never good enough")
            case "prevents":
                return StopDecision(prevent="that is enough")
            case "crashes":
                raise RuntimeError("the hook crashed")
            case "hangs":
                await trio.sleep_forever()
        return None

    return hook


class SimToolHook(ToolHook):
    """Looks at calls, and now and then does what its kind says."""

    def __init__(self, kind: ToolHookKind, hands: Hands) -> None:
        self.kind = kind
        self.hands = hands

    async def before(self, call: ToolCall) -> ToolDecision | None:
        self.hands.hooks += 1
        number = call.input.get("number", 0)
        if not isinstance(number, int) or number % 3:
            return None
        match self.kind:
            case "denies":
                return ToolDecision(deny="a hook denies this")
            case "defers":
                return ToolDecision(defer=True)
            case "allows":
                return ToolDecision(allow=True)
            case "changes":
                return ToolDecision(input={"do": "answer", "number": "changed"})
            case "spoils":
                return ToolDecision(input={"do": 7})
            case "crashes":
                raise RuntimeError("the hook crashed")
            case "hangs":
                await trio.sleep_forever()
        return None

    async def after(self, call: ToolCall, result: ToolResultBlock) -> ToolDecision | None:
        self.hands.hooks += 1
        return ToolDecision(stop="a hook stops here") if self.kind == "stops" else None


def approval(kind: ApprovalKind, hands: Hands) -> Any:
    """A ``can_use_tool``; None where nobody is there to ask."""

    async def asked(name: str, input: Mapping[str, Any], ctx: ToolContext) -> bool | str:
        hands.approvals += 1
        await trio.sleep(1.0)
        match kind:
            case "crashes":
                raise RuntimeError("the approval crashed")
            case "hangs":
                await trio.sleep_forever()
            case "denies":
                return "not that"
        return True

    return None if kind == "none" else asked


def compaction(kind: CompactKind, hands: Hands) -> CompactHistory | None:
    async def compact(messages: tuple[Message, ...], level: CompactLevel, failure: ModelFailure) -> tuple[Message, ...]:
        hands.compactions += 1
        await trio.sleep(3.0)
        match kind:
            case "fails":
                raise RuntimeError("the summary is empty")
            case "hangs":
                await trio.sleep_forever()
            case "breaks":
                return (*messages, messages[-1])
        hands.compacted = True
        return (UserMessage(uuid=f"summary-{hands.compactions}", content=(TextBlock("So far: much."),)),)

    return None if kind == "none" else compact


def preparation(kind: PrepareKind, hands: Hands) -> Any:
    async def prepare(messages: tuple[Message, ...]) -> Prepared:
        hands.prepared += 1
        if kind == "fails" and hands.prepared % 2 == 0:
            raise RuntimeError("the context can't be prepared")
        if kind == "exhausted" and hands.prepared % 3 == 0:
            raise ContextExhausted("blocking_limit", "nothing more fits")
        if kind == "hangs" and hands.prepared % 2 == 0:
            await trio.sleep_forever()
        if kind == "slow":
            await trio.sleep(2.0)
        return Prepared(messages=messages, staged_collapses=2 if kind == "staged" else 0)

    return prepare
