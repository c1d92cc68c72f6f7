"""
What a run tells its subscribers.

Events are numbered within their session (``seq``, from 1, without gaps over what was published); the
number is stamped once, at publication. *Durable* events describe what is in the journal or decides the
outcome and are never lost; *partial* ones (`Partial`) only show progress, and a subscriber that reads too
slowly may lose some, which a `Lagged` event then counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from .messages import AssistantMessage, Block, JsonObject, ToolResultBlock, Usage, UserMessage
from .result import Result

if TYPE_CHECKING:
    from attrs import frozen as _frozen
else:
    # Frozen for type checkers alone: the guard at run time doubles what an object costs that is made for each token.
    _frozen = attrs.define(unsafe_hash=True)

__all__ = [
    "ActivitySummary",
    "AssistantBlock",
    "CacheBroken",
    "ContextCompacted",
    "Event",
    "Heartbeat",
    "InputJsonDelta",
    "Lagged",
    "MessageWithdrawn",
    "ModelChanged",
    "Notice",
    "Partial",
    "PermissionDenied",
    "PromptSuggested",
    "RequestStarted",
    "ResponseEnded",
    "RetryScheduled",
    "RunEnded",
    "RunStarted",
    "StallWarning",
    "StreamEvent",
    "SubagentEnded",
    "SubagentProgress",
    "SubagentStarted",
    "SubagentStatus",
    "TextDelta",
    "ThinkingDelta",
    "ToolEnded",
    "ToolProgress",
    "ToolQueued",
    "ToolStarted",
    "ToolUseSummary",
    "TurnEnded",
    "UserMessageAdded",
    "stamp",
]


@_frozen
class Event:
    """The base of all events. ``seq`` is 0 until the event is published."""

    seq: int = attrs.field(default=0, init=False, eq=False)


def stamp(event: Event, seq: int) -> None:
    """Number an event, once, at its publication. (Values are frozen for everybody else.)"""
    object.__setattr__(event, "seq", seq)


# --- partial: what streams by ---------------------------------------------------------------------


@_frozen
class Partial(Event):
    """An event that only shows progress; it may be dropped for a subscriber that lags."""


@_frozen
class StreamEvent(Partial):
    """One event of the model's stream, as parsed (``raw``); the typed children name the common ones."""

    raw: JsonObject


@_frozen
class TextDelta(StreamEvent):
    index: int
    text: str


@_frozen
class ThinkingDelta(StreamEvent):
    index: int
    text: str


@_frozen
class InputJsonDelta(StreamEvent):
    """A piece of a tool call's input; only the whole is JSON."""

    index: int
    partial_json: str


@attrs.frozen
class ToolProgress(Partial):
    """What a running tool reports, at once and outside the order of results. ``text`` is for people."""

    call_id: str
    name: str
    text: str
    data: Mapping[str, Any] | None = None
    elapsed: float = 0.0


# --- durable: what happened -----------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class RunStarted(Event):
    """First event of a run: what it runs with."""

    run_id: str
    session_id: str
    model: str
    cwd: str
    tools: tuple[str, ...]
    permission_mode: str
    prompt: UserMessage
    sandbox: str = ""
    """Whether and how commands are confined, in one sentence."""
    mcp_servers: tuple[tuple[str, str], ...] = ()
    """Name and status of each."""
    slash_commands: tuple[str, ...] = ()
    """Names without the slash."""
    agents: tuple[str, ...] = ()
    """Kinds of subagents."""
    skills: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class RequestStarted(Event):
    """A model request goes out; ``attempt`` counts from 1 within the turn."""

    turn: int
    attempt: int
    model: str


@attrs.frozen(kw_only=True)
class AssistantBlock(Event):
    """One finished content block of the response ``message_id``; it is in the journal."""

    uuid: str
    message_id: str
    model: str
    index: int
    block: Block
    usage: Usage


@attrs.frozen(kw_only=True)
class ResponseEnded(Event):
    """The model's response is complete."""

    message: AssistantMessage
    cost_usd: float | None


@attrs.frozen(kw_only=True)
class UserMessageAdded(Event):
    """A user message joined the history: tool results, a steering message, a recovery note."""

    message: UserMessage


@attrs.frozen(kw_only=True)
class ToolQueued(Event):
    call_id: str
    name: str
    input: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class ToolStarted(Event):
    call_id: str
    name: str
    input: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class ToolEnded(Event):
    """A call's one result, in call order. ``details`` is the structured form (never sent to the model)."""

    uuid: str
    call_id: str
    name: str
    result: ToolResultBlock
    duration: float
    details: Any = None


