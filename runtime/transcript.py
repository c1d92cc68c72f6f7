"""
The lines of a journal: from records to JSON objects and back. Pure.

The shapes are those that readers of existing transcripts understand: ``user``, ``assistant`` and ``system`` lines
linked by ``uuid`` and ``parentUuid``, one content block in each assistant line, the API's message id in all lines of
one response. A response's usage is in its last line alone (whose content is a thought of nothing, no part of the
conversation), so that a reader which adds up lines counts it once; in a copy of a response it stands where no such
reader looks.

Lines of other programs are read as well as possible: content that is a plain text, several blocks in a line, usage
and stop reason beside a block, results without a tool's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, assert_never, get_args

import attrs

from .messages import (
    Block,
    JsonObject,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UserMessage,
    UserOrigin,
    block_from_wire,
    block_to_wire,
)
from .plain_json import json_line
from .records import (
    BlockRecord,
    Priority,
    QueueRecord,
    Record,
    ResponseEndRecord,
    ResultRecord,
    RunEndRecord,
    RunStartRecord,
    SystemRecord,
    ToolStartRecord,
    UserRecord,
    WithdrawRecord,
)
from .rerecord import REWOUND
from .schema import SCHEMA

__all__ = ["LineWriter", "records_from_line"]

_ORIGINS: tuple[UserOrigin, ...] = get_args(UserOrigin)
_PRIORITIES: tuple[Priority, ...] = get_args(Priority)


@attrs.define(eq=False, kw_only=True)
class LineWriter:
    """
    Makes lines for one session, each linked to the one before.

    ``parent`` is the uuid of the last line.
    """

    session_id: str
    cwd: str
    version: str
    parent: str | None = None
    agent_id: str | None = None
    """The subagent whose journal it is; ``session_id`` is its main agent's."""

    def line(self, record: Record, now: datetime) -> bytes:
        """The record as one line, with its newline. ``now`` is UTC. Never fails, whatever a tool's details are."""
        common: JsonObject = {
            "parentUuid": self.parent,
            "isSidechain": self.agent_id is not None,
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.session_id,
            "version": self.version,
            "schema": SCHEMA,
            "timestamp": now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z",
        }
        if self.agent_id is not None:
            common["agentId"] = self.agent_id
        if isinstance(record, SystemRecord) and record.subtype == REWOUND and isinstance(record.data, dict):
            # Readers follow the links: for them, the branch begins where the conversation was taken back to.
            common["parentUuid"] = record.data.get("line", self.parent)
        value = {**common, **_body(record), "uuid": record.uuid}
        self.parent = record.uuid
        return json_line(value)


def _body(record: Record) -> JsonObject:
    match record:
        case UserRecord():
            return _user_line(record.message)
        case QueueRecord():
            message = {**_user_line(record.message), "uuid": record.message.uuid}
            about = {"runId": record.run_id, "priority": record.priority, "scope": record.scope}
            return _system_line("message_queued", "", {"message": message, **about})
        case BlockRecord():
            return _block_line(record)
        case ResponseEndRecord():
            line = _assistant_line(record.message_id, record.model, [])
            line["message"]["stop_reason"] = record.stop_reason
            usage = record.usage.to_wire() if record.usage.reported else dict(record.usage.extra)
            if record.copied:
                line["copiedUsage"] = usage
            elif usage:
                line["message"]["usage"] = usage
                # Some readers add up only what names its request and is no empty message.
                line["message"]["content"] = [{"type": "thinking", "thinking": "", "signature": ""}]
                line |= {"requestId": record.message_id, "responseEnd": True}
            return {**line, "incomplete": True} if record.incomplete else line
        case ResultRecord():
            line = {"type": "user", "message": {"role": "user", "content": [block_to_wire(record.block)]}}
            line["toolName"] = record.name
            return line if record.details is None else {**line, "toolUseResult": record.details}
        case ToolStartRecord():
            data = {"toolUseId": record.call_id, "toolName": record.name, "idempotent": record.idempotent}
            return _system_line("tool_started", f"{record.name} started", data)
        case WithdrawRecord():
            return _system_line("message_withdrawn", record.reason, {"messageId": record.message_id})
        case SystemRecord():
            line = _system_line(record.subtype, record.text, record.data)
            return {**line, "followedBy": record.followed_by} if record.followed_by else line
        case RunStartRecord():
            return _system_line("run_started", "", {"runId": record.run_id, "model": record.model})
        case RunEndRecord():
            data = {
                "runId": record.run_id,
                "terminalReason": record.terminal_reason,
                "errors": list(record.errors),
            }
            return _system_line("run_ended", record.terminal_reason, data)
        case _:
            assert_never(record)


