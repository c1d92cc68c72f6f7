"""
What comes from a model is made fit for the conversation, once, where it enters. Pure.

The API refuses a history with two calls of one id, or with a tool name it would not have accepted; compatible
servers produce both. Ids become unique within the session and names legal; the rest of a block is untouched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from .messages import AssistantMessage, Block, Message, ToolUseBlock

__all__ = ["admit_block", "call_ids"]

_ID = re.compile(r"[A-Za-z0-9_-]{1,256}")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


def call_ids(messages: Iterable[Message]) -> set[str]:
    """The ids of all calls in a history."""
    return {
        block.id
        for message in messages
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, ToolUseBlock)
    }


def admit_block(block: Block, seen: set[str]) -> Block:
    """The block as it joins the conversation. A call's id is added to ``seen``."""
    if not isinstance(block, ToolUseBlock):
        return block
    id = block.id if _ID.fullmatch(block.id) else f"call_{len(seen)}"
    number = 1
    base = id[:240]
    while id in seen:
        number += 1
        id = f"{base}_{number}"
    seen.add(id)
    name = block.name if _NAME.fullmatch(block.name) else _legal_name(block.name)
    if id == block.id and name == block.name:
        return block
    return attrs.evolve(block, id=id, name=name)


def _legal_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name[:200])[:64].strip("_") or "unnamed_tool"
