"""What a session runs with: the agent's definition."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from atrio.runtime.messages import JsonObject
from atrio.runtime.tool import Tool
from atrio.tools.permissions import PermissionMode

__all__ = ["Agent"]


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
    """

    model: str
    tools: Sequence[Tool] = attrs.field(default=(), converter=tuple)
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    max_turns: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    max_tokens: int | None = attrs.field(default=None, validator=attrs.validators.optional(attrs.validators.ge(1)))
    thinking: JsonObject | None = None
    permission_mode: PermissionMode = PermissionMode.DEFAULT
    allowed_tools: Sequence[str] = attrs.field(default=(), converter=tuple)
    disallowed_tools: Sequence[str] = attrs.field(default=(), converter=tuple)
    name: str = "main"
