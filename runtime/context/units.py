"""
The parts of a history that can't be taken apart: a response with calls and the message that answers them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from ..messages import (
    AssistantMessage,
    DocumentBlock,
    ImageBlock,
    Message,
    RawBlock,
    TextBlock,
    ToolResultBlock,
    UserMessage,
)
from ..tokens import Estimates
from .plan import Collapse

__all__ = [
    "BOUNDARY",
    "Unit",
    "boundary_index",
    "call_names",
    "covered",
    "replace_results",
    "result_chars",
    "rounds",
    "units",
]

BOUNDARY = "compact_boundary"


@attrs.frozen
class Unit:
    """Messages ``start`` to ``end`` (excluded) of a history."""

    start: int
    end: int
    calls: bool
    """It holds calls and their results."""


def units(messages: Sequence[Message]) -> Iterator[Unit]:
    """The history in parts that are kept or dropped as a whole, in order."""
    at = 0
    while at < len(messages):
        end = at + 1
        message = messages[at]
        calls = isinstance(message, AssistantMessage) and not message.api_error and bool(message.tool_uses)
        if calls:
            while end < len(messages) and not isinstance(messages[end], UserMessage | AssistantMessage):
                end += 1
            if end < len(messages) and isinstance(messages[end], UserMessage):
                end += 1
        yield Unit(at, end, calls)
        at = end


def rounds(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """
    The history by model requests: each part begins with a response and goes on to the next one; what comes before the
    first response is a part of its own.
    """
    starts = [index for index, message in enumerate(messages) if _is_response(message)]
    if not starts or starts[0] > 0:
        starts.insert(0, 0)
    return list(zip(starts, [*starts[1:], len(messages)], strict=True)) if messages else []


def _is_response(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and not message.api_error


def call_names(messages: Sequence[Message]) -> dict[str, str]:
    """Each call's tool, by call id."""
    return {
        block.id: block.name
        for message in messages
        if isinstance(message, AssistantMessage)
        for block in message.tool_uses
    }


def covered(messages: Sequence[Message], collapses: Sequence[Collapse]) -> frozenset[str]:
    """The uuids of messages that lie in these ranges, and of the summaries that stand for them."""
    ends = {item.first_uuid: item.last_uuid for item in collapses}
    found = {f"{first}-collapse" for first in ends}
    last: str | None = None
    for message in messages if ends else ():
        last = last or ends.get(message.uuid)
        if last is not None:
            found.add(message.uuid)
        if message.uuid == last:
            last = None
    return frozenset(found)


def result_chars(block: ToolResultBlock) -> int:
    """How long the text of a result is."""
    if isinstance(block.content, str):
        return len(block.content)
    return sum(len(part.text) for part in block.content if isinstance(part, TextBlock))


def replace_results(message: Message, texts: Mapping[str, str], *, media: bool, estimates: Estimates) -> Message:
    """
    The message with the texts of these results replaced (by call id); with ``media``, images and documents of theirs
    are replaced as well. The same object if it is pinned or has none of them.
    """
    if not isinstance(message, UserMessage) or message.pinned:
        return message
    found = tuple(
        (block.tool_use_id, texts[block.tool_use_id])
        for block in message.content
        if isinstance(block, ToolResultBlock) and block.tool_use_id in texts
    )
    return (
        estimates.variant(message, (found, media), lambda: _replaced(message, dict(found), media)) if found else message
    )


def _replaced(message: UserMessage, texts: Mapping[str, str], media: bool) -> UserMessage:
    content = list(message.content)
    for index, block in enumerate(content):
        if not isinstance(block, ToolResultBlock) or block.tool_use_id not in texts:
            continue
        text = texts[block.tool_use_id]
        rest: tuple[ImageBlock | DocumentBlock | RawBlock, ...] = ()
        if not media and not isinstance(block.content, str):
            rest = tuple(part for part in block.content if not isinstance(part, TextBlock))
        new = attrs.evolve(block, content=(TextBlock(text), *rest) if rest else text)
        if new != block:
            content[index] = new
    return message if content == list(message.content) else attrs.evolve(message, content=tuple(content))


def boundary_index(messages: Sequence[Message]) -> int | None:
    """Where the newest compaction's mark is. Costs as much as there is after it."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not isinstance(message, UserMessage | AssistantMessage) and message.subtype == BOUNDARY:
            return index
    return None
