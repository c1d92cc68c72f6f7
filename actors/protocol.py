"""
What the actors of a run say to each other.

Everything the loop learns comes through its one inbox as a `LoopInput`. The graph of blocking sends has no
cycle: the streamer may wait for the loop, the loop may wait for the recorder, and nobody waits for somebody
who waits for him. Answers use the room that the loop's mailbox reserves for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import attrs
import trio

from atrio.runtime.backoff import Position, Retry
from atrio.runtime.messages import Message, ToolResultBlock, ToolUseBlock, Usage
from atrio.runtime.model import ModelFailure, ModelRequest, StreamItem
from atrio.runtime.observations import CompactLevel
from atrio.runtime.result import Denial, TerminalReason

from .dependencies import Prepared

__all__ = [
    "ActivityNoted",
    "ActorDown",
    "CallDone",
    "CallReported",
    "CallStarted",
    "CallsSummarized",
    "ContextJob",
    "ContextPrepared",
    "ContextRefused",
    "LoopInput",
    "MakeRoom",
    "ModelCall",
    "ModelCallFailed",
    "ModelCallRestarted",
    "NoRoom",
    "PrepareContext",
    "RoomMade",
    "RunCall",
    "Stalled",
    "Steered",
    "StreamBatch",
    "Waiting",
]


BATCH_ITEMS = 16
"""Stream items in one message to the loop; what comes beyond makes the next one."""


# --- to the streamer and the executor -------------------------------------------------------------


@attrs.frozen
class ModelCall:
    """Send this request; everything that comes of it carries ``number``."""

    number: int
    request: ModelRequest
    has_fallback: bool = False
    """Another model would take over if this one is overloaded."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, eq=False)
    """Cancelled by the loop when nobody wants the answer any more."""


@attrs.frozen
class RunCall:
    """Queue this tool call; answered by exactly one `CallDone`."""

    block: ToolUseBlock


@attrs.frozen(kw_only=True)
class PrepareContext:
    """
    Make the history ready for a request; answered by `ContextPrepared` or `ContextRefused`.

    ``turn`` counts over the run; ``number`` is that of the request before.
    """

    number: int
    turn: int
    model: str
    max_tokens: int
    messages: tuple[Message, ...]


@attrs.frozen(kw_only=True)
class MakeRoom:
    """A request was refused for its size or media: make room; answered by `RoomMade` or `NoRoom`."""

    number: int
    turn: int
    model: str
    messages: tuple[Message, ...]
    level: CompactLevel
    failure: ModelFailure


ContextJob: TypeAlias = PrepareContext | MakeRoom


# --- to the loop ----------------------------------------------------------------------------------


@attrs.define(eq=False)
class StreamBatch:
    """
    What came of a response lately.

    An open envelope: as long as it lies in the loop's mailbox, the streamer may put more into it, so that a fast
    stream doesn't cost a message for each of its events. Taking it closes it.
    """

    number: int
    _items: list[StreamItem]
    _taken: bool = False

    def add(self, items: Sequence[StreamItem]) -> bool:
        """Put more in; False if it has been taken, or is full."""
        if self._taken or len(self._items) >= BATCH_ITEMS:
            return False
        self._items += items
        return True

    def take(self) -> Sequence[StreamItem]:
        """Close it; what was in it."""
        self._taken = True
        return self._items


@attrs.frozen(kw_only=True)
class ModelCallRestarted:
    """
    An attempt failed and the request is sent again after ``retry.delay`` seconds, at ``until`` (Trio time).
    With ``void``, something of the failed attempt had been delivered, which no longer counts.
    """

    number: int
    failure: ModelFailure
    retry: Retry
    until: float
    void: bool


@attrs.frozen(kw_only=True)
class ModelCallFailed:
    """The streamer gives up on this request."""

    number: int
    failure: ModelFailure
    position: Position


@attrs.frozen
class CallStarted:
    """The call runs now; its start is in the journal."""

    block: ToolUseBlock


@attrs.frozen(kw_only=True)
class CallReported:
    """Progress of a running call (droppable)."""

    call_id: str
    name: str
    text: str
    data: Any = None
    elapsed: float = 0.0


@attrs.frozen(kw_only=True)
class CallDone:
    """A call's one answer. They come in call order."""

    call_id: str
    result: ToolResultBlock
    details: Any = None
    duration: float = 0.0
    denial: Denial | None = None
    stop_loop: str | None = None
    """Why a hook wants the run to end after this turn's calls."""
    deferred: Denial | None = None
    """The call, if a hook put it off."""


@attrs.frozen(kw_only=True)
class Stalled:
    """Nothing has come for ``idle`` seconds of the ``limit`` at which the watchdog cuts the attempt."""

    level: Literal["event", "byte"]
    idle: float
    limit: float


@attrs.frozen(kw_only=True)
class Waiting:
    """The request can't go out yet, for ``reason``, until ``until`` (Trio time)."""

    number: int
    reason: str
    until: float


SideUsage: TypeAlias = tuple[tuple[str, str, Usage], ...]
"""Responses that were paid for on the way: message id, model, usage."""


@attrs.frozen
class ContextPrepared:
    number: int
    ready: Prepared


@attrs.frozen
class ContextRefused:
    """No request can be made; ``reason`` is how the run ends."""

    number: int
    error: str
    reason: TerminalReason
    paid: SideUsage = ()


@attrs.frozen
class RoomMade:
    number: int
    level: CompactLevel
    ready: Prepared


@attrs.frozen
class NoRoom:
    number: int
    level: CompactLevel
    error: str
    paid: SideUsage = ()


@attrs.frozen
class Steered:
    """There is something in the run's message queue. It is looked at in any case; this wakes a loop that waits."""


@attrs.frozen(kw_only=True)
class ActorDown:
    """An actor of this run ended with an error; with ``final`` it is not restarted."""

    name: str
    error: str
    final: bool


@attrs.frozen
class ActivityNoted:
    """What the agent does right now, in a few words (droppable)."""

    text: str


@attrs.frozen
class CallsSummarized:
    """What the calls of an earlier turn came to, in a few words (droppable)."""

    call_ids: tuple[str, ...]
    text: str


LoopInput: TypeAlias = (
    StreamBatch
    | ModelCallRestarted
    | ModelCallFailed
    | CallStarted
    | CallReported
    | CallDone
    | Stalled
    | Waiting
    | ContextPrepared
    | ContextRefused
    | RoomMade
    | NoRoom
    | Steered
    | ActivityNoted
    | CallsSummarized
    | ActorDown
)
