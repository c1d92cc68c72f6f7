"""From the loop's state to the request that the model gets: system prompt, user context, history on the wire, tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import attrs

from atrio.runtime.context.microcompact import context_management
from atrio.runtime.history import wire_messages
from atrio.runtime.messages import JsonObject, Message, UserMessage
from atrio.runtime.model import ModelRequest
from atrio.runtime.tokens import estimate_message, estimate_schemas, estimate_text
from atrio.tools.registry import Toolbox

from .agent import Agent
from .context.project import ProjectContext
from .context.prompt import build_system
from .context.user_context import user_context_message, with_user_context

__all__ = ["RequestBuilder"]

TASK_BUDGET_BETA = "task-budgets-2026-03-13"


@attrs.frozen(kw_only=True)
class RequestBuilder:
    """
    Makes requests for one session.

    The system prompt, the tools and the user context are fixed when the session opens, so that consecutive requests
    share their prefix byte for byte and the provider's prompt cache holds. ``overhead`` is what all that takes, in
    estimated tokens.
    """

    agent: Agent
    toolbox: Toolbox
    system: Sequence[str]
    user_context: UserMessage | None = None
    instructions: Mapping[str, str] = attrs.field(factory=dict)
    """What the user context holds, by file, for reports."""
    notices: tuple[str, ...] = ()
    overhead: int = attrs.field(init=False)

    @overhead.default
    def _estimate_overhead(self) -> int:
        context = estimate_message(self.user_context) if self.user_context is not None else 0
        return sum(map(estimate_text, self.system)) + estimate_schemas(self.toolbox.definitions()) + context

    @classmethod
    def for_session(
        cls,
        agent: Agent,
        toolbox: Toolbox,
        *,
        cwd: Path,
        add_dirs: Sequence[Path],
        today: date,
        project: ProjectContext | None,
    ) -> RequestBuilder:
        """``project`` None: nothing of the project is told."""
        known = project if project is not None else ProjectContext()
        system = build_system(agent, known, cwd=cwd, add_dirs=add_dirs, tools=toolbox.names())
        return cls(
            agent=agent,
            toolbox=toolbox,
            system=system.parts,
            user_context=user_context_message(known, today) if project is not None else None,
            instructions={str(file.path): file.text for file in known.instructions.files},
            notices=(*known.warnings, *system.notices),
        )

    def _betas(self) -> tuple[str, ...]:
        task = (TASK_BUDGET_BETA,) if self.agent.task_budget is not None else ()
        return (*task, CONTEXT_MANAGEMENT_BETA) if self.agent.server_clears_results else task

    def build(
        self, messages: Sequence[Message], *, model: str, max_tokens: int, task_budget_remaining: int | None = None
    ) -> ModelRequest:
        budget = self.agent.task_budget
        return ModelRequest(
            model=model,
            messages=wire_messages(with_user_context(messages, self.user_context), model=model),
            system=self.system,
            tools=self.toolbox.definitions(),
            max_tokens=max_tokens,
            thinking=self.agent.thinking,
            betas=self._betas(),
            extra={
                **(_task_budget(budget, task_budget_remaining) if budget is not None else {}),
                **({"context_management": context_management()} if self.agent.server_clears_results else {}),
            },
        )


CONTEXT_MANAGEMENT_BETA = "context-management-2025-06-27"


def _task_budget(total: int, remaining: int | None) -> JsonObject:
    budget: JsonObject = {"type": "tokens", "total": total}
    if remaining is not None:
        budget["remaining"] = remaining
    return {"output_config": {"task_budget": budget}}
