"""A Messages API answer that came whole, without streaming: the same items as its stream would give. Sans-I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .apierrors import error_object, failure_from_error
from .blocks import LIMIT_REASONS, BlockBuilder
from .messages import Usage
from .model import (
    BlockCompleted,
    FailureKind,
    IncompleteBlock,
    MessageEnded,
    MessageStarted,
    ModelFailure,
    StreamFailed,
    StreamItem,
)
from .wirejson import Unparsable, parse_object, without_surrogates

__all__ = ["body_items"]


def body_items(body: bytes) -> Sequence[StreamItem]:
    """The items of a whole message (an answer without streaming), or the failure that the body is."""
    try:
        message, torn = parse_object(body)
    except Unparsable as problem:
        return (_malformed(f"the response is no JSON: {problem}"),)
    if torn:
        message = without_surrogates(message)
    error = error_object(message) if message.get("type") != "message" else None
    if error is not None:
        return (StreamFailed(failure_from_error(*error)),)
    content = message.get("content")
    if not isinstance(content, list):
        return (_malformed("the response is no message: it has no content"),)
    counts = message.get("usage")
    usage = Usage().updated(counts if isinstance(counts, dict) else None)
    started = MessageStarted(_text(message, "id"), _text(message, "model"), usage, {})
    builders = {n: BlockBuilder(part) for n, part in enumerate(content) if isinstance(part, dict)}
    reason = _text(message, "stop_reason") or None
    incomplete: tuple[IncompleteBlock, ...] = ()
    if reason in LIMIT_REASONS and builders:
        last = max(builders)
        if builders[last].type == "tool_use":
            # Nothing tells whether the limit cut this call; it must not run if it did.
            incomplete = (builders.pop(last).incomplete(last),)
    blocks = [BlockCompleted(n, builder.build()) for n, builder in builders.items()]
    return (started, *blocks, MessageEnded(reason, usage, incomplete=incomplete))


def _malformed(message: str) -> StreamFailed:
    return StreamFailed(ModelFailure(kind=FailureKind.MALFORMED, message=message, retryable=True))


def _text(message: Mapping[str, object], name: str) -> str:
    value = message.get(name)
    return value if isinstance(value, str) else ""
