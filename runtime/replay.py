"""
From a journal back to the history that it records.

A bad line never hides what follows it: it is skipped and reported with its place. Replaying a journal gives the
very history that the session had in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import orjson

from .errors import JournalUnwritable
from .messages import AssistantMessage, Message, SystemMessage, ToolUseBlock, Usage, UserMessage
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
from .transcript import record_from_line

__all__ = ["BadLine", "Replay", "read_records", "replay", "replay_file"]


@attrs.frozen(kw_only=True)
class BadLine:
    """A line that was skipped."""

    number: int
    offset_bytes: int
    reason: str


@attrs.define(eq=False, kw_only=True)
class Replay:
    """What a journal holds. ``started`` maps each call that began but has no recorded result to its start."""

    messages: tuple[Message, ...] = ()
    usage: dict[str, tuple[str, Usage]] = attrs.field(factory=dict)
    """By message id: model and usage of each response, withdrawn ones too (they were paid for)."""
    started: dict[str, ToolStartRecord] = attrs.field(factory=dict)
    last_uuid: str | None = None
    bad_lines: list[BadLine] = attrs.field(factory=list)


def read_records(path: Path, bad_lines: list[BadLine]) -> Iterator[Record]:
    """The records of a file, one line in memory at a time; what is no record goes to ``bad_lines``."""
    offset = 0
    try:
        file = path.open("rb")
    except OSError as error:
        raise JournalUnwritable(str(path), error.strerror or str(error)) from error
    with file:
        for number, line in enumerate(file, 1):
            try:
                value = orjson.loads(line)
                record = record_from_line(value) if isinstance(value, dict) else None
                if not isinstance(value, dict):
                    raise ValueError("it is no JSON object")
            except ValueError as error:
                bad_lines.append(BadLine(number=number, offset_bytes=offset, reason=str(error)))
            else:
                if record is not None:
                    yield record
            offset += len(line)


def replay_file(path: Path) -> Replay:
    """
    The journal at ``path``, replayed.

    Raises:
        JournalUnwritable: it can't be read.
    """
    bad_lines: list[BadLine] = []
    outcome = replay(read_records(path, bad_lines))
    outcome.bad_lines = bad_lines
    return outcome


def replay(records: Iterable[Record]) -> Replay:
    """What these records come to."""
    builder = _Builder()
    for record in records:
        builder.take(record)
    return builder.finish()


@attrs.define(eq=False)
class _Response:
    """A response in the making, and the results of its calls."""

    message: AssistantMessage
    results: dict[str, ResultRecord] = attrs.field(factory=dict)

    @property
    def open_ids(self) -> list[str]:
        return [call.id for call in self.message.tool_uses if call.id not in self.results]

    def messages(self) -> Iterator[Message]:
        yield self.message
        calls = [call for call in self.message.content if isinstance(call, ToolUseBlock) and call.id in self.results]
        if calls:
            done = [self.results[call.id] for call in calls]
            yield UserMessage(
                uuid=done[0].uuid,
                content=tuple(record.block for record in done),
                origin="tool_results",
                details={
                    call.id: each.details for call, each in zip(calls, done, strict=True) if each.details is not None
                },
            )


@attrs.define(eq=False)
class _Builder:
    out: Replay = attrs.field(factory=Replay)
    messages: list[Message] = attrs.field(factory=list)
    response: _Response | None = None
    waiting: list[Message] = attrs.field(factory=list)
    """Messages that were recorded while calls were open; they join after the results."""

    def take(self, record: Record) -> None:
        self.out.last_uuid = record.uuid
        match record:
            case UserRecord():
                self._add(record.message)
            case BlockRecord():
                self._block(record)
            case ResponseEndRecord():
                self._response_end(record)
            case ToolStartRecord():
                self.out.started[record.call_id] = record
            case ResultRecord():
                self._result(record)
            case WithdrawRecord():
                self._withdraw(record)
            case SystemRecord():
                self._add(SystemMessage(uuid=record.uuid, subtype=record.subtype, text=record.text, data=_data(record)))
            case RunStartRecord() | RunEndRecord():
                self._close()

    def finish(self) -> Replay:
        self._close()
        self.out.messages = tuple(self.messages)
        return self.out

    def _add(self, message: Message) -> None:
        if self.response is not None and self.response.open_ids:
            self.waiting.append(message)
            return
        self._close()
        self.messages.append(message)

    def _block(self, record: BlockRecord) -> None:
        if self.response is None or self.response.message.message_id != record.message_id:
            self._close()
            message = AssistantMessage(
                uuid=record.uuid,
                message_id=record.message_id,
                model=record.model,
                requested_model=record.requested_model,
                content=(record.block,),
            )
            self.response = _Response(message)
            return
        message = self.response.message
        self.response.message = attrs.evolve(message, content=(*message.content, record.block))

    def _response_end(self, record: ResponseEndRecord) -> None:
        self.out.usage[record.message_id] = (record.model, record.usage)
        if self.response is not None and self.response.message.message_id == record.message_id:
            self.response.message = attrs.evolve(
                self.response.message, stop_reason=record.stop_reason, usage=record.usage
            )

    def _result(self, record: ResultRecord) -> None:
        id = record.block.tool_use_id
        self.out.started.pop(id, None)
        if self.response is not None and id in self.response.open_ids:
            self.response.results[id] = record

    def _withdraw(self, record: WithdrawRecord) -> None:
        if self.response is not None and self.response.message.message_id == record.message_id:
            self.response = None
            self.messages += self.waiting
            self.waiting = []

    def _close(self) -> None:
        if self.response is not None:
            self.messages += self.response.messages()
            self.response = None
        self.messages += self.waiting
        self.waiting = []


def _data(record: SystemRecord) -> dict[str, Any]:
    return record.data if isinstance(record.data, dict) else {}
