"""From the loop's state to the request that the model gets: system prompt, history on the wire, tools."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import attrs

from atrio.runtime.history import wire_messages
from atrio.runtime.messages import JsonObject, Message
from atrio.runtime.model import ModelRequest
from atrio.tools.registry import Toolbox

from .agent import Agent

__all__ = ["RequestBuilder"]

TASK_BUDGET_BETA = "task-budgets-2026-03-13"

SYSTEM_PROMPT = """\
You are an agent that works on its own, without a person watching each step. You get a task and a set of tools; \
work until the task is done, then say briefly what you did and what the outcome is.

How to work:
- Find out before you act: read the files that matter, search rather than guess, trust what you see.
- Calls that don't depend on each other may go into one response; they run side by side where that is safe.
- Make the smallest change that does the whole job, in the style of what is already there. Leave the rest alone.
- Check your work with the means at hand (run the tests, run the program) before you call it done, and report \
failures as they are.
- When a tool returns an error, read it: it says what to do differently. Don't repeat a failed call unchanged.
- Nobody answers questions while you work. Decide sensibly, and say in the end what you assumed.
"""


@attrs.frozen(kw_only=True)
class RequestBuilder:
    """
    Makes requests for one session.

    The system prompt and the tools are fixed when the session opens, so that consecutive requests share their
    prefix byte for byte and the provider's prompt cache holds.
    """

    agent: Agent
    toolbox: Toolbox
    system: Sequence[str]

    @classmethod
    def for_session(cls, agent: Agent, toolbox: Toolbox, *, cwd: Path, today: date) -> RequestBuilder:
        return cls(agent=agent, toolbox=toolbox, system=_system(agent, cwd, today))

    def build(
        self, messages: Sequence[Message], *, model: str, max_tokens: int, task_budget_remaining: int | None = None
    ) -> ModelRequest:
        budget = self.agent.task_budget
        return ModelRequest(
            model=model,
            messages=wire_messages(messages, model=model),
            system=self.system,
            tools=self._tools(),
            max_tokens=max_tokens,
            thinking=self.agent.thinking,
            betas=(TASK_BUDGET_BETA,) if budget is not None else (),
            extra=_task_budget(budget, task_budget_remaining) if budget is not None else {},
        )

    def _tools(self) -> Sequence[JsonObject]:
        return self.toolbox.definitions()


def _task_budget(total: int, remaining: int | None) -> JsonObject:
    budget: JsonObject = {"type": "tokens", "total": total}
    if remaining is not None:
        budget["remaining"] = remaining
    return {"output_config": {"task_budget": budget}}


def _system(agent: Agent, cwd: Path, today: date) -> tuple[str, ...]:
    static = agent.system_prompt if agent.system_prompt is not None else SYSTEM_PROMPT
    environment = (
        f"Environment:\n- working directory: {cwd}\n"
        f"- platform: {platform.system().lower()}\n- date: {today.isoformat()}"
    )
    parts = [static, environment if agent.system_prompt is None else None, agent.append_system_prompt]
    return tuple(part for part in parts if part)
