"""What survives every step and every compaction byte for byte. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..messages import AssistantMessage, Message, TextBlock, UserMessage, text_of
from ..plain_json import json_line
from ..tokens import Estimates
from .units import units

__all__ = [
    "TASK_LIST_HEADER",
    "carried_over",
    "current_request",
    "current_task_list",
    "first_request",
    "last_user_message",
    "pinned_tokens",
    "protected",
]

TASK_LIST_HEADER = "The current task list:\n"
"""Begins the message in which a compaction carries the list over."""

_SPOKEN = frozenset(("prompt", "steer"))


def _is_spoken(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.origin in _SPOKEN and not message.hidden


def first_request(messages: Sequence[Message]) -> Message | None:
    """The first thing that was asked for."""
    return next((message for message in messages if _is_spoken(message)), None)


def current_request(messages: Sequence[Message]) -> Message | None:
    """The last task that was given, whatever was said while it was worked on."""
    return next((m for m in reversed(messages) if _is_spoken(m) and getattr(m, "origin", "") == "prompt"), None)


def last_user_message(messages: Sequence[Message]) -> Message | None:
    """The last thing that a person said."""
    return next((message for message in reversed(messages) if _is_spoken(message)), None)


def current_task_list(messages: Sequence[Message], tools: frozenset[str]) -> str | None:
    """The newest input of one of these tools as JSON, or the list that a compaction carried over; None: no list."""
    holder = _task_list_holder(messages, tools)
    if isinstance(holder, AssistantMessage):
        call = next(block for block in reversed(holder.tool_uses) if block.name in tools)
        return json_line(call.input).decode().rstrip("\n")
    return text_of(holder.content).removeprefix(TASK_LIST_HEADER) if isinstance(holder, UserMessage) else None


def protected(messages: Sequence[Message], task_list_tools: frozenset[str]) -> frozenset[str]:
    """
    The uuids of all messages that no step may change or leave out: the first request, the current one, the last user
    message, pinned messages and the newest call that set the task list. A call and its result stay together.
    """
    holder = _task_list_holder(messages, task_list_tools)
    return _with_partners(messages, lambda message: message is holder)


def carried_over(messages: Sequence[Message]) -> frozenset[str]:
    """The same for a compaction: without the task list, which a compaction renders anew."""
    return _with_partners(messages, lambda message: False)


def _with_partners(messages: Sequence[Message], also: Callable[[Message], bool]) -> frozenset[str]:
    named = (first_request(messages), current_request(messages), last_user_message(messages))
    spoken = {message.uuid for message in named if message}
    pinned: set[str] = set()
    for unit in units(messages):
        part = messages[unit.start : unit.end]
        if any(message.uuid in spoken or _is_pinned(message) or also(message) for message in part):
            pinned.update(message.uuid for message in part)
    return frozenset(pinned)


def _is_pinned(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.pinned


def _task_list_holder(messages: Sequence[Message], tools: frozenset[str]) -> Message | None:
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) and any(block.name in tools for block in message.tool_uses):
            return message
        if isinstance(message, UserMessage) and message.origin == "attachment" and message.hidden:
            first = message.content[0] if message.content else None
            if isinstance(first, TextBlock) and first.text.startswith(TASK_LIST_HEADER):
                return message
    return None


def pinned_tokens(messages: Sequence[Message], estimates: Estimates) -> int:
    """What of the history a compaction can't take away, in estimated tokens."""
    pinned = carried_over(messages)
    return sum(estimates.of(message) for message in messages if message.uuid in pinned)
