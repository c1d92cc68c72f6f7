"""The pairing law on the wire: each tool_use has one tool_result, in the next message, before all else. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["blocks_of", "check_pairing"]


def blocks_of(message: object) -> list[Mapping[str, Any]]:
    """The content blocks of a message as sent; none where it is plain text or no message."""
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def check_pairing(messages: Sequence[object]) -> Iterator[str]:
    """Calls without a result, results without a call, doubles of both, results behind other content."""
    known: set[object] = set()
    open_calls: list[object] = []
    for number, message in enumerate(messages):
        blocks = blocks_of(message)
        yield from _results(f"messages.{number}", number, blocks, open_calls)
        calls = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
        for place, block in enumerate(blocks):
            if block.get("type") != "tool_use":
                continue
            if _hashable(block.get("id")) in known:
                yield f"messages.{number}.content.{place}: `tool_use` ids must be unique: {block.get('id')}"
            known.add(_hashable(block.get("id")))
        open_calls = calls
    if open_calls:
        yield _unanswered(len(messages) - 1, open_calls)


def _results(place: str, number: int, blocks: list[Mapping[str, Any]], open_calls: list[object]) -> Iterator[str]:
    answered: list[object] = []
    other = False
    for position, block in enumerate(blocks):
        spot = f"{place}.content.{position}"
        if block.get("type") != "tool_result":
            other = True
            continue
        id = block.get("tool_use_id")
        if id in answered:
            yield f"{spot}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
        elif id not in open_calls:
            yield (
                f"{spot}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must "
                "have a corresponding `tool_use` block in the previous message."
            )
        elif other:
            yield f"{spot}: `tool_result` blocks must come before any other content of the message"
        answered.append(id)
    missing = [id for id in open_calls if id not in answered]
    if missing:
        yield _unanswered(number - 1, missing)


def _unanswered(number: int, ids: list[object]) -> str:
    names = ", ".join(str(id) for id in ids)
    return (
        f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: {names}. Each "
        "`tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _hashable(id: object) -> object:
    return id if isinstance(id, str) else repr(id)
