"""Which blocks the API takes from whom, and what stands in for one that it would refuse. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from .messages import (
    Block,
    DocumentBlock,
    ImageBlock,
    RawBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)

__all__ = ["Role", "legal_id", "legal_name", "sendable"]

Role: TypeAlias = Literal["user", "assistant"]

NO_OUTPUT: Final = "(no output)"
LOST_MEDIA: Final = "[An image or document that can't be sent was left out here.]"

_ID = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
_IMAGE_TYPES = frozenset(("image/gif", "image/jpeg", "image/png", "image/webp"))
_TYPED = frozenset(("text", "thinking", "redacted_thinking", "tool_use", "tool_result"))
"""Raw blocks of these types have a wrong shape, or they would not be raw."""


def sendable(block: Block, role: Role) -> Block | None:
    """The block as ``role`` may send it; None if it is nothing that can be sent. Thinking is never edited."""
    match block:
        case TextBlock():
            return block if block.text.strip() else None
        case ThinkingBlock():
            # Without a signature it is of no use to any API that checks it.
            kept = role == "assistant" and bool(block.signature) and "cache_control" not in block.extra
            return block if kept else None
        case RedactedThinkingBlock():
            return block if role == "assistant" and block.data else None
        case ToolUseBlock():
            return block if role == "assistant" else None
        case ToolResultBlock():
            return _result(block) if role == "user" else None
        case ImageBlock() | DocumentBlock():
            return block if role == "user" and _has_source(block) else TextBlock(LOST_MEDIA)
        case RawBlock():
            return _raw(block, role)


def _raw(block: RawBlock, role: Role) -> Block | None:
    kind = block.data.get("type")
    if not isinstance(kind, str) or not kind or kind in _TYPED:
        return None
    if kind in ("image", "document"):
        return TextBlock(LOST_MEDIA)
    return None if kind == "server_tool_use" and role == "user" else block


def _result(block: ToolResultBlock) -> ToolResultBlock:
    content = block.content
    if not isinstance(content, str):
        inner = [_inner(part) for part in content]
        content = tuple(part for part in inner if part is not None)
    if not content and block.is_error:
        content = NO_OUTPUT
    return block if content == block.content else attrs.evolve(block, content=content)


def _inner(
    part: TextBlock | ImageBlock | DocumentBlock | RawBlock,
) -> TextBlock | ImageBlock | DocumentBlock | RawBlock | None:
    kept = sendable(part, "user")
    return kept if isinstance(kept, TextBlock | ImageBlock | DocumentBlock | RawBlock) else None


def _has_source(block: ImageBlock | DocumentBlock) -> bool:
    source: Mapping[str, Any] = block.source
    match source.get("type"):
        case "base64":
            known = isinstance(block, DocumentBlock) or source.get("media_type") in _IMAGE_TYPES
            return known and isinstance(source.get("data"), str) and bool(source["data"])
        case "url":
            return isinstance(source.get("url"), str) and bool(source["url"])
        case kind:
            return isinstance(kind, str)


def legal_id(id: str, taken: set[str]) -> str:
    """The id, or one like it that the API takes and that is not ``taken``; it is taken then."""
    base = id if _ID.fullmatch(id) else re.sub(r"[^A-Za-z0-9_-]", "_", id) or "call"
    legal, number = base, 1
    while legal in taken:
        number += 1
        legal = f"{base}_{number}"
    taken.add(legal)
    return legal


def legal_name(name: str) -> str:
    """The tool's name, or one like it that the API takes."""
    return name if _NAME.fullmatch(name) else re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:200] or "unnamed_tool"
