"""One content block in the making: what its start event held, and what deltas have added. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import orjson

from .messages import Block, JsonObject, ToolUseBlock, block_from_wire
from .model import IncompleteBlock
from .wirejson import Unparsable, mend, parse_object, without_surrogates

__all__ = ["LIMIT_REASONS", "BlockBuilder"]

LIMIT_REASONS = frozenset(("max_tokens", "model_context_window_exceeded"))
"""Stop reasons of a response that was cut, so that its last block may be."""

_DELTAS: Mapping[str, tuple[str, ...]] = {
    "text": ("text_delta", "citations_delta"),
    "thinking": ("thinking_delta", "signature_delta"),
    "redacted_thinking": (),
    "tool_use": ("input_json_delta",),
    "server_tool_use": ("input_json_delta",),
    "mcp_tool_use": ("input_json_delta",),
}
"""The API refuses fields that a block of such a type doesn't have, so that a stray delta may not leave one there."""

_PLAIN = frozenset(("text_delta", "input_json_delta", "thinking_delta", "signature_delta", "citations_delta"))

_TEXTS: Mapping[str, tuple[str, ...]] = {"text": ("text",), "thinking": ("thinking", "signature")}
"""Texts that a block has even if no server ever sent a piece of them."""


_PIECES = 1_024
"""
Pieces that are kept apart before they are joined. A string costs some fifty bytes more than its letters, so that a long
block in small pieces would hold many times its size.
"""


class Pieces(list[str]):
    """A text in the making."""

    __slots__ = ()

    def add(self, text: str) -> None:
        self.append(text)
        if len(self) > _PIECES:
            self[:] = ("".join(self),)


@attrs.define(eq=False)
class BlockBuilder:
    """
    Collects deltas; `build` makes the block.

    ``start`` is the block as its start event has it. Servers differ on whether that is empty, a beginning that
    deltas continue, or the whole that deltas repeat; all three come out right.
    """

    start: JsonObject
    texts: Pieces = attrs.field(factory=Pieces)
    jsons: Pieces = attrs.field(factory=Pieces)
    thinking: Pieces = attrs.field(factory=Pieces)
    _merged: JsonObject = attrs.field(factory=dict)
    torn: bool = False
    """Some text may hold half surrogate pairs."""

    @property
    def type(self) -> str:
        return str(self.start.get("type", ""))

    def is_begun_by(self, start: Mapping[str, Any]) -> bool:
        """Whether a start event is this block's own, sent again."""
        id = self.start.get("id")
        if isinstance(id, str) and id:
            return id == start.get("id")
        return start == self.start and not (self.texts or self.jsons or self.thinking or self._merged)

    def strays(self) -> list[str]:
        """Kinds of deltas that came although such a block has none of them; `build` leaves them out."""
        parts = {"text_delta": self.texts, "input_json_delta": self.jsons, "thinking_delta": self.thinking}
        return [kind for kind, came in parts.items() if came and not self._has(kind)]

    def _has(self, kind: str) -> bool:
        return kind in _DELTAS.get(self.type, (kind,))

    def merge(self, delta: Mapping[str, Any]) -> str | None:
        """Take a delta of a rarer kind; returns what is odd about it."""
        kind = str(delta.get("type"))
        if kind in _PLAIN and not self._has(kind):
            return f"a {kind} in a {self.type} block"
        match delta:
            case {"type": "signature_delta", "signature": str(signature)}:
                self._merged["signature"] = signature
            case {"type": "citations_delta", "citation": dict(citation)}:
                known = self._merged.get("citations", self.start.get("citations"))
                self._merged["citations"] = [*(known if isinstance(known, list) else ()), citation]
            case {"type": "input_json_delta", "partial_json": dict(input)}:
                # Some servers send the value where its text is due.
                self.jsons.append(orjson.dumps(without_surrogates(input)).decode())
            case _ if kind in _PLAIN:
                return f"a {kind} without its {kind.removesuffix('_delta')}"
            case _:
                for key, value in delta.items():
                    if key != "type":
                        self._merged[key] = _joined(self._merged.get(key, self.start.get(key)), value)
                return f"a delta of unknown type {kind} was merged into a {self.type} block"
        return None

    def build(self) -> Block:
        """The block as it stands."""
        wire = {**self.start, **self._merged}
        if self.texts and self._has("text_delta"):
            wire["text"] = self._text(wire.get("text"), self.texts)
        if self.thinking and self._has("thinking_delta"):
            wire["thinking"] = self._text(wire.get("thinking"), self.thinking)
        if self.type in _TEXTS:
            for name in _TEXTS[self.type]:
                if wire.get(name) is None:
                    wire[name] = ""
        if self.torn:
            wire = without_surrogates(wire)
        if self.type == "tool_use":
            return self._tool_use(wire)
        if self.jsons and self._has("input_json_delta"):
            wire["input"] = self._input(wire)[0]
        return block_from_wire(wire)

    def usable(self, *, cut: bool) -> bool:
        """
        Whether the block may count as complete although its stop never came. A text may always; what has an input
        only if its JSON is whole and the response wasn't ``cut``.
        """
        if self.type == "text":
            return bool(self.texts or self.start.get("text"))
        if cut or self.type == "thinking":
            return False
        if self.type == "tool_use" or self.jsons:
            return self._input(self.start)[1] is None
        return True

    def incomplete(self, index: int) -> IncompleteBlock:
        text = "".join(self.texts or self.jsons or self.thinking)
        if not text and self.start.get("input"):
            text = orjson.dumps(self.start["input"]).decode()
        return IncompleteBlock(
            index,
            self.type,
            mend(text) if self.torn else text,
            name=str(self.start.get("name") or ""),
            id=str(self.start.get("id") or ""),
        )

    def _text(self, start: object, parts: list[str]) -> str:
        text = "".join(parts)
        if isinstance(start, str) and start and not text.startswith(start):
            return start + text
        return text

    def _tool_use(self, wire: JsonObject) -> Block:
        name, id = wire.get("name"), wire.get("id")
        input, invalid = self._input(wire)
        extra = {key: value for key, value in wire.items() if key not in ("type", "id", "name", "input")}
        return ToolUseBlock(
            id if isinstance(id, str) else "",
            name if isinstance(name, str) else "",
            input,
            invalid_json=invalid,
            extra=extra,
        )

    def _input(self, wire: Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
        """The call's input; and the text that should have been it, where that is no JSON object."""
        text = "".join(self.jsons)
        start = wire.get("input")
        if not text.strip() or (isinstance(start, dict) and start and text.strip() == "{}"):
            if start is None or isinstance(start, dict):
                return start or {}, None
            if isinstance(start, str):
                text = start.strip() or "{}"
            else:
                return {}, orjson.dumps(start).decode()
        try:
            input, torn = parse_object((mend(text) if self.torn else text).encode())
        except Unparsable:
            return {}, mend(text)
        return (without_surrogates(input) if torn else input), None


def _joined(known: object, value: object) -> object:
    if isinstance(known, str) and isinstance(value, str):
        return known + value
    if isinstance(known, list) and isinstance(value, list):
        return [*known, *value]
    return value
