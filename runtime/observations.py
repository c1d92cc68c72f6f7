"""What `decide` may be told: facts, as values."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs

from .messages import Block, Message, StopReason, ToolResultBlock, Usage, UserMessage
from .model import IncompleteBlock, ModelFailure
from .records import Priority
from .result import TerminalReason
from .state import Phase

__all__ = [
    "BlockArrived",
    "CallEnded",
    "CompactFailed",
    "CompactLevel",
    "Compacted",
    "ContextReady",
    "InputAccepted",
    "Interrupted",
    "MessageQueued",
    "Observation",
    "PartFailed",
    "ResponseFailed",
    "ResponseFinished",
    "ResponseOpened",
    "ResponseRestarted",
    "SetupFailed",
    "StopHooksEnded",
    "TimeExpired",
]


@attrs.frozen(kw_only=True)
class InputAccepted:
    """A submission starts the run."""

    message: UserMessage


@attrs.frozen(kw_only=True)
class ContextReady:
    """Context preprocessing is done; ``messages`` is the history it left."""

    messages: tuple[Message, ...]
    view: tuple[Message, ...] | None = None
    """What the model is to see of them; None: all."""
    staged_collapses: int = 0
    compacted: str | None = None
    """Why the history is another one than before, if it is."""
    pre_tokens: int | None = None
    post_tokens: int | None = None
    attachments: tuple[UserMessage, ...] = ()
    """What joins the history now."""
    spent_usd: float | None = 0.0
    """What the run has cost so far; None: a price is unknown."""


@attrs.frozen(kw_only=True)
class SetupFailed:
    """The turn could not be prepared (prompt builder, context pipeline)."""

    error: str
    reason: TerminalReason = TerminalReason.TURN_SETUP_FAILED


@attrs.frozen(kw_only=True)
class ResponseOpened:
    request: int
    message_id: str
    model: str
    usage: Usage


@attrs.frozen(kw_only=True)
class BlockArrived:
    """A content block is whole. A tool_use block's id is unique within the session by now."""

    request: int
    index: int
    block: Block


@attrs.frozen(kw_only=True)
class ResponseFinished:
    request: int
    stop_reason: StopReason | None
    usage: Usage
    incomplete: tuple[IncompleteBlock, ...] = ()


@attrs.frozen(kw_only=True)
class ResponseRestarted:
    """The same request is sent again: what came of it so far is void."""

    request: int
    reason: str


@attrs.frozen(kw_only=True)
class ResponseFailed:
    """The streamer gave up on this request. ``crashed``: it was the streamer itself that failed."""

    request: int
    failure: ModelFailure
    crashed: bool = False


@attrs.frozen(kw_only=True)
class CallEnded:
    """A call's one result. ``stop_loop`` carries the reason if a hook asked to end the loop."""

    call_id: str
    result: ToolResultBlock
    details: Any = None
    duration: float = 0.0
    stop_loop: str | None = None
    deferred: bool = False
    """A hook put the call off: the run ends, somebody else answers it."""


@attrs.frozen(kw_only=True)
class MessageQueued:
    """A steering message came while the run was busy. It is in the journal."""

    message: UserMessage
    priority: Priority = "next"


@attrs.frozen(kw_only=True)
class Interrupted:
    """The run was told to end now, ``during`` a phase (the actors' last words may have moved it on since)."""

    reason: str
    during: Phase


@attrs.frozen(kw_only=True)
class TimeExpired:
    """The run has used up its time (seconds), ``during`` a phase."""

    limit: float
    during: Phase


CompactLevel: TypeAlias = Literal["drain", "reactive"]


@attrs.frozen(kw_only=True)
class Compacted:
    """Room was made."""

    level: CompactLevel
    messages: tuple[Message, ...]
    pre_tokens: int | None = None
    post_tokens: int | None = None


@attrs.frozen(kw_only=True)
class CompactFailed:
    level: CompactLevel
    error: str


@attrs.frozen(kw_only=True)
class StopHooksEnded:
    """
    What all stop hooks said: ``blocking`` are reasons to go on, for the model; ``prevent`` a reason to end whatever
    the others say.
    """

    blocking: tuple[str, ...] = ()
    prevent: str | None = None


@attrs.frozen(kw_only=True)
class PartFailed:
    """An actor of the run failed for good (its supervisor gave up)."""

    name: str
    error: str


Observation: TypeAlias = (
    InputAccepted
    | ContextReady
    | SetupFailed
    | ResponseOpened
    | BlockArrived
    | ResponseFinished
    | ResponseRestarted
    | ResponseFailed
    | CallEnded
    | MessageQueued
    | Interrupted
    | TimeExpired
    | Compacted
    | CompactFailed
    | StopHooksEnded
    | PartFailed
)