def _user_line(message: UserMessage) -> JsonObject:
    line: JsonObject = {
        "type": "user",
        "message": {"role": "user", "content": [block_to_wire(block) for block in message.content]},
        "origin": message.origin,
    }
    if message.hidden:
        line["isMeta"] = True
    if message.pinned:
        line["pinned"] = True
    return line


def _block_line(record: BlockRecord) -> JsonObject:
    line = _assistant_line(record.message_id, record.model, [block_to_wire(record.block)])
    if record.requested_model:
        line["requestedModel"] = record.requested_model
    if isinstance(record.block, ToolUseBlock) and record.block.invalid_json is not None:
        line["invalidJson"] = record.block.invalid_json
    return line


def _assistant_line(message_id: str, model: str, content: list[JsonObject]) -> JsonObject:
    return {
        "type": "assistant",
        "message": {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
        },
    }


def _system_line(subtype: str, text: str, data: Any) -> JsonObject:
    line: JsonObject = {"type": "system", "subtype": subtype, "content": text, "level": "info"}
    return line if data is None else {**line, "data": data}


def records_from_line(line: Mapping[str, Any]) -> tuple[Record, ...]:
    """
    The records of a line: one if atrio wrote it, several for some lines of other programs, none for what is no part
    of the conversation (kinds of lines that are unknown, subagents' lines, another program's notes of API errors).

    Raises:
        ValueError: the line claims to be a record, but is none.
    """
    kind, uuid = line.get("type"), line.get("uuid")
    if kind not in ("user", "assistant", "system"):
        return ()
    if line.get("isSidechain") is True or line.get("isApiErrorMessage") is True:
        return ()
    if not isinstance(uuid, str):
        raise ValueError(f"a line of type {kind} without a uuid")
    match line:
        case {"type": "user", "message": {"content": content}}:
            return _user_records(uuid, line, _blocks(content))
        case {"type": "assistant", "responseEnd": True, "message": {} as message}:
            return _assistant_records(uuid, line, message, ())
        case {"type": "assistant", "message": {"content": content} as message}:
            return _assistant_records(uuid, line, message, _blocks(content))
        case {"type": "system", "subtype": str(subtype)}:
            return (_system_record(uuid, subtype, line),)
        case _:
            raise ValueError(f"a line of type {kind} without what belongs into it")


def _blocks(content: object) -> tuple[Block, ...]:
    if isinstance(content, str):
        return (TextBlock(content),)
    if not isinstance(content, list):
        raise ValueError("a message whose content is neither a text nor a list of blocks")
    blocks: list[Block] = []
    for part in content:
        if isinstance(part, str):
            blocks.append(TextBlock(part))
        elif isinstance(part, dict):
            blocks.append(block_from_wire(part))
        else:
            raise ValueError("a message with a part that is no content block")
    return tuple(blocks)


