"""The tools Agent, AgentOutput and AgentStop: to start agents, to look at them, to end them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import attrs
import trio

from atrio.actors.agent import Agent
from atrio.runtime.errors import ToolRejected
from atrio.runtime.messages import JsonObject
from atrio.runtime.prices import Catalogue
from atrio.runtime.tool import Tool, ToolContext, ToolOutput
from atrio.tools.permissions import PermissionMode
from atrio.tools.schema import Field, json_schema, structure
from atrio.tools.shapes import close_names

from .definitions import GENERAL_PURPOSE, INHERIT, SubagentDefinition
from .host import Child, Subagents
from .values import Order, Report, result_text

__all__ = ["AgentInput", "AgentOutput", "AgentStop", "AgentTool", "subagent_tools"]

MAX_WAIT: Final = 600.0
"""Seconds that one look may wait."""

FORK: Final = SubagentDefinition(name="fork", description="goes on from this very conversation")

_Id = Annotated[
    str, Field(min_length=1, max_length=100, aliases=("task_id", "id"), description="the id that Agent gave")
]


@attrs.frozen(kw_only=True)
class AgentInput:
    """What an agent is to do."""

    description: Annotated[str, Field(min_length=1, max_length=200, description="the task in 3 to 5 words")]
    prompt: Annotated[
        str, Field(min_length=1, description="the whole task; a fresh agent knows nothing of this conversation")
    ]
    subagent_type: Annotated[
        str | None, Field(max_length=100, aliases=("agent_type",), description="the kind of agent")
    ] = None
    run_in_background: Annotated[
        bool, Field(aliases=("background",), description="return at once; the result comes as a message later")
    ] = False
    fork: Annotated[bool, Field(description="begin with this whole conversation, with the same tools and model")] = (
        False
    )
    model: Annotated[str | None, Field(max_length=200, description="another model than the one that this kind has")] = (
        None
    )


class AgentTool(Tool):
    """
    Starts an agent. In the foreground the call lasts as long as the agent works.

    Args:
        host: looks after the agents.
        agent: the parent, as far as its model and mode are concerned.
        catalogue: prices, for the ledgers of agents.
    """

    name = "Agent"
    aliases: tuple[str, ...] = ("Task",)
    input_schema = json_schema(AgentInput)
    # Each of an agent's calls has to be permitted by itself.
    permission: Literal["allow", "read", "edit", "ask"] = "allow"

    def __init__(self, host: Subagents, agent: Agent, catalogue: Catalogue) -> None:
        self._host = host
        self._agent = agent
        self._catalogue = catalogue
        # In plan mode agents are in plan mode too, so they change nothing.
        self.read_only = agent.permission_mode is PermissionMode.PLAN
        self.description = _description(tuple(host.definitions.values()))

    def parse(self, raw: Mapping[str, Any]) -> AgentInput:
        return structure(AgentInput, raw, tool=self.name)

    def concurrency_safe(self, input: AgentInput) -> bool:
        return True

    def specifier(self, input: AgentInput) -> str:
        return self._definition(input).name

    def _definition(self, input: AgentInput) -> SubagentDefinition:
        name = (input.subagent_type or "").strip()
        if input.fork or name == FORK.name:
            return FORK
        definitions = self._host.definitions
        if not name:
            return definitions.get(GENERAL_PURPOSE.name, GENERAL_PURPOSE)
        if name in definitions:
            return definitions[name]
        close = close_names(name, list(definitions))
        hint = f"Did you mean {' or '.join(close)}?" if close else f"There are {', '.join(definitions)}."
        raise ToolRejected(f"There is no kind of agent {name[:80]!r}. {hint}")

    async def check(self, input: AgentInput, ctx: ToolContext) -> None:
        """Raises `ToolRejected` for an unknown kind, or if no agent can be started now."""
        order = self._order(input, ctx)
        refusal = self._host.refusal(fork=order.fork, background=order.background)
        if refusal is not None:
            raise ToolRejected(refusal)
        model = order.model or order.definition.model
        if self._host.tree.budget is not None and model != INHERIT:
            name = choose_model(order, self._agent.model, self._catalogue)
            if self._catalogue.find(name) is None:
                raise ToolRejected(f"The price of {name} is not known, so the budget can't be kept: leave model out.")

    def _order(self, input: AgentInput, ctx: ToolContext) -> Order:
        definition = self._definition(input)
        return Order(
            agent_id=self._host.new_id().replace("-", "")[:16],
            call_id=ctx.call_id,
            definition=definition,
            description=" ".join(input.description.split()),
            prompt=input.prompt,
            depth=self._host.depth + 1,
            background=input.run_in_background or definition.background,
            fork=definition is FORK,
            model=None if definition is FORK else input.model,
        )

    async def run(self, input: AgentInput, ctx: ToolContext) -> ToolOutput:
        """
        Start it, and in the foreground wait for its end. Raises `ToolRejected`.

        Cancelled: one in the foreground has ended; one in the background works on, as it belongs to the run.
        """
        child = self._host.admit(self._order(input, ctx), self._catalogue)
        order = child.order
        if not order.background:
            return _output(child, await self._host.live_here(child))
        self._host.live_beside(child)
        text = (
            f"The agent {order.agent_id} works in the background. What comes of it will be told to you by itself; "
            "until then do other work, or end your turn. AgentOutput looks at it, AgentStop ends it."
        )
        return ToolOutput(text, details=_details(child))


def _description(definitions: Sequence[SubagentDefinition]) -> str:
    kinds = "\n".join(f"- {each.name}: {' '.join(each.description.split())}" for each in definitions)
    return (
        "Starts an agent of its own that works on a task with its own context and tools, and gives back its last "
        "words. Use it for work whose details needn't be in this conversation, and for several things at the same "
        "time: put the calls into one response. Tell it all that it has to know, and what to report. Its result is "
        "for you; say yourself what the user should know.\n\nKinds of agents (subagent_type):\n" + kinds
    )


def choose_model(order: Order, parent: str, catalogue: Catalogue) -> str:
    """The model of a subagent. A short name that fits no model of the catalogue means the parent's."""
    wanted = (order.model or order.definition.model).strip()
    if order.fork or not wanted or wanted == INHERIT:
        return parent
    if wanted not in ALIASES:
        return wanted
    return parent if wanted in parent else ALIASES[wanted] if catalogue.find(ALIASES[wanted]) is not None else parent


