"""The API's rules for messages and their blocks, one at a time: roles, content, block shapes. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["check_messages"]

ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,200}\Z")

IMAGE_TYPES = ("image/gif", "image/jpeg", "image/png", "image/webp")
ROLE_OF = {
    "tool_use": "assistant",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "server_tool_use": "assistant",
    "tool_result": "user",
    "image": "user",
    "document": "user",
}
"""Block types that one role alone may say. Types that aren't known may come from both."""

Genuine = Callable[[str, str], bool]


def check_messages(messages: Sequence[object], genuine: Genuine | None) -> Iterator[str]:
    """What is wrong with each message by itself and with the order of roles. ``genuine`` judges thinking blocks."""
    before: object = None
    for number, message in enumerate(messages):
        place = f"messages.{number}"
        if not isinstance(message, dict):
            yield f"{place}: Input should be an object"
            continue
        role = message.get("role")
        if role not in ("user", "assistant"):
            yield f"{place}.role: Input should be 'user' or 'assistant', not {role!r}"
        elif number == 0 and role != "user":
            yield 'messages: first message must use the "user" role'
        elif role == before:
            yield f'{place}: roles must alternate between "user" and "assistant", but "{role}" comes twice in a row'
        before = role
        for name in sorted(message.keys() - {"role", "content"}):
            yield f"{place}.{name}: Extra inputs are not permitted"
        yield from _content(place, message.get("content"), role, genuine, final=number == len(messages) - 1)


def _content(place: str, content: object, role: object, genuine: Genuine | None, *, final: bool) -> Iterator[str]:
    if isinstance(content, str):
        if not content.strip():
            yield f"{place}: all messages must have non-empty content"
        blocks: Sequence[object] = [{"type": "text", "text": content}] if content.strip() else []
    elif isinstance(content, list):
        if not content:
            yield f"{place}: all messages must have non-empty content"
        blocks = content
    else:
        yield f"{place}.content: Input should be a string or a list of blocks"
        return
    for number, block in enumerate(blocks):
        spot = f"{place}.content.{number}"
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(block, dict) or not isinstance(kind, str) or not kind:
            yield f"{spot}.type: Field required"
            continue
        if role in ("user", "assistant") and ROLE_OF.get(kind, role) != role:
            yield f"{spot}: `{kind}` blocks can only be in `{ROLE_OF[kind]}` messages"
        yield from _block(spot, block, genuine)
    if final and role == "assistant" and blocks:
        last = blocks[-1]
        words = last.get("text") if isinstance(last, dict) and last.get("type") == "text" else None
        if isinstance(words, str) and words != words.rstrip():
            yield "messages: final assistant content cannot end with trailing whitespace"


def _block(spot: str, block: Mapping[str, Any], genuine: Genuine | None) -> Iterator[str]:
    match block["type"]:
        case "text":
            yield from _text(spot, block)
        case "thinking":
            yield from _thinking(spot, block, genuine)
        case "redacted_thinking":
            if not isinstance(block.get("data"), str) or not block["data"]:
                yield f"{spot}.redacted_thinking.data: Field required"
        case "tool_use":
            yield from _tool_use(spot, block)
        case "tool_result":
            yield from _tool_result(spot, block)
        case "image" | "document":
            yield from _source(spot, block)
        case _:
            return


def _text(spot: str, block: Mapping[str, Any]) -> Iterator[str]:
    words = block.get("text")
    if not isinstance(words, str):
        yield f"{spot}.text.text: Input should be a valid string"
    elif not words:
        yield f"{spot}: text content blocks must be non-empty"
    elif not words.strip():
        yield f"{spot}: text content blocks must contain non-whitespace text"


def _thinking(spot: str, block: Mapping[str, Any], genuine: Genuine | None) -> Iterator[str]:
    words, signature = block.get("thinking"), block.get("signature")
    if not isinstance(words, str):
        yield f"{spot}.thinking.thinking: Field required"
    elif not isinstance(signature, str) or not signature:
        yield f"{spot}.thinking.signature: Field required"
    elif genuine is not None and not genuine(words, signature):
        yield f"{spot}: Invalid `signature` in `thinking` block: it is not as the model wrote it"
    if block.get("cache_control") is not None:
        yield f"{spot}.thinking.cache_control: Extra inputs are not permitted"


def _tool_use(spot: str, block: Mapping[str, Any]) -> Iterator[str]:
    id, name = block.get("id"), block.get("name")
    if not isinstance(id, str) or not ID.match(id):
        yield f"{spot}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$': {id!r}"
    if not isinstance(name, str) or not NAME.match(name):
        yield f"{spot}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$'"
    if not isinstance(block.get("input"), dict):
        yield f"{spot}.tool_use.input: Input should be a valid dictionary"


def _tool_result(spot: str, block: Mapping[str, Any]) -> Iterator[str]:
    content = block.get("content")
    if not isinstance(block.get("tool_use_id"), str):
        yield f"{spot}.tool_result.tool_use_id: Field required"
    if not isinstance(block.get("is_error", False), bool):
        yield f"{spot}.tool_result.is_error: Input should be a valid boolean"
    if block.get("is_error") is True and not content:
        yield f"{spot}.tool_result: content cannot be empty if `is_error` is true"
    if isinstance(content, list):
        for number, inner in enumerate(content):
            place = f"{spot}.tool_result.content.{number}"
            if not isinstance(inner, dict) or not isinstance(inner.get("type"), str):
                yield f"{place}.type: Field required"
            elif inner["type"] in ("tool_use", "tool_result", "thinking", "redacted_thinking"):
                yield f"{place}: `{inner['type']}` blocks can't be in a tool result"
            else:
                yield from _block(place, inner, None)
    elif content is not None and not isinstance(content, str):
        yield f"{spot}.tool_result.content: Input should be a string or a list of blocks"


def _source(spot: str, block: Mapping[str, Any]) -> Iterator[str]:
    kind = block["type"]
    source = block.get("source")
    if not isinstance(source, dict) or not isinstance(source.get("type"), str):
        yield f"{spot}.{kind}.source: Field required"
        return
    match source["type"]:
        case "base64":
            if not isinstance(source.get("data"), str) or not source["data"]:
                yield f"{spot}.{kind}.source.base64.data: {kind} data cannot be empty"
            if kind == "image" and source.get("media_type") not in IMAGE_TYPES:
                yield f"{spot}.image.source.base64.media_type: Input should be one of {', '.join(IMAGE_TYPES)}"
        case "url":
            if not isinstance(source.get("url"), str) or not source["url"]:
                yield f"{spot}.{kind}.source.url.url: Field required"
        case _:
            return
