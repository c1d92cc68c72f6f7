"""What a scripted model says: turns made of blocks. Values only; `wire` turns them into bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, TypeAlias

import attrs

from atrio.runtime.messages import JsonObject, Usage

__all__ = ["BlockPart", "Part", "RawPart", "TextPart", "ThinkingPart", "ToolPart", "Turn", "block", "raw", "text"]
__all__ += ["thinking", "tool"]

CHUNK = 20
"""Characters of one delta where a block doesn't say: about what the real API sends."""


def _seconds(instance: object, attribute: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None and not 0 <= value < float("inf"):
        raise ValueError(f"{attribute.name}={value!r}: give seconds, 0 or more")


def _characters(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 1:
        raise ValueError(f"{attribute.name}={value!r}: a delta has at least one character")


@attrs.frozen(kw_only=True)
class _Timed:
    """
    When a block is complete.

    ``after`` is when its content_block_stop is sent, in seconds from the response's first byte; its deltas are
    spread evenly until then. Without it, the turn's pace rules. ``unfinished`` leaves the stop event out.
    """

    after: float | None = attrs.field(default=None, validator=_seconds)
    unfinished: bool = False


@attrs.frozen(kw_only=True)
class TextPart(_Timed):
    text: str
    chunk: int = attrs.field(default=CHUNK, validator=_characters)


@attrs.frozen(kw_only=True)
class ThinkingPart(_Timed):
    """``signature`` None: one that is derived from the text, so that any scripted model can check it."""

    thinking: str
    signature: str | None = None
    chunk: int = attrs.field(default=CHUNK, validator=_characters)


@attrs.frozen(kw_only=True)
class ToolPart(_Timed):
    """``input`` as a string is sent as it is, valid JSON or not. ``id`` None: the model draws one."""

    name: str
    input: Mapping[str, Any] | str
    id: str | None = None
    chunk: int = attrs.field(default=CHUNK, validator=_characters)


@attrs.frozen(kw_only=True)
class BlockPart(_Timed):
    """A block of any type that arrives whole in its content_block_start."""

    data: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class RawPart(_Timed):
    """Literal bytes, one HTTP chunk each. They take no block index."""

    frames: tuple[bytes, ...]


Part: TypeAlias = TextPart | ThinkingPart | ToolPart | BlockPart | RawPart


def text(text: str, *, chunk: int = CHUNK, after: float | None = None, unfinished: bool = False) -> TextPart:
    """A text block, ``chunk`` characters in each delta."""
    return TextPart(text=text, chunk=chunk, after=after, unfinished=unfinished)


def thinking(
    thinking: str,
    *,
    signature: str | None = None,
    chunk: int = CHUNK,
    after: float | None = None,
    unfinished: bool = False,
) -> ThinkingPart:
    """A thinking block; an empty text with a signature is hidden thinking."""
    return ThinkingPart(thinking=thinking, signature=signature, chunk=chunk, after=after, unfinished=unfinished)


def tool(
    name: str,
    input: Mapping[str, Any] | str | None = None,
    id: str | None = None,
    *,
    chunk: int = CHUNK,
    after: float | None = None,
    unfinished: bool = False,
) -> ToolPart:
    """A call of a tool. ``input`` given as a string is sent literally (cut or wrong JSON)."""
    given = {} if input is None else input
    return ToolPart(name=name, input=given, id=id, chunk=chunk, after=after, unfinished=unfinished)


def block(data: Mapping[str, Any], *, after: float | None = None) -> BlockPart:
    """A block of any type, sent whole: redacted_thinking, results of server tools, kinds not yet known."""
    return BlockPart(data=data, after=after)


def raw(frames: bytes | Iterable[bytes], *, after: float | None = None) -> RawPart:
    """Literal bytes instead of a block. A turn of nothing else is sent without message_start and message_stop."""
    return RawPart(frames=(frames,) if isinstance(frames, bytes) else tuple(frames), after=after)


@attrs.frozen(init=False)
class Turn:
    """
    One response of the model.

    ``stop_reason`` None: tool_use if there is a call, else end_turn. ``usage`` None: plausible counts; else the
    wire's fields, as they are. ``delay`` seconds pass before the first byte, ``pace`` between frames; ``at`` is
    when the message ends (message_delta and message_stop), in seconds from the first byte.

    Raises ValueError where the blocks' times run backwards.
    """

    blocks: tuple[Part, ...]
    stop_reason: str | None = None
    usage: JsonObject | None = None
    delay: float = attrs.field(default=0.0, validator=_seconds)
    pace: float = attrs.field(default=0.0, validator=_seconds)
    at: float | None = attrs.field(default=None, validator=_seconds)

    def __init__(
        self,
        *blocks: Part,
        stop_reason: str | None = None,
        usage: Usage | Mapping[str, Any] | None = None,
        delay: float = 0.0,
        pace: float = 0.0,
        at: float | None = None,
    ) -> None:
        wire = usage.to_wire() if isinstance(usage, Usage) else None if usage is None else dict(usage)
        self.__attrs_init__(blocks, stop_reason=stop_reason, usage=wire, delay=delay, pace=pace, at=at)

    def __attrs_post_init__(self) -> None:
        times = [part.after for part in self.blocks if part.after is not None]
        times += [self.at] if self.at is not None else []
        for earlier, later in pairwise(times):
            if later < earlier:
                raise ValueError(f"a block is to be complete after {later:g} s, the one before it after {earlier:g} s")

    @property
    def tools(self) -> tuple[ToolPart, ...]:
        return tuple(part for part in self.blocks if isinstance(part, ToolPart))

    @property
    def literal(self) -> bool:
        """It is nothing but literal bytes."""
        return bool(self.blocks) and all(isinstance(part, RawPart) for part in self.blocks)

    @property
    def reason(self) -> str:
        """The stop reason that is sent."""
        return self.stop_reason or ("tool_use" if self.tools else "end_turn")
