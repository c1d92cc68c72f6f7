"""One content block in the making: what its start event held, and what deltas have added. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import orjson

from .messages import Block, JsonObject, ToolUseBlock, block_from_wire
from .model import IncompleteBlock
from .wirejson import Unparsable, mend, parse_object, without_surrogates

__all__ = ["BlockBuilder"]


@attrs.define(eq=False)
class BlockBuilder:
    """
    Collects deltas; `build` makes the block.

    ``start`` is the block as its start event has it. Servers differ on whether that is empty, a beginning that
    deltas continue, or the whole that deltas repeat; all three come out right.
    """

    start: JsonObject
    texts: list[str] = attrs.field(factory=list)
    jsons: list[str] = attrs.field(factory=list)
    thinking: list[str] = attrs.field(factory=list)
    _merged: JsonObject = attrs.field(factory=dict)
    torn: bool = False
    """Some text may hold half surrogate pairs."""

    @property
    def type(self) -> str:
        return str(self.start.get("type", ""))

    def merge(self, delta: Mapping[str, Any]) -> str | None:
        """Take a delta of a rarer kind; returns what is odd about it."""
        kind = delta.get("type")
        if kind == "signature_delta":
            self._merged["signature"] = delta.get("signature", "")
            return None
        if kind == "citations_delta":
            known = self._merged.get("citations", self.start.get("citations"))
            self._merged["citations"] = [*(known if isinstance(known, list) else ()), delta.get("citation")]
            return None
        for key, value in delta.items():
            if key != "type":
                self._merged[key] = _joined(self._merged.get(key, self.start.get(key)), value)
        return f"a delta of unknown type {kind!r} was merged into a {self.type} block"

    def build(self) -> Block:
        """The block as it stands."""
        wire = {**self.start, **self._merged}
        if self.texts:
            wire["text"] = self._text(wire.get("text"), self.texts)
        if self.thinking:
            wire["thinking"] = self._text(wire.get("thinking"), self.thinking)
        if self.type == "thinking":
            wire.setdefault("thinking", "")
            wire.setdefault("signature", "")
        elif self.type == "text":
            wire.setdefault("text", "")
        if self.torn:
            wire = without_surrogates(wire)
        if self.type == "tool_use":
            return self._tool_use(wire)
        if self.jsons:
            wire["input"] = self._input(wire)[0]
        return block_from_wire(wire)

    def usable(self, *, cut: bool) -> bool:
        """
        Whether the block may count as complete although its stop never came. A text may always; a call only if its
        JSON is whole and the response wasn't ``cut``.
        """
        if self.type == "text":
            return bool(self.texts or self.start.get("text"))
        if cut or self.type == "thinking":
            return False
        if self.type != "tool_use":
            return True
        block = self.build()
        return isinstance(block, ToolUseBlock) and block.invalid_json is None

    def incomplete(self, index: int) -> IncompleteBlock:
        text = "".join(self.texts or self.jsons or self.thinking)
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
        if not text.strip():
            if start is None or isinstance(start, dict):
                return start or {}, None
            if isinstance(start, str):
                text = start or "{}"
            else:
                return {}, orjson.dumps(start).decode()
        try:
            input, torn = parse_object(text.encode("utf-8", "surrogatepass") if not self.torn else mend(text).encode())
        except (Unparsable, UnicodeEncodeError):
            return {}, mend(text)
        return (without_surrogates(input) if torn else input), None


def _joined(known: object, value: object) -> object:
    if isinstance(known, str) and isinstance(value, str):
        return known + value
    if isinstance(known, list) and isinstance(value, list):
        return [*known, *value]
    return value
