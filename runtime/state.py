"""
The loop's state: what is carried from one iteration to the next, and what this iteration has so far.

Frozen: every step builds a new state (`attrs.evolve`), so a test can hold two and compare them whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from functools import lru_cache
from hashlib import sha1
from typing import Any, TypeVar
from uuid import UUID, uuid5

import attrs

from .backoff import Position
from .messages import (
    AssistantMessage,
    Block,
    Message,
    RedactedThinkingBlock,
    StopReason,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UserMessage,
)
from .model import IncompleteBlock, ModelFailure
from .progress import Circles
from .result import TerminalReason

__all__ = [
    "STRUCTURED_OUTPUT",
    "Call",
    "Compaction",
    "ContinueReason",
    "Limits",
    "LoopState",
    "Phase",
    "TokenTarget",
    "Turn",
    "assistant_message",
    "block_id",
    "changed",
    "derive_id",
    "result_id",
    "results_message",
]


S = TypeVar("S", bound="LoopState | Turn")

STRUCTURED_OUTPUT = "StructuredOutput"
"""The tool that takes the final answer where a schema is set for it."""


class ContinueReason(StrEnum):
    """Why the loop goes round again (SPEC 3)."""

    NEXT_TURN = "next_turn"
    COLLAPSE_DRAIN_RETRY = "collapse_drain_retry"
    REACTIVE_COMPACT_RETRY = "reactive_compact_retry"
    MAX_OUTPUT_TOKENS_ESCALATE = "max_output_tokens_escalate"
    MAX_OUTPUT_TOKENS_RECOVERY = "max_output_tokens_recovery"
    STOP_HOOK_BLOCKING = "stop_hook_blocking"
    TOKEN_BUDGET_CONTINUATION = "token_budget_continuation"
    MODEL_FALLBACK_RETRY = "model_fallback_retry"


class Phase(Enum):
    """Where an iteration stands; each phase waits for one kind of observation."""

    START = "start"
    PREPARE = "prepare"
    """Context preprocessing runs."""
    STREAM = "stream"
    """The model answers; finished calls may already run."""
    TOOLS = "tools"
    """The response is complete; calls are still open."""
    RECOVER = "recover"
    """Room is being made for a request that was refused."""
    HOOKS = "hooks"
    """Stop hooks look at the end of the run."""
    TERMINAL = "terminal"


@attrs.frozen(kw_only=True)
class Limits:
    """What bounds a run. Fixed while it lasts."""

    max_turns: int | None = None
    max_output_tokens: int | None = None
    """The user's own output cap; it switches escalation off."""
    default_output_tokens: int = 8_000
    escalated_output_tokens: int = 64_000
    max_output_recoveries: int = 3
    max_calls_per_response: int = 256
    """More calls than this in one response are answered with an error: the executor's replies have that much room."""
    max_crash_retries: int = 2
    max_malformed: int = 3
    """Responses in a row in which no tool call was JSON, that are answered with a correction."""
    no_progress_note: int | None = 5
    """Repetitions of the same calls with the same results after which the model is told."""
    no_progress_end: int | None = 10
    """Repetitions after which the run ends; None: never."""
    wants_structured_output: bool = False
    max_structured_output_retries: int = 5
    has_stop_hooks: bool = False
    stop_hook_cap: int = 8
    """Times that stop hooks may keep a run from its end; 0: as often as they like."""
    token_target: int | None = None
    """Output tokens that the run should spend before it ends by itself."""
    task_budget: int | None = None
    """Tokens that the API is told the task may take."""
    max_budget_usd: float | None = None
    max_cut_recoveries: int = 3
    """Responses in a row that may break off after a text, each of which the model is asked to go on from."""
    max_pauses: int = 8


@attrs.frozen(kw_only=True)
class Call:
    """One tool call of this turn, and its result once there is one."""

    block: ToolUseBlock
    result: ToolResultBlock | None = None
    details: Any = None
    stop_loop: str | None = None
    """Why the loop shall end after this call, if a hook wants that."""
    deferred: bool = False


@attrs.frozen(kw_only=True, slots=False)
class Turn:
    """
    What this iteration has so far.

    ``request`` numbers the run's model requests; anything that comes from an older one is ignored.
    """

    request: int = 0
    message_id: str = ""
    model: str = ""
    blocks: tuple[Block, ...] = ()
    calls: tuple[Call, ...] = ()
    stop_reason: StopReason | None = None
    usage: Usage = attrs.field(factory=Usage)
    incomplete: tuple[IncompleteBlock, ...] = ()
    crashes: int = 0

    @property
    def open_calls(self) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if call.result is None)

    @property
    def position(self) -> Position:
        if any(not isinstance(block, ThinkingBlock | RedactedThinkingBlock) for block in self.blocks):
            return Position.COMMITTED
        return Position.THINKING if self.blocks else Position.NOTHING


@attrs.frozen(kw_only=True)
class Compaction:
    """When compaction last happened (turn number) and how often it failed since it last succeeded."""

    last_turn: int | None = None
    failures: int = 0


