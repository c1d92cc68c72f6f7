"""
From the events of a Messages API stream to whole content blocks. Sans-I/O.

A block is handed on the moment it is whole, so that a tool may start while the model still streams. Real streams
are odd in many ways (missing stops, repeated indices, cut JSON, usage that is null): each oddity is taken as well
as it can be, noted, and never raised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from .apierrors import error_object, failure_from_error
from .blocks import BlockBuilder
from .events import InputJsonDelta, StreamEvent, TextDelta, ThinkingDelta
from .messages import JsonObject, StopReason, ToolUseBlock, Usage, block_from_wire
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
from .sse import ServerSentEvent
from .wirejson import Unparsable, parse_object, without_surrogates

__all__ = ["MessageAssembler", "body_items"]

_LIMIT_REASONS = frozenset(("max_tokens", "model_context_window_exceeded"))
_MAX_NOTES = 20
_NOTHING: Sequence[StreamItem] = ()


@attrs.define(eq=False)
class MessageAssembler:
    """Accumulates one response. Not reusable."""

    _message_id: str = ""
    _model: str = ""
    _started: bool = False
    _over: bool = False
    _usage: Usage = attrs.field(factory=Usage)
    _stop_reason: StopReason | None = None
    _open: dict[int, BlockBuilder] = attrs.field(factory=dict)
    _last_index: int = -1
    _completed: int = 0
    _calls: int = 0
    _notes: list[str] = attrs.field(factory=list)

    def feed(self, event: ServerSentEvent) -> Sequence[StreamItem]:
        """Take one event."""
        if self._over:
            return _NOTHING
        try:
            raw, surrogates = parse_object(event.data)
        except Unparsable as problem:
            return self._unparsable(event, problem)
        kind = raw.get("type") or event.event
        if kind == "content_block_delta":
            return self._delta(raw, surrogates)
        if surrogates:
            raw = without_surrogates(raw)
        match kind:
            case "content_block_start":
                return self._block_start(raw)
            case "content_block_stop":
                return self._block_stop(raw)
            case "message_start":
                return self._message_start(raw)
            case "message_delta":
                return self._message_delta(raw)
            case "message_stop":
                return self._end(raw)
            case "error":
                return self._error(raw)
        if "error" in raw and error_object(raw) is not None:
            return self._error(raw)
        return (StreamEvent(raw),)

    def finish(self) -> Sequence[StreamItem]:
        """The body has ended."""
        if self._over:
            return _NOTHING
        if self._stop_reason is not None:
            self._note("the stream ended without message_stop")
            return self._end(None)
        self._over = True
        if not self._started:
            return (_failed("the response's body ended before its first event", FailureKind.TRUNCATED),)
        where = f"after {self._completed} complete content blocks"
        if self._open:
            where = f"inside content block {min(self._open)} ({next(iter(self._open.values())).type})"
        return (_failed(f"the response ended {where}, before its message was complete", FailureKind.TRUNCATED),)

    # --- events ---------------------------------------------------------------------------------------

    def _delta(self, raw: JsonObject, surrogates: bool) -> Sequence[StreamItem]:
        delta = raw.get("delta")
        if type(delta) is not dict:
            self._note("a content_block_delta without a delta")
            return (StreamEvent(raw),)
        kind = delta.get("type")
        index: Any = raw.get("index")
        block = self._open.get(index) if type(index) is int else None
        before: Sequence[StreamItem] = _NOTHING
        if block is None:
            index, block, before = self._block_for(index, kind)
            if block is None:
                return (*before, StreamEvent(raw))
        if surrogates:
            # The halves are collected; what is shown has to be whole.
            block.torn, raw = True, without_surrogates(raw)
        shown = raw["delta"]
        item: StreamItem
        if kind == "text_delta" and type(text := delta.get("text")) is str:
            block.texts.append(text)
            item = TextDelta(raw, index, shown["text"])
        elif kind == "input_json_delta" and type(text := delta.get("partial_json")) is str:
            block.jsons.append(text)
            item = InputJsonDelta(raw, index, shown["partial_json"])
        elif kind == "thinking_delta" and type(text := delta.get("thinking")) is str:
            block.thinking.append(text)
            item = ThinkingDelta(raw, index, shown["thinking"])
        else:
            problem = block.merge(delta)
            if problem is not None:
                self._note(problem)
            item = StreamEvent(raw)
        return (item,) if not before else (*before, item)

    def _block_for(self, index: object, kind: object) -> tuple[int, BlockBuilder | None, Sequence[StreamItem]]:
        """The block of a delta whose index names none: the last one that is open, or a new one if its type is plain."""
        if type(index) is not int and self._last_index in self._open:
            self._note("a delta without an index")
            return self._last_index, self._open[self._last_index], _NOTHING
        type_name = {"text_delta": "text", "thinking_delta": "thinking"}.get(str(kind))
        if type_name is None:
            self._note(f"a {kind} for a content block that was never begun")
            return -1, None, _NOTHING
        self._note(f"a {type_name} block without content_block_start")
        number = index if type(index) is int else self._last_index + 1
        before = self._open_message({})
        self._open[number] = block = BlockBuilder({"type": type_name})
        self._last_index = number
        return number, block, before

    def _block_start(self, raw: JsonObject) -> Sequence[StreamItem]:
        before = self._open_message({})
        content = raw.get("content_block")
        if not isinstance(content, dict):
            self._note("a content_block_start without a content_block")
            return (*before, StreamEvent(raw))
        index = raw.get("index")
        if type(index) is not int:
            self._note("a content_block_start without an index")
            index = self._last_index + 1
        closed: Sequence[StreamItem] = _NOTHING
        if index in self._open:
            self._note(f"content block {index} was begun twice")
            closed = self._complete(index, None)
        self._open[index] = BlockBuilder(content)
        self._last_index = index
        return (*before, *closed, StreamEvent(raw))

    def _block_stop(self, raw: JsonObject) -> Sequence[StreamItem]:
        index = raw.get("index")
        if type(index) is not int or index not in self._open:
            if type(index) is not int and self._last_index in self._open:
                index = self._last_index
            else:
                self._note("a content_block_stop for a block that is not open")
                return (StreamEvent(raw),)
        return self._complete(index, raw)

    def _complete(self, index: int, raw: JsonObject | None) -> Sequence[StreamItem]:
        block = self._open.pop(index).build()
        self._completed += 1
        if isinstance(block, ToolUseBlock):
            self._calls += 1
        return (BlockCompleted(index, block, raw),)

    def _message_start(self, raw: JsonObject) -> Sequence[StreamItem]:
        message = raw.get("message")
        if not isinstance(message, dict):
            self._note("a message_start without a message")
            message = {}
        if self._started:
            if message.get("id") == self._message_id:
                self._note("message_start came twice")
                return (StreamEvent(raw),)
            return self._fail("the stream began a second message inside the first", FailureKind.MALFORMED)
        return self._open_message(message, raw)

    def _open_message(self, message: Mapping[str, Any], raw: JsonObject | None = None) -> Sequence[StreamItem]:
        """`MessageStarted`, once; with the blocks that the message already holds."""
        if self._started:
            return _NOTHING
        self._started = True
        if raw is None:
            self._note("the stream has no message_start")
        self._message_id = _text(message.get("id"))
        self._model = _text(message.get("model"))
        self._usage = self._usage.updated(_object(message.get("usage")))
        self._stop_reason = _text(message.get("stop_reason")) or None
        items: list[StreamItem] = [MessageStarted(self._message_id, self._model, self._usage, raw or {})]
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict):
                self._last_index += 1
                self._open[self._last_index] = BlockBuilder(part)
                items += self._complete(self._last_index, None)
        return items

    def _message_delta(self, raw: JsonObject) -> Sequence[StreamItem]:
        before = self._open_message({})
        delta = _object(raw.get("delta")) or {}
        reason = _text(delta.get("stop_reason"))
        if reason:
            self._stop_reason = reason
        self._usage = self._usage.updated(_object(raw.get("usage")))
        return (*before, StreamEvent(raw))

    def _end(self, raw: JsonObject | None) -> Sequence[StreamItem]:
        if not self._started or (self._stop_reason is None and not self._completed and not self._open):
            return self._fail("the response ended without any content", FailureKind.TRUNCATED)
        items: list[StreamItem] = []
        incomplete: list[IncompleteBlock] = []
        for index in sorted(self._open):
            block = self._open[index]
            if block.usable(cut=self._stop_reason in _LIMIT_REASONS):
                self._note(f"content block {index} has no content_block_stop")
                items += self._complete(index, None)
            else:
                incomplete.append(block.incomplete(index))
        if self._stop_reason is None:
            self._note("the message has no stop_reason")
        self._over = True
        ended = MessageEnded(
            self._stop_reason, self._usage, raw, incomplete=tuple(incomplete), notes=tuple(self._notes)
        )
        return (*items, ended)

    def _error(self, raw: JsonObject) -> Sequence[StreamItem]:
        type_name, message = error_object(raw) or ("", "the server gave no reason")
        self._over = True
        request = raw.get("request_id")
        failure = failure_from_error(type_name, message, request_id=request if isinstance(request, str) else None)
        return (StreamFailed(failure),)

    def _unparsable(self, event: ServerSentEvent, problem: Unparsable) -> Sequence[StreamItem]:
        data = event.data.strip()
        if data == b"[DONE]" or not data:
            return _NOTHING
        if not data.startswith(b"{") and event.event in ("message", "ping"):
            self._note(f"an event that is no JSON object was passed over: {data[:80]!r}")
            return _NOTHING
        return self._fail(f"an event of the response is no JSON: {problem}", FailureKind.MALFORMED)

    def _fail(self, message: str, kind: FailureKind) -> Sequence[StreamItem]:
        self._over = True
        return (_failed(message, kind),)

    def _note(self, text: str) -> None:
        if len(self._notes) < _MAX_NOTES and text not in self._notes:
            self._notes.append(text)


def body_items(body: bytes) -> Sequence[StreamItem]:
    """The items of a whole message (an answer without streaming), or the failure that the body is."""
    try:
        message, _ = parse_object(body)
    except Unparsable as problem:
        return (_failed(f"the response is no JSON: {problem}", FailureKind.MALFORMED),)
    error = error_object(message) if message.get("type") != "message" else None
    if error is not None:
        return (StreamFailed(failure_from_error(*error)),)
    content = message.get("content")
    if not isinstance(content, list):
        return (_failed("the response is no message: it has no content", FailureKind.MALFORMED),)
    usage = Usage().updated(_object(message.get("usage")))
    started = MessageStarted(_text(message.get("id")), _text(message.get("model")), usage, {})
    blocks = [BlockCompleted(n, block_from_wire(part)) for n, part in enumerate(content) if isinstance(part, dict)]
    reason = _text(message.get("stop_reason")) or None
    return (started, *blocks, MessageEnded(reason, usage))


def _failed(message: str, kind: FailureKind) -> StreamFailed:
    return StreamFailed(ModelFailure(kind=kind, message=message, retryable=True))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) else None