def _user_records(uuid: str, line: Mapping[str, Any], blocks: tuple[Block, ...]) -> tuple[Record, ...]:
    results = [block for block in blocks if isinstance(block, ToolResultBlock)]
    # A line of ours that is no result has an origin; other programs give none to either.
    if results and len(results) == len(blocks) and "origin" not in line:
        name = line.get("toolName")
        details = line.get("toolUseResult") if len(results) == 1 else None
        return tuple(
            ResultRecord(uuid=uuid, block=block, name=name if isinstance(name, str) else "", details=details)
            for block in results
        )
    return (UserRecord(message=_user_message(uuid, line, blocks)),)


def _user_message(uuid: str, line: Mapping[str, Any], blocks: tuple[Block, ...]) -> UserMessage:
    return UserMessage(
        uuid=uuid,
        content=blocks,
        origin=_origin(line.get("origin")),
        hidden=line.get("isMeta") is True,
        pinned=line.get("pinned") is True,
    )


def _origin(value: object) -> UserOrigin:
    for origin in _ORIGINS:
        if origin == value:
            return origin
    return "prompt"


def _assistant_records(
    uuid: str, line: Mapping[str, Any], message: Mapping[str, Any], blocks: tuple[Block, ...]
) -> tuple[Record, ...]:
    id, model, reason, usage = (message.get(key) for key in ("id", "model", "stop_reason", "usage"))
    copied = line.get("copiedUsage")
    usage = copied if isinstance(copied, dict) else usage
    message_id = id if isinstance(id, str) else uuid
    name = model if isinstance(model, str) else ""
    asked, invalid = line.get("requestedModel"), line.get("invalidJson")
    records: list[Record] = []
    for block in blocks:
        if isinstance(block, ToolUseBlock) and isinstance(invalid, str):
            block = attrs.evolve(block, invalid_json=invalid)
        requested = asked if isinstance(asked, str) else ""
        records.append(
            BlockRecord(uuid=uuid, message_id=message_id, model=name, block=block, requested_model=requested)
        )
    if not blocks or isinstance(reason, str) or isinstance(usage, dict):
        records.append(
            ResponseEndRecord(
                uuid=uuid,
                message_id=message_id,
                model=name,
                stop_reason=reason if isinstance(reason, str) else None,
                usage=Usage().updated(usage if isinstance(usage, dict) else None),
                incomplete=line.get("incomplete") is True,
                beside_block=bool(blocks),
                copied=isinstance(copied, dict),
            )
        )
    return tuple(records)


def _system_record(uuid: str, subtype: str, line: Mapping[str, Any]) -> Record:
    data: Any = line.get("data")
    match subtype, data:
        case "tool_started", {"toolUseId": str(id), "toolName": str(name)}:
            return ToolStartRecord(uuid=uuid, call_id=id, name=name, idempotent=data.get("idempotent") is True)
        case "message_withdrawn", {"messageId": str(id)}:
            return WithdrawRecord(uuid=uuid, message_id=id, reason=str(line.get("content", "")))
        case "message_queued", {"message": {"uuid": str(id), "message": {"content": content}} as queued}:
            return QueueRecord(
                uuid=uuid,
                message=_user_message(id, queued, _blocks(content)),
                run_id=str(data.get("runId", "")),
                priority=next((each for each in _PRIORITIES if each == data.get("priority")), "next"),
                scope=str(data.get("scope", "")),
            )
        case "run_started", {"runId": str(id)}:
            return RunStartRecord(uuid=uuid, run_id=id, model=str(data.get("model", "")))
        case "run_ended", {"runId": str(id)}:
            reason = str(data.get("terminalReason", ""))
            errors = data.get("errors")
            texts = tuple(map(str, errors)) if isinstance(errors, list) else ()
            return RunEndRecord(uuid=uuid, run_id=id, terminal_reason=reason, errors=texts)
        case _:
            followed_by = line.get("followedBy")
            return SystemRecord(
                uuid=uuid,
                subtype=subtype,
                text=str(line.get("content", "")),
                data=data,
                followed_by=followed_by if isinstance(followed_by, int) else 0,
            )
