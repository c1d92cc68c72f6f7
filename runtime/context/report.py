"""What fills the window, as values: for `atrio context` and the API. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from ..messages import (
    AssistantMessage,
    Block,
    DocumentBlock,
    ImageBlock,
    JsonObject,
    Message,
    RedactedThinkingBlock,
    SystemMessage,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from ..tokens import MESSAGE_OVERHEAD, TOOLS_OVERHEAD, estimate_block, estimate_schemas, estimate_text
from ..window import Level, WindowLevels
from .units import call_names

__all__ = ["Item", "Part", "WindowReport", "report"]


@attrs.frozen
class Item:
    """One thing within a part: a tool, a file, a tool's results."""

    name: str
    tokens: int


@attrs.frozen
class Part:
    """One kind of content, with the largest of its items first."""

    name: str
    tokens: int
    items: tuple[Item, ...] = ()


@attrs.frozen(kw_only=True)
class WindowReport:
    """What fills the window. Parts are in the order of the request and come to ``tokens`` together."""

    parts: tuple[Part, ...]
    tokens: int
    measured: bool
    """The total goes back to the server's numbers; the parts are shares of it by estimate."""
    levels: WindowLevels

    @property
    def free(self) -> int:
        """Until the next compaction."""
        return max(0, self.levels.auto - self.tokens)

    @property
    def level(self) -> Level:
        return self.levels.level(self.tokens)

    def to_json(self) -> JsonObject:
        """For ``--output-format json`` and the API."""
        return {
            "tokens": self.tokens,
            "measured": self.measured,
            "window": self.levels.window,
            "effective": self.levels.effective,
            "autoCompactAt": self.levels.auto,
            "blockedAt": self.levels.blocking,
            "free": self.free,
            "level": self.level.value,
            "parts": [
                {
                    "name": part.name,
                    "tokens": part.tokens,
                    "items": [{"name": item.name, "tokens": item.tokens} for item in part.items],
                }
                for part in self.parts
            ],
        }


KINDS = ("user messages", "responses", "thinking", "tool calls", "results", "media", "attachments")


def report(
    messages: Sequence[Message],
    *,
    system: Sequence[str],
    tools: Sequence[JsonObject],
    instructions: Mapping[str, str],
    levels: WindowLevels,
    measured_tokens: int | None = None,
) -> WindowReport:
    """
    What fills the window with these messages (projected). ``instructions`` maps files to their texts;
    ``measured_tokens`` is what the context is known to take, which the estimates are scaled to.
    """
    names = call_names(messages)
    found: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    for message in messages:
        for kind, item, tokens in _message_parts(message, names):
            found[kind][item] = found[kind].get(item, 0) + tokens
    by_tool = {str(tool.get("name", "?")): estimate_schemas([tool]) - TOOLS_OVERHEAD for tool in tools}
    if tools:
        by_tool["(the API's own)"] = TOOLS_OVERHEAD
    parts = {
        "system prompt": {"": sum(map(estimate_text, system))},
        "tools": by_tool,
        "instructions": {name: estimate_text(text) for name, text in instructions.items()},
        **found,
    }
    total = sum(sum(items.values()) for items in parts.values())
    scale = measured_tokens / total if measured_tokens is not None and total else 1.0
    shown = tuple(_part(name, items, scale) for name, items in parts.items() if items)
    return WindowReport(
        parts=shown,
        tokens=sum(part.tokens for part in shown),
        measured=measured_tokens is not None,
        levels=levels,
    )


def _part(name: str, items: Mapping[str, int], scale: float) -> Part:
    scaled = [Item(item, round(tokens * scale)) for item, tokens in items.items()]
    scaled.sort(key=lambda item: (-item.tokens, item.name))
    named = tuple(item for item in scaled if item.name)
    return Part(name, sum(item.tokens for item in scaled), named)


def _message_parts(message: Message, names: Mapping[str, str]) -> list[tuple[str, str, int]]:
    """Kind, item and tokens of each block; the message's own overhead goes to its first block."""
    if isinstance(message, SystemMessage) or (isinstance(message, AssistantMessage) and message.api_error):
        return []
    parts: list[tuple[str, str, int]] = []
    for block in message.content:
        kind, item = _kind(message, block, names)
        parts.append((kind, item, estimate_block(block) + (0 if parts else MESSAGE_OVERHEAD)))
    return parts


def _kind(message: UserMessage | AssistantMessage, block: Block, names: Mapping[str, str]) -> tuple[str, str]:
    match block:
        case ThinkingBlock() | RedactedThinkingBlock():
            return "thinking", ""
        case ToolUseBlock():
            return "tool calls", block.name
        case ToolResultBlock():
            return "results", names.get(block.tool_use_id, "?")
        case ImageBlock() | DocumentBlock():
            return "media", ""
        case _ if isinstance(message, AssistantMessage):
            return "responses", ""
        case _ if message.hidden:
            return "attachments", ""
        case _:
            return "user messages", ""