@attrs.frozen(kw_only=True)
class PermissionDenied(Event):
    call_id: str
    name: str
    input: Mapping[str, Any]
    reason: str


@attrs.frozen(kw_only=True)
class RetryScheduled(Event):
    """The next attempt waits ``delay`` seconds, until ``until`` (Trio time)."""

    attempt: int
    max_attempts: int | None
    delay: float
    until: float
    status: int | None
    kind: str
    message: str


@attrs.frozen(kw_only=True)
class Heartbeat(Event):
    """A long wait goes on: for ``reason``, until ``until`` (Trio time; None: as soon as it is possible)."""

    reason: str
    until: float | None


@attrs.frozen(kw_only=True)
class StallWarning(Event):
    """Nothing has come for ``idle`` seconds; at ``limit`` the attempt is cut. ``level`` says nothing of what."""

    level: Literal["event", "byte"]
    idle: float
    limit: float


@attrs.frozen(kw_only=True)
class MessageWithdrawn(Event):
    """A tombstone: the blocks of this response are void (a fallback replaces them); ``uuids`` names them."""

    message_id: str
    uuids: tuple[str, ...]
    reason: str


@attrs.frozen(kw_only=True)
class ModelChanged(Event):
    old: str
    new: str
    reason: str


@attrs.frozen(kw_only=True)
class ContextCompacted(Event):
    """A summary took the place of the history; ``trigger`` says why, the counts are of tokens, as far as known."""

    uuid: str
    trigger: str
    pre_tokens: int
    post_tokens: int | None = None


@attrs.frozen(kw_only=True)
class CacheBroken(Event):
    """
    Far fewer tokens came from the provider's prompt cache than for the request before. ``changes`` says what of the
    request is not as it was; empty if all is, so that the provider itself let go of it.
    """

    tokens_before: int
    tokens_now: int
    changes: tuple[str, ...]
    text: str


@attrs.frozen(kw_only=True)
class Notice(Event):
    """Something a person should know. ``source`` names the part that speaks."""

    level: Literal["info", "warning", "error"]
    source: str
    text: str


@attrs.frozen(kw_only=True)
class ActivitySummary(Event):
    """What the agent does right now, in a few words for people."""

    text: str


@attrs.frozen(kw_only=True)
class ToolUseSummary(Event):
    """What a turn's tool calls came to, in a few words for people. Published with the response that follows them."""

    call_ids: tuple[str, ...]
    text: str


@attrs.frozen(kw_only=True)
class PromptSuggested(Event):
    """What the user may want to ask for next; comes after a run's end, if at all."""

    run_id: str
    text: str


SubagentStatus: TypeAlias = Literal["completed", "failed", "stopped"]


@attrs.frozen(kw_only=True)
class SubagentStarted(Event):
    """
    A subagent begins, for the call ``call_id`` of the Agent tool. ``parent_id`` is the subagent that made the call
    (None: the main agent), ``journal`` its own record.
    """

    agent_id: str
    agent_type: str
    call_id: str
    description: str
    background: bool
    depth: int
    parent_id: str | None
    journal: str


@attrs.frozen(kw_only=True)
class SubagentProgress(Event):
    """A durable event of a subagent's own run, as its parent passes it on."""

    agent_id: str
    call_id: str
    event: Event


@attrs.frozen(kw_only=True)
class SubagentEnded(Event):
    """
    Exactly one for each `SubagentStarted`, before the run's own end. ``usage`` and ``cost_usd`` count all that is
    below it as well; ``duration`` is in seconds.
    """

    agent_id: str
    agent_type: str
    call_id: str
    description: str
    status: SubagentStatus
    journal: str
    text: str
    error: str = ""
    usage: Usage
    cost_usd: float | None
    duration: float
    turns: int
    tool_uses: int


@attrs.frozen(kw_only=True)
class TurnEnded(Event):
    """One model request and its tool calls are over; ``transition`` says why the loop goes on."""

    turn: int
    transition: str


@attrs.frozen(kw_only=True)
class Lagged(Event):
    """Made for one subscriber that read too slowly: so many partial events were dropped at this place."""

    dropped: int


@attrs.frozen(kw_only=True)
class RunEnded(Event):
    """Exactly one for each run, always the last."""

    result: Result
