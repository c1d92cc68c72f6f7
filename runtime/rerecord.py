"""
A history that took the place of another, made fit for the journal. Pure.

A compaction's outcome is recorded whole behind its boundary, so that a resume reads nothing before it and a replay
gives the very history that the session goes on with. The boundary says how many records belong to it: with fewer
behind it, the process died while they were written, and the history before it still counts. Messages that were kept
get new ids here: a line's id is used once in a journal.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import attrs

from .messages import AssistantMessage, Message, SystemMessage, ToolResultBlock, UserMessage
from .records import BlockRecord, Record, ResponseEndRecord, ResultRecord, SystemRecord, UserRecord
from .state import derive_id

__all__ = ["BOUNDARY", "REWOUND", "SUBAGENT_ENDED", "USAGE_TOTALS", "records_of", "renamed", "rerecord"]

BOUNDARY = "compact_boundary"

REWOUND = "rewound"
"""The conversation goes on from an earlier message, ``data["to"]``; ``data["line"]`` is that one's last line."""

SUBAGENT_ENDED = "subagent_ended"
"""A subagent has ended; ``data["totals"]`` is what it used, see `Ledger.totals`. Its own journal has all else."""

USAGE_TOTALS = "usage_totals"
"""Follows a compaction: what the session had used until there, so that nobody need read what lies before it."""


def rerecord(
    messages: Sequence[Message], *, run_id: str, number: int, data: Mapping[str, object], used: Container[str]
) -> tuple[tuple[Message, ...], tuple[Record, ...]]:
    """
    The history to go on with, its boundary first, and the records of it.

    Args:
        number: tells this compaction from the run's others.
        data: about the compaction, for the boundary; what a boundary in ``messages`` itself says is added.
        used: ids that the journal holds already.
    """
    if any(message.uuid in used for message in messages):
        messages = renamed(messages, seed=derive_id(run_id, "compaction", number))
    rest = list(messages)
    first = rest[0] if rest else None
    boundary = SystemMessage(
        uuid=derive_id(run_id, "boundary", number),
        subtype=BOUNDARY,
        text="The conversation was compacted.",
        data=dict(data),
    )
    if isinstance(first, SystemMessage) and first.subtype == BOUNDARY:
        rest.pop(0)
        boundary = attrs.evolve(first, data={**data, **first.data})
    kept: list[Message] = [boundary]
    records: list[Record] = [_system(boundary)]
    names: dict[str, str] = {}
    for message in rest:
        if isinstance(message, AssistantMessage):
            names.update({call.id: call.name for call in message.tool_uses})
        kept.append(message)
        records += _records(message, names)
    records[0] = attrs.evolve(_system(boundary), followed_by=len(records) - 1)
    return tuple(kept), tuple(records)


def renamed(messages: Sequence[Message], *, seed: str) -> tuple[Message, ...]:
    """The messages under new ids, made of ``seed``; a boundary that names some of them names them rightly."""
    ids = {message.uuid: derive_id(seed, "kept", place) for place, message in enumerate(messages)}

    def rename(message: Message) -> Message:
        message = attrs.evolve(message, uuid=ids[message.uuid])
        if not isinstance(message, SystemMessage) or message.subtype != BOUNDARY:
            return message
        data = {
            key: [ids.get(item, item) if isinstance(item, str) else item for item in value]
            if isinstance(value, list)
            else value
            for key, value in message.data.items()
        }
        return attrs.evolve(message, data=data)

    return tuple(map(rename, messages))


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