@attrs.frozen(kw_only=True)
class TokenTarget:
    """How the run moves towards its token target: continuations so far, what the last one brought, output then."""

    continuations: int = 0
    last_delta: int = 0
    last_total: int = 0


@attrs.frozen(kw_only=True, slots=False)
class LoopState:
    """
    The whole state of a run.

    ``messages`` is the session's history; a response and its tool results join it together, so that it is
    valid whenever it can be read.
    """

    run_id: str
    model: str
    limits: Limits
    messages: tuple[Message, ...] = ()
    phase: Phase = Phase.START
    turn: Turn = attrs.field(factory=Turn)
    turn_count: int = 1
    max_output_tokens_recovery_count: int = 0
    has_attempted_reactive_compact: bool = False
    max_output_tokens_override: int | None = None
    stop_hook_active: bool = False
    stop_hook_blocks: int = 0
    compaction: Compaction = attrs.field(factory=Compaction)
    pending_tool_summary: str | None = None
    transition: ContinueReason | None = None
    fallbacks: tuple[str, ...] = ()
    """Models that take over when this one is no use, in order."""
    withheld: ModelFailure | None = None
    """An error that nobody has heard of yet, since room is being made for another try."""
    staged_collapses: int = 0
    """Parts of the history that could be collapsed at once."""
    token_target: TokenTarget = attrs.field(factory=TokenTarget)
    output_spent: int = 0
    """Output tokens of this run's responses."""
    context_tokens: int = 0
    """What the last response says the context held."""
    task_budget_remaining: int | None = None
    structured_output_retries: int = 0
    malformed_count: int = 0
    circles: Circles = attrs.field(factory=Circles)
    cut_recoveries: int = 0
    """Responses in a row that broke off after a text."""
    pauses: int = 0
    """Responses in a row that ended with pause_turn."""
    view: tuple[Message, ...] | None = None
    """What the model sees of the messages, where that is not all."""
    queued: tuple[UserMessage, ...] = ()
    """Messages that came while the run was busy; they join at the next phase 6."""
    urgent: bool = False
    """They join before the next request, whatever phase comes first."""
    later: tuple[UserMessage, ...] = ()
    """Messages that take the place of the run's end."""
    terminal: TerminalReason | None = None

    @property
    def output_tokens(self) -> int:
        """The output cap of the next request."""
        return self.max_output_tokens_override or self.limits.max_output_tokens or self.limits.default_output_tokens


def changed(value: S, **changes: Any) -> S:
    """
    The same state or turn with some fields changed: `attrs.evolve` at a tenth of its cost.

    A run makes a hundred of them, each with some thirty fields; so these two have no slots, and are copied whole.
    """
    new = object.__new__(type(value))
    fields = new.__dict__
    fields.update(value.__dict__)
    assert changes.keys() <= fields.keys(), "no such field"
    fields.update(changes)
    return new


def derive_id(run_id: str, *parts: object) -> str:
    """
    A UUID that depends only on the run and on what it names.

    The machine is pure and makes messages, so it can't draw random ids; the same run replayed gives the same ids.
    """
    # What `uuid.uuid5` gives, at a fifth of its cost: a run needs hundreds.
    name = "/".join(map(str, parts)).encode("utf-8", "replace")
    digest = bytearray(sha1(_namespace(run_id) + name, usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@lru_cache(maxsize=4096)
def _namespace(run_id: str) -> bytes:
    try:
        return UUID(run_id).bytes
    except ValueError:
        return uuid5(UUID(int=0), run_id).bytes


def assistant_message(state: LoopState, blocks: tuple[Block, ...]) -> AssistantMessage:
    """This turn's response as a message of the history."""
    turn = state.turn
    return AssistantMessage(
        uuid=block_id(state, 0),
        message_id=turn.message_id,
        model=turn.model or state.model,
        requested_model=state.model if turn.model not in ("", state.model) else "",
        content=blocks,
        stop_reason=turn.stop_reason,
        usage=turn.usage,
    )


def results_message(state: LoopState) -> UserMessage:
    """The user message that answers every call of this turn, in call order."""
    turn = state.turn
    results = tuple(call.result for call in turn.calls if call.result is not None)
    details: Mapping[str, Any] = {
        call.block.id: call.details for call in turn.calls if call.result is not None and call.details is not None
    }
    first = turn.calls[0].block.id
    return UserMessage(
        uuid=result_id(state, first),
        content=results,
        origin="tool_results",
        details=details,
    )


def block_id(state: LoopState, position: int) -> str:
    """The id of the journal line (and event) that carries this response's block number ``position``."""
    turn = state.turn
    return derive_id(state.run_id, turn.request, turn.message_id, position)


def result_id(state: LoopState, call_id: str) -> str:
    """The id of the journal line (and event) that carries this call's result."""
    return derive_id(state.run_id, state.turn.request, "result", call_id)