ALIASES: Final[Mapping[str, str]] = {
    "opus": "claude-opus-4-5",
    "sonnet": "claude-sonnet-4-5",
    "haiku": "claude-haiku-4-5",
}


@attrs.frozen(kw_only=True)
class AgentOutputInput:
    """Which agent to look at."""

    agent_id: _Id
    wait: Annotated[bool, Field(aliases=("block",), description="wait until it has ended")] = False
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT, description="seconds to wait at most")] = MAX_WAIT


@attrs.frozen(kw_only=True)
class AgentStopInput:
    """Which agent to end."""

    agent_id: _Id


class AgentOutput(Tool):
    """Shows how an agent is, and what came of it."""

    name = "AgentOutput"
    aliases: tuple[str, ...] = ("TaskOutput",)
    description = (
        "Shows whether an agent in the background is still at work, and its result once it has ended. Results come to "
        "you by themselves; use this to wait for one (wait: true), or to read a long one again."
    )
    input_schema = json_schema(AgentOutputInput)
    read_only = True
    idempotent = True
    permission: Literal["allow", "read", "edit", "ask"] = "allow"

    def __init__(self, host: Subagents) -> None:
        self._host = host

    def parse(self, raw: Mapping[str, Any]) -> AgentOutputInput:
        return structure(AgentOutputInput, raw, tool=self.name)

    async def check(self, input: AgentOutputInput, ctx: ToolContext) -> None:
        """Raises `ToolRejected` for an unknown id."""
        self._host.find(input.agent_id)

    async def run(self, input: AgentOutputInput, ctx: ToolContext) -> ToolOutput:
        """Look, or wait. Cancelled: the agent works on."""
        child = self._host.find(input.agent_id)
        if input.wait:
            child.readers += 1
            try:
                with trio.move_on_after(min(input.timeout, MAX_WAIT) if math.isfinite(input.timeout) else MAX_WAIT):
                    await child.ended.wait()
            finally:
                child.readers -= 1
        if child.report is not None:
            return _output(child, child.report)
        said = f" It last said: {child.last_text[:1000]}" if child.last_text else ""
        return ToolOutput(
            f"The agent {child.id} is at work ({child.tool_uses} calls so far).{said}", details=_details(child)
        )


class AgentStop(Tool):
    """Ends an agent, and all that it started."""

    name = "AgentStop"
    aliases: tuple[str, ...] = ("TaskStop",)
    description = "Stops an agent that works in the background, with all agents that it started itself."
    input_schema = json_schema(AgentStopInput)
    idempotent = True
    permission: Literal["allow", "read", "edit", "ask"] = "allow"

    def __init__(self, host: Subagents) -> None:
        self._host = host

    def parse(self, raw: Mapping[str, Any]) -> AgentStopInput:
        return structure(AgentStopInput, raw, tool=self.name)

    async def check(self, input: AgentStopInput, ctx: ToolContext) -> None:
        """Raises `ToolRejected` for an unknown id."""
        self._host.find(input.agent_id)

    async def run(self, input: AgentStopInput, ctx: ToolContext) -> ToolOutput:
        """Stop it, and wait until it is gone. Cancelled: it ends all the same."""
        child = self._host.find(input.agent_id)
        if child.report is not None:
            return ToolOutput(f"The agent {child.id} had ended already ({child.status}).", details=_details(child))
        child.readers += 1
        try:
            child.stop("stopped by its parent")
            await child.ended.wait()
        finally:
            child.readers -= 1
        return ToolOutput(f"The agent {child.id} was stopped.", details=_details(child))


def subagent_tools(host: Subagents, agent: Agent, catalogue: Catalogue) -> tuple[Tool, ...]:
    """The three tools of one session."""
    return (AgentTool(host, agent, catalogue), AgentOutput(host), AgentStop(host))


def _output(child: Child, report: Report) -> ToolOutput:
    failed = report.status != "completed"
    return ToolOutput(result_text(child.order, report), is_error=failed, details=_details(child))


def _details(child: Child) -> JsonObject:
    order, report = child.order, child.report
    details: JsonObject = {
        "agentId": order.agent_id,
        "agentType": order.definition.name,
        "description": order.description,
        "status": child.status,
        "isAsync": order.background,
        "transcriptPath": child.journal,
    }
    if report is not None:
        details |= {
            "totalTokens": report.usage.context_tokens,
            "totalToolUseCount": report.tool_uses,
            "totalDurationMs": round(report.duration * 1000),
            "usage": report.usage.to_wire(),
            "totalCostUsd": report.cost_usd,
        }
    return details
