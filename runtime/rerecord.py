"""
A history that took the place of another, made fit for the journal. Pure.

A compaction's outcome is recorded whole behind its boundary, so that a resume reads nothing before it and a replay
gives the very history that the session goes on with. Messages that were kept get new ids here: a line's id is used
once in a journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from .messages import AssistantMessage, Message, SystemMessage, ToolResultBlock, UserMessage
from .records import BlockRecord, Record, ResponseEndRecord, ResultRecord, SystemRecord, UserRecord
from .state import derive_id

__all__ = ["BOUNDARY", "REWOUND", "USAGE_TOTALS", "records_of", "rerecord"]

BOUNDARY = "compact_boundary"

REWOUND = "rewound"
"""The conversation goes on from an earlier message, ``data["to"]``; ``data["line"]`` is that one's last line."""

USAGE_TOTALS = "usage_totals"
"""
Follows a boundary: what the session had used until there, so that nobody need read what lies before it.
"""


def rerecord(
    messages: Sequence[Message], *, run_id: str, number: int, data: Mapping[str, object]
) -> tuple[tuple[Message, ...], tuple[Record, ...]]:
    """
    The history to go on with, its boundary first, and the records of it.

    Args:
        number: tells this compaction from the run's others.
        data: about the compaction, for the boundary; what a boundary in ``messages`` itself says is added.
    """
    rest = list(messages)
    first = rest[0] if rest else None
    text = "The conversation was compacted."
    facts = dict(data)
    if isinstance(first, SystemMessage) and first.subtype == BOUNDARY:
        rest.pop(0)
        text, facts = first.text or text, {**facts, **first.data}
    boundary = SystemMessage(uuid=derive_id(run_id, "boundary", number), subtype=BOUNDARY, text=text, data=facts)
    kept: list[Message] = [boundary]
    records: list[Record] = [_system(boundary)]
    names: dict[str, str] = {}
    for place, message in enumerate(rest):
        renamed = attrs.evolve(message, uuid=derive_id(run_id, "kept", number, place))
        if isinstance(renamed, AssistantMessage):
            names.update({call.id: call.name for call in renamed.tool_uses})
        kept.append(renamed)
        records += _records(renamed, names)
    return tuple(kept), tuple(records)


def records_of(messages: Sequence[Message]) -> tuple[Record, ...]:
    """
    The records of messages that another journal holds already, for one that begins with them. A replay gives the
    very same messages; what they used is not counted again.
    """
    records: list[Record] = []
    names: dict[str, str] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            names.update({call.id: call.name for call in message.tool_uses})
        records += _records(message, names)
    return tuple(records)


def _records(message: Message, names: Mapping[str, str]) -> Sequence[Record]:
    match message:
        case SystemMessage():
            return (_system(message),)
        case AssistantMessage():
            return _response(message)
        case UserMessage():
            results = [block for block in message.content if isinstance(block, ToolResultBlock)]
            if not results or len(results) != len(message.content):
                return (UserRecord(message=message),)
            return [
                ResultRecord(
                    uuid=message.uuid if place == 0 else derive_id(message.uuid, place),
                    block=block,
                    name=names.get(block.tool_use_id, ""),
                    details=message.details.get(block.tool_use_id),
                )
                for place, block in enumerate(results)
            ]


def _system(message: SystemMessage) -> SystemRecord:
    return SystemRecord(uuid=message.uuid, subtype=message.subtype, text=message.text, data=dict(message.data))


def _response(message: AssistantMessage) -> Sequence[Record]:
    blocks = [
        BlockRecord(
            uuid=message.uuid if place == 0 else derive_id(message.uuid, place),
            message_id=message.message_id,
            model=message.model,
            block=block,
            requested_model=message.requested_model,
        )
        for place, block in enumerate(message.content)
    ]
    end = ResponseEndRecord(
        uuid=derive_id(message.uuid, "end"),
        message_id=message.message_id,
        model=message.model,
        stop_reason=message.stop_reason,
        usage=message.usage,
        copied=True,
    )
    return [*blocks, end]
