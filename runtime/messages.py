"""
The conversation's values: content blocks, messages, usage.

The wire's own words are kept (Anthropic Messages API). Blocks that atrio knows are typed; every other
block is a `RawBlock` and travels untouched. Fields of a known block that atrio has no use for are kept
in ``extra`` and sent back as they came, because a thinking block or a citation that changes by one byte
is refused by the server or misses its prompt cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

__all__ = [
    "AssistantMessage",
    "Block",
    "DocumentBlock",
    "ImageBlock",
    "Json",
    "JsonObject",
    "Message",
    "RawBlock",
    "RedactedThinkingBlock",
    "StopReason",
    "SystemMessage",
    "TextBlock",
    "ThinkingBlock",
    "ToolResultBlock",
    "ToolUseBlock",
    "Usage",
    "UserMessage",
    "UserOrigin",
    "block_from_wire",
    "block_to_wire",
    "text_of",
]

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as parsed; its inside is checked where it is used."""

StopReason: TypeAlias = str
"""end_turn, max_tokens, stop_sequence, tool_use, pause_turn, refusal, model_context_window_exceeded, or newer."""

_NO_EXTRA: Mapping[str, Any] = {}


@attrs.frozen
class TextBlock:
    text: str
    extra: Mapping[str, Any] = attrs.field(default=_NO_EXTRA, kw_only=True)


@attrs.frozen
class ThinkingBlock:
    """Sent back byte for byte with its signature, or dropped as a whole (other model); never edited."""

    thinking: str
    signature: str
    extra: Mapping[str, Any] = attrs.field(default=_NO_EXTRA, kw_only=True)


@attrs.frozen
class RedactedThinkingBlock:
    data: str
    extra: Mapping[str, Any] = attrs.field(default=_NO_EXTRA, kw_only=True)


@attrs.frozen
class ToolUseBlock:
    """
    A call that the model asks for.

    ``invalid_json`` holds the text that the model produced where it isn't a JSON object; ``input`` is
    then empty, the call is never run, and the model is shown its own text to correct it.
    """

    id: str
    name: str
    input: Mapping[str, Any]
    invalid_json: str | None = None
    extra: Mapping[str, Any] = attrs.field(default=_NO_EXTRA, kw_only=True)


@attrs.frozen
class ImageBlock:
    """``source`` as on the wire: base64 with media_type and data, or url."""

    source: Mapping[str, Any]
    extra: Mapping[str, Any] = attrs.field(default=_NO_EXTRA, kw_only=True)


@attrs.frozen
class DocumentBlock:
    source: Mapping[str, Any]
    extra: Mapping[str, Any] = attrs.field(default=_NO_EXTRA, kw_only=True)


@attrs.frozen
class RawBlock:
    """Any block type that atrio doesn't know (server tools, newer kinds), carried through untouched."""

    data: Mapping[str, Any]

    @property
    def type(self) -> str:
        return str(self.data.get("type", ""))


@attrs.frozen
class ToolResultBlock:
    """The answer to one `ToolUseBlock`. ``content`` is text, or blocks (text, image, document)."""

    tool_use_id: str
    content: str | tuple[TextBlock | ImageBlock | DocumentBlock | RawBlock, ...]
    is_error: bool = False
    extra: Mapping[str, Any] = attrs.field(default=_NO_EXTRA, kw_only=True)


Block: TypeAlias = (
    TextBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
    | ImageBlock
    | DocumentBlock
    | RawBlock
)


@attrs.frozen(kw_only=True)
class Usage:
    """
    Token counts of one response, or a sum of several.

    The API's input count excludes cached tokens; the four counts never overlap. ``reported`` is false
    while no server has reported anything, so that "unknown" is never shown as zero.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    reported: bool = False
    extra: Mapping[str, Any] = attrs.field(default=_NO_EXTRA)

    def updated(self, wire: Mapping[str, Any] | None) -> Usage:
        """This usage with the fields that ``wire`` reports replaced (they are running totals, not increments)."""
        if not wire:
            return self
        counts: dict[str, Any] = {}
        extra = dict(self.extra)
        for key, value in wire.items():
            if value is None:
                continue
            if key in _COUNTS:
                if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                    counts[key] = value
            else:
                extra[key] = value
        if not counts and extra == self.extra:
            return self
        return attrs.evolve(self, **counts, reported=self.reported or bool(counts), extra=extra)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens + other.cache_read_input_tokens,
            reported=self.reported or other.reported,
        )

    @property
    def context_tokens(self) -> int:
        """What the model saw: all input, cached or not, plus what it wrote."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens + self.output_tokens

    def to_wire(self) -> JsonObject:
        """The snake_case shape of the API, as result lines and transcripts show it."""
        return {
            "input_tokens": self.input_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
            "output_tokens": self.output_tokens,
            **self.extra,
        }


_COUNTS = frozenset(("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"))

UserOrigin: TypeAlias = Literal["prompt", "tool_results", "steer", "hook", "recovery", "attachment", "interruption"]


