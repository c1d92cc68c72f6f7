"""How a run ended: terminal reasons, result subtypes, the result record."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import attrs

from .messages import Usage

__all__ = ["Denial", "ModelUsage", "Result", "ResultSubtype", "TerminalReason"]


class TerminalReason(StrEnum):
    """Why a run ended (SPEC 3)."""

    COMPLETED = "completed"
    MAX_TURNS = "max_turns"
    ABORTED_STREAMING = "aborted_streaming"
    ABORTED_TOOLS = "aborted_tools"
    HOOK_STOPPED = "hook_stopped"
    STOP_HOOK_PREVENTED = "stop_hook_prevented"
    BLOCKING_LIMIT = "blocking_limit"
    PROMPT_TOO_LONG = "prompt_too_long"
    IMAGE_ERROR = "image_error"
    MODEL_ERROR = "model_error"
    API_ERROR = "api_error"
    BUDGET_EXHAUSTED = "budget_exhausted"
    RAPID_REFILL_BREAKER = "rapid_refill_breaker"
    MALFORMED_TOOL_USE_EXHAUSTED = "malformed_tool_use_exhausted"
    STRUCTURED_OUTPUT_RETRY_EXHAUSTED = "structured_output_retry_exhausted"
    TOOL_DEFERRED = "tool_deferred"
    TURN_SETUP_FAILED = "turn_setup_failed"


ResultSubtype: TypeAlias = Literal[
    "success",
    "error_max_turns",
    "error_max_budget_usd",
    "error_during_execution",
    "error_max_structured_output_retries",
]


@attrs.frozen(kw_only=True)
class Denial:
    """A call that permission rules refused."""

    tool_name: str
    tool_use_id: str
    tool_input: Mapping[str, Any]
    reason: str


@attrs.frozen(kw_only=True)
class ModelUsage:
    """What one model was used for, over the whole tree. ``cost_usd`` is None while the price is unknown."""

    usage: Usage = attrs.field(factory=Usage)
    cost_usd: float | None = 0.0
    requests: int = 0
    context_window: int | None = None
    max_output_tokens: int | None = None


@attrs.frozen(kw_only=True)
class Result:
    """
    The one record of a run's end.

    ``text`` is the last text of the last assistant message; times are seconds; ``cost_usd`` is None as soon
    as one response's price is unknown (an unknown price is never shown as 0). ``is_success`` decides the
    exit code of the command line.
    """

    subtype: ResultSubtype
    terminal_reason: TerminalReason
    session_id: str
    run_id: str
    text: str = ""
    num_turns: int = 0
    duration: float = 0.0
    duration_api: float = 0.0
    time_to_first_token: float | None = None
    stop_reason: str | None = None
    usage: Usage = attrs.field(factory=Usage)
    model_usage: Mapping[str, ModelUsage] = attrs.field(factory=dict)
    cost_usd: float | None = 0.0
    permission_denials: tuple[Denial, ...] = ()
    errors: tuple[str, ...] = ()
    api_error_status: int | None = None
    deferred: tuple[Denial, ...] = ()
    """Calls that a hook put off, for somebody else to answer."""
    structured_output: Any = None
    """The answer that fits the agent's output schema, if there is one."""
    error_kind: str | None = None
    """The `FailureKind` of the model failure that ended the run, if one did."""

    @property
    def is_success(self) -> bool:
        return self.subtype == "success" and not self.errors

    @property
    def is_error(self) -> bool:
        return not self.is_success
