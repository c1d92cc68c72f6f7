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
from .blocks import LIMIT_REASONS, BlockBuilder
from .events import InputJsonDelta, StreamEvent, TextDelta, ThinkingDelta
from .messages import JsonObject, StopReason, Usage
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

__all__ = ["MessageAssembler"]

_MAX_NOTES = 20
_EXCERPT = 300
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
    _closed: set[int] = attrs.field(factory=set)
    _held: list[JsonObject] = attrs.field(factory=list)
    """Blocks that message_start came with."""
    _notes: list[str] = attrs.field(factory=list)

    def feed(self, event: ServerSentEvent) -> Sequence[StreamItem]:
        """Take one event."""
        if self._over:
            return _NOTHING
        try:
            raw, torn = parse_object(event.data)
        except Unparsable as problem:
            return self._unparsable(event, problem)
        kind = raw.get("type") or event.event
        if kind == "content_block_delta":
            return self._delta(raw, torn)
        if torn:
            raw = without_surrogates(raw)
        if event.event == "error":
            return self._error(raw)
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
        if "error" in raw and ("type" not in raw or str(kind).endswith("error")) and error_object(raw) is not None:
            return self._error(raw)
        return (StreamEvent(raw),)

    def finish(self) -> Sequence[StreamItem]:
        """The body has ended."""
        if self._over:
            return _NOTHING
        if self._stop_reason is not None:
            self._note("the stream ended without message_stop")
            return self._end(None)
        if not self._started:
            return self._fail("the response's body ended before its first event", FailureKind.TRUNCATED)
        where = f"after {len(self._closed)} complete content blocks"
        if self._open:
            index, block = min(self._open.items(), key=lambda item: item[0])
            where = f"inside content block {index} ({block.type})"
        return self._fail(f"the response ended {where}, before its message was complete", FailureKind.TRUNCATED)

    # --- events ---------------------------------------------------------------------------------------

    def _delta(self, raw: JsonObject, torn: bool) -> Sequence[StreamItem]:
        delta = raw.get("delta")
        if type(delta) is not dict:
            self._note("a content_block_delta without a delta")
            return (StreamEvent(without_surrogates(raw) if torn else raw),)
        index: Any = raw.get("index")
        block = self._open.get(index) if type(index) is int else None
        if block is None or torn:
            return self._odd_delta(raw, delta, block, torn)
        kind = delta.get("type")
        if kind == "text_delta" and type(text := delta.get("text")) is str:
            block.texts.add(text)
            return (TextDelta(raw, index, text),)
        return (self._take_delta(raw, index, block, delta, delta),)

    def _odd_delta(
        self, raw: JsonObject, delta: JsonObject, block: BlockBuilder | None, torn: bool
    ) -> Sequence[StreamItem]:
        """A delta for a block that isn't open, or with half characters."""
        before: Sequence[StreamItem] = _NOTHING
        index = raw.get("index")
        if block is None:
            index, block, before = self._block_for(index, delta.get("type"))
        if torn:
            # The halves are collected; what is shown has to be whole.
            raw = without_surrogates(raw)
        if block is None or type(index) is not int:
            return (*before, StreamEvent(raw))
        block.torn = block.torn or torn
        return (*before, self._take_delta(raw, index, block, delta, raw["delta"]))

    def _take_delta(
        self, raw: JsonObject, index: int, block: BlockBuilder, delta: JsonObject, shown: JsonObject
    ) -> StreamItem:
        kind = delta.get("type")
        if kind == "text_delta" and type(text := delta.get("text")) is str:
            block.texts.add(text)
            return TextDelta(raw, index, shown["text"])
        if kind == "input_json_delta" and type(text := delta.get("partial_json")) is str:
            block.jsons.add(text)
            return InputJsonDelta(raw, index, shown["partial_json"])
        if kind == "thinking_delta" and type(text := delta.get("thinking")) is str:
            block.thinking.add(text)
            return ThinkingDelta(raw, index, shown["thinking"])
        problem = block.merge(delta)
        if problem is not None:
            self._note(problem)
        return StreamEvent(raw)

    def _block_for(self, index: object, kind: object) -> tuple[int, BlockBuilder | None, Sequence[StreamItem]]:
        """The block of a delta whose index names none: the last one, if it fits, or a new one of a plain type."""
        last = self._open.get(self._last_index)
        if type(index) is not int:
            if last is not None:
                self._note("a delta without an index")
                return self._last_index, last, _NOTHING
        elif (
            kind == "input_json_delta" and index > self._last_index and last is not None and last.type.endswith("_use")
        ):
            self._note("a piece of a call's input under an index that was never begun")
            return self._last_index, last, _NOTHING
        type_name = {"text_delta": "text", "thinking_delta": "thinking"}.get(str(kind))
        if type_name is None or (type(index) is int and index in self._closed):
            self._note(f"a {kind} for a content block that is not open")
            return -1, None, _NOTHING
        self._note(f"a {type_name} block without content_block_start")
        number = index if type(index) is int else self._last_index + 1
        before = (*self._open_message({}), *self._release())
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
        if self._held:
            before = (*before, *self._release(index))
        closed: Sequence[StreamItem] = _NOTHING
        if index in self._open:
            self._note(f"content block {index} was begun twice")
            if self._open[index].is_begun_by(content):
                return (*before, StreamEvent(raw))
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
        builder = self._open.pop(index)
        for kind in builder.strays():
            self._note(f"a {kind} in a {builder.type} block")
        self._closed.add(index)
        return (BlockCompleted(index, builder.build(), raw),)

    def _release(self, begun: int | None = None) -> Sequence[StreamItem]:
        """
        The blocks that message_start held count, once it is clear that the stream doesn't repeat them (tools would
        run twice): at its end, or when a block is ``begun`` behind them.
        """
        held, self._held = self._held, []
        if not held:
            return _NOTHING
        if begun is not None and begun < len(held):
            self._note("message_start held blocks that were streamed as well")
            return _NOTHING
        items: list[StreamItem] = []
        for part in held:
            self._last_index += 1
            self._open[self._last_index] = BlockBuilder(part)
            items += self._complete(self._last_index, None)
        return items

    def _message_start(self, raw: JsonObject) -> Sequence[StreamItem]:
        message = raw.get("message")
        if not isinstance(message, dict):
            self._note("a message_start without a message")
            message = {}
        if self._started:
            id = _text(message.get("id"))
            if not self._message_id or id in ("", self._message_id):
                self._note("message_start came twice or late")
                self._usage = self._usage.updated(_object(message.get("usage")))
                return (StreamEvent(raw),)
            return self._fail("the stream began a second message inside the first", FailureKind.MALFORMED)
        return self._open_message(message, raw)

    def _open_message(self, message: Mapping[str, Any], raw: JsonObject | None = None) -> Sequence[StreamItem]:
        """`MessageStarted`, once."""
        if self._started:
            return _NOTHING
        self._started = True
        if raw is None:
            self._note("the stream has no message_start")
        self._message_id = _text(message.get("id"))
        self._model = _text(message.get("model"))
        self._usage = self._usage.updated(_object(message.get("usage")))
        self._stop_reason = _text(message.get("stop_reason")) or None
        content = message.get("content")
        self._held = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        return (MessageStarted(self._message_id, self._model, self._usage, raw or {}),)

    def _message_delta(self, raw: JsonObject) -> Sequence[StreamItem]:
        before = self._open_message({})
        delta = _object(raw.get("delta")) or {}
        reason = _text(delta.get("stop_reason"))
        if reason:
            self._stop_reason = reason
        self._usage = self._usage.updated(_object(raw.get("usage")))
        return (*before, StreamEvent(raw))

    def _end(self, raw: JsonObject | None) -> Sequence[StreamItem]:
        items = list(self._release())
        if not self._started or (self._stop_reason is None and not self._closed and not self._open):
            return self._fail("the response ended without any content", FailureKind.TRUNCATED)
        incomplete: list[IncompleteBlock] = []
        for index in sorted(self._open):
            block = self._open[index]
            if block.usable(cut=self._stop_reason in LIMIT_REASONS):
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
        type_name, message = error_object(raw) or error_object({"error": raw}) or ("", "")
        request = raw.get("request_id")
        return self._failed(
            failure_from_error(type_name, message, request_id=request if isinstance(request, str) else None)
        )

    def _unparsable(self, event: ServerSentEvent, problem: Unparsable) -> Sequence[StreamItem]:
        data = event.data.strip()
        if event.event == "error":
            text = data[:_EXCERPT].decode("utf-8", "replace") or "the server gave no reason"
            return self._failed(failure_from_error("", text))
        if data == b"[DONE]" or not data:
            return _NOTHING
        if not data.startswith(b"{") and event.event in ("message", "ping"):
            self._note(f"an event that is no JSON object was passed over: {data[:80]!r}")
            return _NOTHING
        return self._fail(f"an event of the response is no JSON: {problem}", FailureKind.MALFORMED)

    def _fail(self, message: str, kind: FailureKind) -> Sequence[StreamItem]:
        return self._failed(ModelFailure(kind=kind, message=message, retryable=True))

    def _failed(self, failure: ModelFailure) -> Sequence[StreamItem]:
        """The end; unless all that matters has come, as then nothing was lost."""
        if self._stop_reason is not None and not self._open and (self._closed or self._held):
            self._note(f"after the end of the message: {failure.message}")
            return self._end(None)
        self._over = True
        return (StreamFailed(failure),)

    def _note(self, text: str) -> None:
        text = text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."
        if len(self._notes) < _MAX_NOTES and text not in self._notes:
            self._notes.append(text)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) else None
