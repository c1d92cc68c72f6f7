"""What is said of a subagent: what it is to do, and what came of it. Values, and the texts made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import attrs

from atrio.runtime.beside import NOTIFICATION
from atrio.runtime.events import SubagentStatus
from atrio.runtime.messages import Usage
from atrio.runtime.result import Result, TerminalReason

from .definitions import SubagentDefinition

__all__ = ["BackgroundPolicy", "Order", "Report", "notification", "report_of", "result_text", "still_at_work"]

BackgroundPolicy: TypeAlias = Literal["wait", "tell", "kill"]
"""
What a run does that would end while subagents are at work beside it: wait for them (with a bound), tell the model once
(and end them if it ends all the same), or end them at once.
"""

NEWS_CHARS: Final = 50_000
"""Of a result that joins the conversation by itself; AgentOutput shows all of it."""

_ABORTED: Final = frozenset((TerminalReason.ABORTED_STREAMING, TerminalReason.ABORTED_TOOLS))


@attrs.frozen(kw_only=True)
class Order:
    """What a subagent is to do, and for whom."""

    agent_id: str
    call_id: str
    """The call of the Agent tool."""
    definition: SubagentDefinition
    description: str
    prompt: str
    depth: int
    background: bool = False
    fork: bool = False
    model: str | None = None


@attrs.frozen(kw_only=True)
class Report:
    """How a subagent ended. ``text`` is its last words, complete or not; ``duration`` is in seconds."""

    status: SubagentStatus
    text: str = ""
    error: str = ""
    usage: Usage = attrs.field(factory=Usage)
    cost_usd: float | None = 0.0
    duration: float = 0.0
    turns: int = 0
    tool_uses: int = 0


def report_of(result: Result) -> Report:
    """What a run's result means for the parent; what it used is filled in elsewhere."""
    status: SubagentStatus = "completed" if result.is_success else "failed"
    if result.terminal_reason in _ABORTED:
        status = "stopped"
    error = "" if result.is_success else "; ".join(result.errors) or result.terminal_reason.value
    return Report(status=status, text=result.text, error=error, duration=result.duration, turns=result.num_turns)


def result_text(order: Order, report: Report, chars: int | None = None) -> str:
    """What the parent's model is told of the end."""
    text = report.text.strip()
    if chars is not None and len(text) > chars:
        text = f"{text[:chars]}\n[... {len(text) - chars:,} more characters; AgentOutput shows all of it]"
    parts = [text or "(It ended without a text.)"]
    match report.status:
        case "failed":
            parts.append(f"[The agent failed: {report.error}. What stands above is as far as it came.]")
        case "stopped":
            parts.append("[The agent was stopped before it was done. What stands above is as far as it came.]")
        case "completed":
            pass
    tokens = report.usage.context_tokens
    parts.append(
        f"agentId: {order.agent_id}\n<usage>total_tokens: {tokens}\ntool_uses: {report.tool_uses}\n"
        f"duration_ms: {round(report.duration * 1000)}</usage>"
    )
    return "\n\n".join(parts)


def notification(order: Order, report: Report) -> str:
    """The message by which a background result joins the parent's conversation."""
    summary = f'Agent "{order.description}" {report.status}'
    return (
        f"{NOTIFICATION}\n<task-id>{order.agent_id}</task-id>\n<status>{report.status}</status>\n"
        f"<summary>{summary}</summary>\n<result>\n{result_text(order, report, NEWS_CHARS)}\n</result>\n"
        "</task-notification>"
    )


def still_at_work(orders: Sequence[Order]) -> str:
    """What a model is told that ends its run over work in the background."""
    lines = "\n".join(f"- {order.agent_id}: {order.description}" for order in orders)
    return (
        f"<system-reminder>\nThese agents are still at work in the background:\n{lines}\nIf you need what comes of "
        "them, wait for it with AgentOutput (wait: true). If you end now, they are stopped.\n</system-reminder>"
    )
