"""
The lines of a journal: from records to JSON objects and back. Pure.

The shapes are those that readers of existing transcripts understand: ``user``, ``assistant`` and ``system`` lines
linked by ``uuid`` and ``parentUuid``, one content block in each assistant line, the API's message id in all lines of
one response. A response's usage is in its last line alone (which has no content), so that a reader which adds up
lines counts it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, assert_never

import attrs
import orjson

from .messages import (
    Block,
    JsonObject,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UserMessage,
    block_from_wire,
    block_to_wire,
)
from .records import (
    BlockRecord,
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
from .wirejson import without_surrogates

__all__ = ["LineWriter", "record_from_line"]


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

    def line(self, record: Record, now: datetime) -> bytes:
        """The record as one line, with its newline."""
        common: JsonObject = {
            "parentUuid": self.parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.session_id,
            "version": self.version,
            "timestamp": now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z",
        }
        value = {**common, **_body(record), "uuid": record.uuid}
        self.parent = record.uuid
        try:
            return orjson.dumps(value, default=_as_json, option=_OPTIONS)
        except TypeError:
            return orjson.dumps(without_surrogates(value), default=_as_json, option=_OPTIONS)


_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS


def _as_json(value: object) -> Any:
    """Details of a tool may be anything; what JSON has no form for is kept as text."""
    fields = getattr(type(value), "__attrs_attrs__", None)
    if fields is not None:
        return {field.name: getattr(value, field.name) for field in fields}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return list(value)
    return str(value)


def _body(record: Record) -> JsonObject:
    match record:
        case UserRecord():
            return _user_line(record.message)
        case BlockRecord():
            line = _assistant_line(record.message_id, record.model, [_stored(record.block)])
            return {**line, "requestedModel": record.requested_model} if record.requested_model else line
        case ResponseEndRecord():
            line = _assistant_line(record.message_id, record.model, [])
            line["message"]["stop_reason"] = record.stop_reason
            if record.usage.reported:
                line["message"]["usage"] = record.usage.to_wire()
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
            return _system_line(record.subtype, record.text, record.data)
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


def _stored(block: Block) -> JsonObject:
    wire = block_to_wire(block)
    if isinstance(block, ToolUseBlock) and block.invalid_json is not None:
        wire["invalid_json"] = block.invalid_json
    return wire


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


def record_from_line(line: Mapping[str, Any]) -> Record | None:
    """
    The record of a line; None for a line that is somebody else's.

    Raises:
        ValueError: the line claims to be a record, but is none.
    """
    uuid = line.get("uuid")
    if not isinstance(uuid, str):
        return None
    match line:
        case {"type": "user", "message": {"content": content}}:
            return _user_record(uuid, line, content)
        case {"type": "assistant", "message": {"id": str(id), "content": list(content)} as message}:
            return _assistant_record(uuid, line, id, message, content)
        case {"type": "system", "subtype": str(subtype)}:
            return _system_record(uuid, subtype, line)
        case {"type": "user" | "assistant" | "system"}:
            raise ValueError(f"a {line['type']} line without what belongs into it")
        case _:
            return None


def _user_record(uuid: str, line: Mapping[str, Any], content: object) -> Record:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise ValueError("a user line whose content is no list of blocks")
    blocks = tuple(block_from_wire(part) for part in content)
    if len(blocks) == 1 and isinstance(blocks[0], ToolResultBlock) and "toolName" in line:
        return ResultRecord(uuid=uuid, block=blocks[0], name=str(line["toolName"]), details=line.get("toolUseResult"))
    origin: Any = line.get("origin", "prompt")
    return UserRecord(
        message=UserMessage(
            uuid=uuid,
            content=blocks,
            origin=origin,
            hidden=line.get("isMeta") is True,
            pinned=line.get("pinned") is True,
        )
    )


def _assistant_record(
    uuid: str, line: Mapping[str, Any], id: str, message: Mapping[str, Any], content: list[Any]
) -> Record:
    model = str(message.get("model") or "")
    if content and isinstance(content[0], dict):
        wire = dict(content[0])
        invalid = wire.pop("invalid_json", None)
        block = block_from_wire(wire)
        if isinstance(block, ToolUseBlock) and isinstance(invalid, str):
            block = attrs.evolve(block, invalid_json=invalid)
        asked = str(line.get("requestedModel") or "")
        return BlockRecord(uuid=uuid, message_id=id, model=model, block=block, requested_model=asked)
    reason = message.get("stop_reason")
    return ResponseEndRecord(
        uuid=uuid,
        message_id=id,
        model=model,
        stop_reason=reason if isinstance(reason, str) else None,
        usage=Usage().updated(message.get("usage")),
        incomplete=line.get("incomplete") is True,
    )


def _system_record(uuid: str, subtype: str, line: Mapping[str, Any]) -> Record:
    data: Any = line.get("data")
    match subtype, data:
        case "tool_started", {"toolUseId": str(id), "toolName": str(name)}:
            return ToolStartRecord(uuid=uuid, call_id=id, name=name, idempotent=data.get("idempotent") is True)
        case "message_withdrawn", {"messageId": str(id)}:
            return WithdrawRecord(uuid=uuid, message_id=id, reason=str(line.get("content", "")))
        case "run_started", {"runId": str(id)}:
            return RunStartRecord(uuid=uuid, run_id=id, model=str(data.get("model", "")))
        case "run_ended", {"runId": str(id)}:
            reason = str(data.get("terminalReason", ""))
            return RunEndRecord(uuid=uuid, run_id=id, terminal_reason=reason, errors=tuple(data.get("errors", ())))
        case _:
            return SystemRecord(uuid=uuid, subtype=subtype, text=str(line.get("content", "")), data=data)
