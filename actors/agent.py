"""What a session runs with: the agent's definition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from atrio.runtime.bookmarks import Bookmark
from atrio.runtime.messages import JsonObject
from atrio.runtime.tool import Tool
from atrio.runtime.window import WindowSettings
from atrio.tools.permissions import PermissionMode
from atrio.tools.sandbox import SandboxPolicy

from .hooks import StopHook, ToolHook
from .subagents.definitions import SubagentDefinition
from .subagents.values import BackgroundPolicy

__all__ = ["Agent"]


_ABOVE_0 = attrs.validators.optional(attrs.validators.gt(0))
_AT_LEAST_1 = attrs.validators.optional(attrs.validators.ge(1))


def _bookmarks(names: Iterable[str]) -> frozenset[Bookmark]:
    return frozenset(Bookmark(name) for name in names)


@attrs.frozen(kw_only=True)
class Agent:
    """
    A model, its tools and its limits. A value: one agent may serve any number of sessions.

    Args:
        model: the model's name, as the API knows it.
        tools: what the model may call.
        system_prompt: replaces atrio's own; ``append_system_prompt`` is added to whichever is used.
        max_turns: model requests in one run; None is no limit.
        max_tokens: output cap of a response; None lets the loop manage it.
        thinking: the request's ``thinking`` object, as the API takes it.
        permission_mode: what happens to calls that no rule speaks of.
        allowed_tools: rules such as ``"Read"`` or ``"Bash(git diff *)"`` that allow calls.
        disallowed_tools: rules that deny calls, whatever else allows them.
        fallback_models: up to three, in order; each takes over for the rest of a run when the one before it stays
            overloaded, is gone or fails in a way that waiting doesn't heal.
        max_budget_usd: a run ends before a request once it has cost this much.
        max_seconds: a run ends after this time, wherever it stands.
        output_schema: a JSON Schema; the run ends with an answer that fits it (`Result.structured_output`).
        stop_hooks: asked when the model thinks it is done.
        tool_hooks: asked before and after each tool call.
        token_target: output tokens to be spent before a run may end by itself.
        task_budget: tokens that the API is told the whole task may take; it paces itself.
        context: when the history is compacted.
        sandbox: whether commands are confined to the workspace; ``sandbox_network`` leaves them the network.
        collapse: older parts are summarised in the background, so that room can be made at once (costs requests).
        server_clears_results: the API itself clears old results from a long context (where it can).
        context_window: tokens, for a model whose window is not known or should not be filled.
        summaries: a person is told in a few words what goes on, every 30 s and for each batch of calls (costs
            requests).
        bookmarks: what follows a run in the background (costs requests); see `Bookmark`.
        small_model: for summaries and bookmarks; None: ``model``.
        subagents: kinds of agents that it may start below itself (with the tool Agent); besides those, a general one.
            None: none at all.
        background_policy: what a run does that would end while agents are at work beside it: ``wait`` for them,
            ``tell`` the model once, or ``kill`` them.
        max_repeats: the same calls with the same results so many times in a row end the run; None: never.
    """

    model: str
    tools: Sequence[Tool] = attrs.field(default=(), converter=tuple[Tool, ...])
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    max_turns: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    max_tokens: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    thinking: JsonObject | None = None
    permission_mode: PermissionMode = PermissionMode.DEFAULT
    allowed_tools: Sequence[str] = attrs.field(default=(), converter=tuple[str, ...])
    disallowed_tools: Sequence[str] = attrs.field(default=(), converter=tuple[str, ...])
    fallback_models: Sequence[str] = attrs.field(
        default=(), converter=tuple[str, ...], validator=attrs.validators.max_len(3)
    )
    max_budget_usd: float | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.gt(0))
    )
    max_seconds: float | None = attrs.field(default=None, validator=_ABOVE_0)
    output_schema: JsonObject | None = None
    stop_hooks: Sequence[StopHook] = attrs.field(default=(), converter=tuple[StopHook, ...])
    tool_hooks: Sequence[ToolHook] = attrs.field(default=(), converter=tuple[ToolHook, ...])
    token_target: int | None = attrs.field(default=None, validator=_AT_LEAST_1)
    task_budget: int | None = attrs.field(default=None, validator=_AT_LEAST_1)
    max_repeats: int | None = attrs.field(default=10)
    context: WindowSettings = attrs.field(factory=WindowSettings)
    sandbox: SandboxPolicy = SandboxPolicy.OFF
    sandbox_network: bool = False
    collapse: bool = False
    server_clears_results: bool = False
    summaries: bool = False
    bookmarks: frozenset[Bookmark] = attrs.field(default=frozenset(), converter=_bookmarks)
    small_model: str | None = None
    context_window: int | None = attrs.field(default=None, validator=_AT_LEAST_1)
    subagents: Sequence[SubagentDefinition] | None = attrs.field(
        default=None, converter=attrs.converters.optional(tuple[SubagentDefinition, ...])
    )
    background_policy: BackgroundPolicy = attrs.field(
        default="wait", validator=attrs.validators.in_(("wait", "tell", "kill"))
    )
    name: str = "main"

    @max_repeats.validator
    def _check_repeats(self, attribute: object, value: int | None) -> None:
        if value is not None and value < 2:
            raise ValueError(f"max_repeats must be at least 2, or None for no limit; it is {value}")