@attrs.frozen(kw_only=True)
class UserMessage:
    """
    What the model is told.

    ``hidden`` messages were written by atrio, not by a person (recovery notes, hook feedback); ``pinned``
    ones survive compaction byte for byte. ``details`` holds what each tool result is in structured form,
    by tool_use id, for transcripts and stream lines; the model never sees it.
    """

    uuid: str
    content: tuple[Block, ...]
    origin: UserOrigin = "prompt"
    hidden: bool = False
    pinned: bool = False
    details: Mapping[str, Any] = attrs.field(default=_NO_EXTRA)


@attrs.frozen(kw_only=True)
class AssistantMessage:
    """
    One response of the model (or, with ``api_error``, atrio's own note in its place, never sent back).

    ``message_id`` is the API's id; journal lines of the same response share it, and usage is counted once for it.
    ``model`` is what the API says answered, ``requested_model`` what was asked for, where that is another name.
    """

    uuid: str
    message_id: str
    model: str
    content: tuple[Block, ...]
    stop_reason: StopReason | None = None
    usage: Usage = attrs.field(factory=Usage)
    api_error: str | None = None
    requested_model: str = ""

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


@attrs.frozen(kw_only=True)
class SystemMessage:
    """A mark in the history that is never sent (``subtype`` compact_boundary, informational, ...)."""

    uuid: str
    subtype: str
    text: str = ""
    data: Mapping[str, Any] = attrs.field(default=_NO_EXTRA)


Message: TypeAlias = UserMessage | AssistantMessage | SystemMessage


def text_of(blocks: tuple[Block, ...]) -> str:
    """All text blocks, joined."""
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


def block_to_wire(block: Block) -> JsonObject:
    """The block as the API takes it."""
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text, **block.extra}
        case ThinkingBlock():
            return {
                "type": "thinking",
                "thinking": block.thinking,
                "signature": block.signature,
                **block.extra,
            }
        case RedactedThinkingBlock():
            return {"type": "redacted_thinking", "data": block.data, **block.extra}
        case ToolUseBlock():
            return {
                "type": "tool_use",
                "id": block.id,
                "name": block.name,
                "input": dict(block.input),
                **block.extra,
            }
        case ToolResultBlock():
            content = (
                block.content if isinstance(block.content, str) else [block_to_wire(inner) for inner in block.content]
            )
            wire: JsonObject = {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": content}
            if block.is_error:
                wire["is_error"] = True
            return {**wire, **block.extra}
        case ImageBlock():
            return {"type": "image", "source": dict(block.source), **block.extra}
        case DocumentBlock():
            return {"type": "document", "source": dict(block.source), **block.extra}
        case RawBlock():
            return dict(block.data)


def _rest(wire: Mapping[str, Any], *known: str) -> Mapping[str, Any]:
    rest = {key: value for key, value in wire.items() if key != "type" and key not in known}
    return rest or _NO_EXTRA


def block_from_wire(wire: Mapping[str, Any]) -> Block:
    """
    The typed block for a wire object; a `RawBlock` for an unknown type or a known one of the wrong shape.

    Never raises for a mapping: whatever came is kept.
    """
    match wire:
        case {"type": "text", "text": str(text)}:
            return TextBlock(text, extra=_rest(wire, "text"))
        case {"type": "thinking", "thinking": str(thinking), "signature": str(signature)}:
            return ThinkingBlock(thinking, signature, extra=_rest(wire, "thinking", "signature"))
        case {"type": "redacted_thinking", "data": str(data)}:
            return RedactedThinkingBlock(data, extra=_rest(wire, "data"))
        case {"type": "tool_use", "id": str(id), "name": str(name), "input": dict(input)}:
            return ToolUseBlock(id, name, input, extra=_rest(wire, "id", "name", "input"))
        case {"type": "image", "source": dict(source)}:
            return ImageBlock(source, extra=_rest(wire, "source"))
        case {"type": "document", "source": dict(source)}:
            return DocumentBlock(source, extra=_rest(wire, "source"))
        case {"type": "tool_result", "tool_use_id": str(id)}:
            return _result_from_wire(wire, id)
        case _:
            return RawBlock(wire)


def _result_from_wire(wire: Mapping[str, Any], id: str) -> Block:
    extra = _rest(wire, "tool_use_id", "content", "is_error")
    is_error = wire.get("is_error") is True
    content = wire.get("content", "")
    if content is None or isinstance(content, str):
        return ToolResultBlock(id, content or "", is_error, extra=extra)
    if not isinstance(content, list) or not all(isinstance(inner, dict) for inner in content):
        return RawBlock(wire)
    inner = tuple(block_from_wire(item) for item in content)
    if not all(isinstance(block, TextBlock | ImageBlock | DocumentBlock | RawBlock) for block in inner):
        return RawBlock(wire)
    return ToolResultBlock(id, inner, is_error, extra=extra)  # type: ignore[arg-type]  # checked above
