"""
Would the real API take this request? Everything that it would refuse, in its words. Pure.

Stricter than the API in one point: messages of one role in a row are refused, though the API merges them by now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .message_rules import check_messages
from .pairing import check_pairing

__all__ = ["CACHE_LIMIT", "MEDIA_LIMIT", "violations_of"]

CACHE_LIMIT = 4
"""Blocks with cache_control in one request."""

MEDIA_LIMIT = 100
"""Images and documents in one request."""

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}\Z")

FIELDS: Mapping[str, tuple[type, ...]] = {
    "model": (str,),
    "messages": (list,),
    "max_tokens": (int,),
    "system": (str, list),
    "tools": (list,),
    "tool_choice": (dict,),
    "thinking": (dict,),
    "stream": (bool,),
    "temperature": (int, float),
    "top_p": (int, float),
    "top_k": (int,),
    "stop_sequences": (list,),
    "metadata": (dict,),
    "service_tier": (str,),
    "container": (str, dict, type(None)),
    "mcp_servers": (list,),
    "context_management": (dict, type(None)),
    "output_config": (dict,),
    "output_format": (dict, type(None)),
    "cache_control": (dict, type(None)),
    "inference_geo": (str, type(None)),
    "speed": (str, type(None)),
}


def violations_of(body: object, *, genuine: Callable[[str, str], bool] | None = None) -> list[str]:
    """
    What is wrong with a request body, as texts that name the place; empty when nothing is.

    ``genuine(thinking, signature)`` says whether a thinking block is as the model wrote it; None: not checked.
    """
    if not isinstance(body, dict):
        return ["the request body is not a JSON object"]
    found = [*_fields(body), *_system(body.get("system")), *_tools(body.get("tools")), *_thinking(body)]
    messages = body.get("messages")
    if isinstance(messages, list) and messages:
        found += check_messages(messages, genuine)
        found += check_pairing(messages)
    found += _limits(body)
    return found


def _fields(body: Mapping[str, Any]) -> Iterator[str]:
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            yield f"{name}: Field required"
    for name, value in body.items():
        if name not in FIELDS:
            yield f"{name}: Extra inputs are not permitted"
        elif not _is(value, FIELDS[name]):
            wanted = " or ".join(kind.__name__ for kind in FIELDS[name])
            yield f"{name}: Input should be {wanted}, not {type(value).__name__}"
    if body.get("model") == "":
        yield "model: String should have at least 1 character"
    if _is(body.get("max_tokens"), (int,)) and body["max_tokens"] < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    if body.get("messages") == []:
        yield "messages: at least one message is required"


def _is(value: object, kinds: tuple[type, ...]) -> bool:
    """`isinstance` as JSON means it: true is no number."""
    return isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)


def _system(system: object) -> Iterator[str]:
    if not isinstance(system, list):
        return
    for number, block in enumerate(system):
        place = f"system.{number}"
        if not isinstance(block, dict) or block.get("type") != "text":
            yield f"{place}: Input should be a text block"
        elif not isinstance(block.get("text"), str) or not block["text"].strip():
            yield f"{place}: system text blocks must contain non-whitespace text"


def _tools(tools: object) -> Iterator[str]:
    if not isinstance(tools, list):
        return
    seen: set[str] = set()
    for number, tool in enumerate(tools):
        place = f"tools.{number}"
        if not isinstance(tool, dict):
            yield f"{place}: Input should be an object"
            continue
        name = tool.get("name")
        if tool.get("type") == "mcp_toolset":
            continue
        if not isinstance(name, str) or not TOOL_NAME.match(name):
            yield f"{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        elif name in seen:
            yield f"{place}: Tool names must be unique: {name}"
        else:
            seen.add(name)
        if tool.get("type", "custom") == "custom":
            yield from _custom_tool(place, tool)


def _custom_tool(place: str, tool: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(tool.get("description", ""), str):
        yield f"{place}.description: Input should be a valid string"
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        yield f"{place}.input_schema: Field required"
        return
    if schema.get("type") != "object":
        yield f"{place}.input_schema.type: Input should be 'object'"
    for word in ("oneOf", "allOf", "anyOf"):
        if word in schema:
            yield f"{place}.input_schema: input_schema does not support {word} at the top level"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        yield f"{place}.input_schema.properties: Input should be an object"
    else:
        for name in properties:
            if not PROPERTY_NAME.match(name):
                pattern = "'^[a-zA-Z0-9_.-]{1,64}$'"
                yield f"{place}.input_schema.properties: Property keys should match pattern {pattern}: {name!r}"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield f"{place}.input_schema.required: Input should be a list of strings"


def _thinking(body: Mapping[str, Any]) -> Iterator[str]:
    thinking = body.get("thinking")
    if not isinstance(thinking, dict):
        return
    kind = thinking.get("type")
    if kind not in ("enabled", "disabled", "adaptive"):
        yield f"thinking.type: Input should be 'enabled', 'disabled' or 'adaptive', not {kind!r}"
    if kind != "enabled":
        return
    budget, cap = thinking.get("budget_tokens"), body.get("max_tokens")
    if not isinstance(budget, int) or isinstance(budget, bool):
        yield "thinking.enabled.budget_tokens: Field required"
    elif budget < 1024:
        yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
    elif isinstance(cap, int) and budget >= cap:
        yield "max_tokens must be greater than thinking.budget_tokens"


def _limits(body: Mapping[str, Any]) -> Iterator[str]:
    marks = media = 0
    for block in _blocks(body):
        marks += block.get("cache_control") is not None
        media += block.get("type") in ("image", "document")
    if marks > CACHE_LIMIT:
        yield f"A maximum of {CACHE_LIMIT} blocks with cache_control may be provided. Found {marks}."
    if media > MEDIA_LIMIT:
        yield f"messages: at most {MEDIA_LIMIT} images and documents may be provided. Found {media}."


def _blocks(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Everything that may carry a cache mark: tools, system blocks, content blocks and blocks in results."""
    places = [body.get("tools"), body.get("system")]
    messages = body.get("messages")
    if isinstance(messages, list):
        places += [message.get("content") for message in messages if isinstance(message, dict)]
    for blocks in places:
        for block in blocks if isinstance(blocks, list) else ():
            if not isinstance(block, dict):
                continue
            yield block
            inner = block.get("content")
            if isinstance(inner, list):
                yield from (item for item in inner if isinstance(item, dict))
