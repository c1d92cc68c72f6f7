"""From a turn to the bytes of the Messages API: a list of stream frames, or one JSON body. Pure."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import attrs
import orjson

from atrio.runtime.messages import JsonObject

from .replies import Frame
from .turns import BlockPart, Part, RawPart, TextPart, ThinkingPart, ToolPart, Turn

__all__ = ["Answer", "event", "message_body", "signature_of", "stream_frames"]


@attrs.frozen(kw_only=True)
class Answer:
    """A turn with what belongs to this response alone. ``tool_ids`` has one id for each call, in order."""

    turn: Turn
    model: str
    message_id: str
    tool_ids: Sequence[str] = ()
    input_tokens: int = 1


def event(name: str, data: Mapping[str, Any]) -> bytes:
    """One server-sent event; its data's type is its name."""
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps({"type": name, **data}) + b"\n\n"


def signature_of(thinking: str) -> str:
    """The signature of a thinking block whose turn gives none: it changes with every byte of the text."""
    return b64encode(b"atrio" + hashlib.sha256(thinking.encode("utf-8", "surrogatepass")).digest()).decode()


def stream_frames(answer: Answer) -> tuple[Frame, ...]:
    """
    The response's frames in order: message_start, ping, the blocks, message_delta, message_stop.

    Raises ValueError where a block can't be complete at its time, as what comes before it takes longer.
    """
    turn = answer.turn
    line = _Timeline(turn.pace)
    if not turn.literal:
        line.add([event("message_start", {"message": _message(answer)}), event("ping", {})])
    index = 0
    for number, (part, data) in enumerate(_wire_blocks(answer)):
        frames = part.frames if isinstance(part, RawPart) else _block_frames(part, data, index)
        index += not isinstance(part, RawPart)
        line.add(frames, until=part.after, what=f"block {number} of the turn")
    line.wait(turn.at)
    if not turn.literal:
        line.add(_closing(answer))
    return tuple(line.frames)


def message_body(answer: Answer) -> bytes:
    """The same response for a request without streaming. Literal bytes count only in a turn of nothing else."""
    turn = answer.turn
    if turn.literal:
        return b"".join(frame for part in turn.blocks if isinstance(part, RawPart) for frame in part.frames)
    content = [data for part, data in _wire_blocks(answer) if not isinstance(part, RawPart)]
    return orjson.dumps(
        _message(answer)
        | {
            "content": content,
            "stop_reason": turn.reason,
            "usage": turn.usage if turn.usage is not None else _usage(answer),
        }
    )


class _Timeline:
    """Gives each frame its time."""

    def __init__(self, pace: float) -> None:
        self._pace = pace
        self._next = 0.0
        self.frames: list[Frame] = []

    def wait(self, until: float | None) -> None:
        if until is not None:
            self._next = max(self._next, until)

    def add(self, frames: Sequence[bytes], *, until: float | None = None, what: str = "") -> None:
        if until is None:
            for data in frames:
                self.frames.append(Frame(self._next, data))
                self._next += self._pace
            return
        first, last = self._next, len(frames) - 1
        if first > until:
            raise ValueError(
                f"{what} is to be complete after {until:g} s, but what comes before it takes {first:g} s: "
                "give it more time, or the turn a smaller pace"
            )
        for number, data in enumerate(frames):
            at = until if number == last else first + (until - first) * number / last
            self.frames.append(Frame(at, data))
        self._next = until + self._pace


def _message(answer: Answer) -> JsonObject:
    usage = answer.turn.usage
    if usage is None:
        usage = _usage(answer) | {"output_tokens": 1}
    return {
        "id": answer.message_id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _closing(answer: Answer) -> list[bytes]:
    turn = answer.turn
    usage = turn.usage if turn.usage is not None else {"output_tokens": _usage(answer)["output_tokens"]}
    delta = {"stop_reason": turn.reason, "stop_sequence": None}
    return [event("message_delta", {"delta": delta, "usage": usage}), event("message_stop", {})]


def _usage(answer: Answer) -> JsonObject:
    return {
        "input_tokens": answer.input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 1 + sum(_size(part) for part in answer.turn.blocks) // 4,
    }


def _size(part: Part) -> int:
    match part:
        case TextPart():
            return len(part.text)
        case ThinkingPart():
            return len(part.thinking)
        case ToolPart():
            return len(part.name) + len(str(part.input))
        case BlockPart() | RawPart():
            return 0
        case _:
            assert_never(part)


def _wire_blocks(answer: Answer) -> list[tuple[Part, JsonObject]]:
    """Each part with the whole block that it makes; a literal part makes none."""
    ids = iter(answer.tool_ids)
    made: list[tuple[Part, JsonObject]] = []
    for part in answer.turn.blocks:
        match part:
            case TextPart():
                data: JsonObject = {"type": "text", "text": part.text}
            case ThinkingPart():
                signature = part.signature if part.signature is not None else signature_of(part.thinking)
                data = {"type": "thinking", "thinking": part.thinking, "signature": signature}
            case ToolPart():
                data = {"type": "tool_use", "id": next(ids), "name": part.name, "input": _input_object(part.input)}
            case BlockPart():
                data = dict(part.data)
            case RawPart():
                data = {}
            case _:
                assert_never(part)
        made.append((part, data))
    return made


def _input_object(given: Mapping[str, Any] | str) -> object:
    """A whole body has room for values only: text that isn't JSON stays text there."""
    if not isinstance(given, str):
        return given
    try:
        return orjson.loads(given)
    except orjson.JSONDecodeError:
        return given


def _block_frames(part: Part, data: JsonObject, index: int) -> list[bytes]:
    match part:
        case TextPart():
            start, deltas = {**data, "text": ""}, _text_deltas("text_delta", "text", part.text, part.chunk)
        case ThinkingPart():
            start = {**data, "thinking": "", "signature": ""}
            deltas = _text_deltas("thinking_delta", "thinking", part.thinking, part.chunk)
            deltas.append({"type": "signature_delta", "signature": data["signature"]})
        case ToolPart():
            start = {**data, "input": {}}
            literal = part.input if isinstance(part.input, str) else _input_json(part.input)
            deltas = _text_deltas("input_json_delta", "partial_json", literal, part.chunk)
            # The real API sends one empty piece for a call without arguments.
            deltas = deltas or [{"type": "input_json_delta", "partial_json": ""}]
        case BlockPart():
            start, deltas = data, []
        case RawPart():
            return list(part.frames)
        case _:
            assert_never(part)
    frames = [event("content_block_start", {"index": index, "content_block": start})]
    frames += [event("content_block_delta", {"index": index, "delta": delta}) for delta in deltas]
    if not part.unfinished:
        frames.append(event("content_block_stop", {"index": index}))
    return frames


def _input_json(given: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(given)).decode() if given else ""


def _text_deltas(kind: str, field: str, whole: str, chunk: int) -> list[JsonObject]:
    return [{"type": kind, field: whole[start : start + chunk]} for start in range(0, len(whole), chunk)]
