"""
The model as the kernel sees it: a request, a stream of items, a failure.

A `Provider` maps between these and one HTTP API. It is pure (no I/O): the streamer actor moves the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

import attrs

from .events import StreamEvent
from .messages import Block, JsonObject, StopReason, Usage
from .sse import ServerSentEvent

__all__ = [
    "Assembler",
    "BlockCompleted",
    "FailureKind",
    "HttpRequest",
    "IncompleteBlock",
    "MessageEnded",
    "MessageStarted",
    "ModelFailure",
    "ModelRequest",
    "Provider",
    "StreamFailed",
    "StreamItem",
]


@attrs.frozen(kw_only=True)
class ModelRequest:
    """
    One request, provider-neutral.

    ``messages`` and ``tools`` are wire-shaped (the Messages API is the kernel's own tongue; another
    provider's mapping translates). ``max_tokens`` is the output cap.
    """

    model: str
    messages: Sequence[JsonObject]
    system: Sequence[str] = ()
    tools: Sequence[JsonObject] = ()
    max_tokens: int = 8_000
    thinking: JsonObject | None = None
    betas: tuple[str, ...] = ()
    extra: Mapping[str, Any] = attrs.field(factory=dict)
    """More top-level fields of the request body (output_config, metadata, context_management, ...)."""


@attrs.frozen(kw_only=True)
class HttpRequest:
    url: str
    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"


class FailureKind(StrEnum):
    """What kind of thing went wrong; the loop decides by it, never by texts."""

    UNREACHABLE = "unreachable"
    """No connection could be made: refused, unknown host, no route."""
    CONNECTION = "connection"
    """The connection broke."""
    TIMEOUT = "timeout"
    STALLED = "stalled"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    TLS = "tls"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    AUTHENTICATION = "authentication_failed"
    BILLING = "billing_error"
    PERMISSION = "permission"
    NOT_FOUND = "model_not_found"
    INVALID_REQUEST = "invalid_request"
    REQUEST_TOO_LARGE = "request_too_large"
    PROMPT_TOO_LONG = "prompt_too_long"
    CONTEXT_OVERFLOW = "context_overflow"
    MEDIA = "media_error"
    ACTOR_CRASHED = "actor_crashed"
    UNKNOWN = "unknown"


@attrs.frozen(kw_only=True)
class ModelFailure:
    """
    A failed attempt, classified.

    ``retryable`` says whether the same request may be sent again; ``retry_after`` (seconds) is what the
    server asked for. ``input_tokens``, ``max_tokens`` and ``window`` are the numbers a context overflow or a
    too-long prompt named, where it did.
    """

    kind: FailureKind
    message: str
    retryable: bool
    status: int | None = None
    retry_after: float | None = None
    request_id: str | None = None
    input_tokens: int | None = None
    max_tokens: int | None = None
    window: int | None = None


# --- stream items: what an assembler makes of a response ------------------------------------------


@attrs.frozen
class MessageStarted:
    message_id: str
    model: str
    usage: Usage
    raw: JsonObject


@attrs.frozen
class BlockCompleted:
    """A content block is whole: the loop may act on it while the rest still streams."""

    index: int
    block: Block
    raw: JsonObject | None = None


@attrs.frozen
class IncompleteBlock:
    """A block that never got its stop event. It is never run and never sent back."""

    index: int
    type: str
    text: str
    """What had come: text, or the tool's cut JSON."""
    name: str = ""
    id: str = ""


@attrs.frozen
class MessageEnded:
    """
    The response is complete (``stop_reason`` known, or message_stop seen).

    ``incomplete`` lists blocks that were cut (output limit); ``notes`` what was odd but harmless.
    """

    stop_reason: StopReason | None
    usage: Usage
    raw: JsonObject | None = None
    incomplete: tuple[IncompleteBlock, ...] = ()
    notes: tuple[str, ...] = ()


@attrs.frozen
class StreamFailed:
    """The attempt failed within the stream (error event, truncation, garbage)."""

    failure: ModelFailure


StreamItem: TypeAlias = StreamEvent | MessageStarted | BlockCompleted | MessageEnded | StreamFailed
"""
`StreamEvent` (and its typed children) is passed on to subscribers as it is; every wire event yields
exactly one item that carries it as ``raw``.
"""


class Assembler(Protocol):
    """Accumulates one response. Not reusable."""

    def feed(self, event: ServerSentEvent) -> Sequence[StreamItem]:
        """Take one event. Raises nothing for bad input: oddities are items."""
        ...

    def finish(self) -> Sequence[StreamItem]:
        """The body has ended: `MessageEnded` if only the last frame was missing, else `StreamFailed`."""
        ...


class Provider(Protocol):
    """One model API, as pure mappings."""

    @property
    def name(self) -> str: ...

    @property
    def endpoint(self) -> str:
        """Identifies (base URL, key) for shared rate gates, without revealing the key."""
        ...

    def http_request(self, request: ModelRequest, *, stream: bool) -> HttpRequest: ...

    def assembler(self) -> Assembler: ...

    def parse_body(self, body: bytes) -> Sequence[StreamItem]:
        """The items of a non-streaming answer."""
        ...

    def classify(self, status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> ModelFailure:
        """What an HTTP error means. ``headers`` has lower-case names; ``now`` is Unix time, for dates in headers."""
        ...
