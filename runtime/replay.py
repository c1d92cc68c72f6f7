"""
From a journal back to the history that it records.

A bad line never hides what follows it: it is skipped and reported with its place. Replaying a journal gives the
very history that the session had in memory. Journals of other programs are read as well as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import orjson

from .errors import JournalCorrupt
from .messages import AssistantMessage, JsonObject, Message, SystemMessage, ToolUseBlock, Usage, UserMessage
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
from .rerecord import BOUNDARY
from .transcript import records_from_line
from .wirejson import parse_object, without_surrogates

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
    """
    The records of a file, one line in memory at a time; what is no record goes to ``bad_lines``.

    Raises:
        JournalCorrupt: the file can't be read.
    """
    number = offset = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    records = records_from_line(_parse(line)) if not line.isspace() else ()
                except (ValueError, RecursionError) as error:
                    bad_lines.append(BadLine(number=number, offset_bytes=offset, reason=str(error)))
                else:
                    yield from records
                offset += len(line)
    except OSError as error:
        raise JournalCorrupt(str(path), number + 1, error.strerror or str(error)) from error


def _parse(line: bytes) -> JsonObject:
    """Leniently, where need be: other programs write half surrogate pairs as escapes."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        value, torn = parse_object(line)
        value = without_surrogates(value) if torn else value
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def replay_file(path: Path) -> Replay:
    """
    The journal at ``path``, replayed.

    Raises:
        JournalCorrupt: it can't be read at all.
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
    """A response in the making, and the results of its calls, in call order."""

    message: AssistantMessage
    results: list[ResultRecord | None] = attrs.field(factory=list)
    over: bool = False
    """Its end was recorded: what has the same message id from now on is another response of a careless server."""

    def add(self, record: BlockRecord) -> None:
        self.message = attrs.evolve(self.message, content=(*self.message.content, record.block))
        if isinstance(record.block, ToolUseBlock):
            self.results.append(None)

    @property
    def open_calls(self) -> bool:
        return None in self.results

    def answer(self, record: ResultRecord) -> None:
        """The first open call of that id is answered (ids need not be unique)."""
        for position, call in enumerate(self.message.tool_uses):
            if call.id == record.block.tool_use_id and self.results[position] is None:
                self.results[position] = record
                return

    def messages(self) -> Iterator[Message]:
        yield self.message
        done = [record for record in self.results if record is not None]
        if done:
            yield UserMessage(
                uuid=done[0].uuid,
                content=tuple(record.block for record in done),
                origin="tool_results",
                details={record.block.tool_use_id: record.details for record in done if record.details is not None},
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
                if record.subtype == BOUNDARY:
                    self._begin_anew()
                self._add(SystemMessage(uuid=record.uuid, subtype=record.subtype, text=record.text, data=_data(record)))
            case RunStartRecord() | RunEndRecord():
                self._close()

    def finish(self) -> Replay:
        self._close()
        self.out.messages = tuple(self.messages)
        return self.out

    def _begin_anew(self) -> None:
        """What is behind a boundary takes the place of all that came before it."""
        self.response = None
        self.waiting = []
        self.messages = []

    def _add(self, message: Message) -> None:
        if self.response is not None and self.response.open_calls:
            self.waiting.append(message)
            return
        self._close()
        self.messages.append(message)

    def _block(self, record: BlockRecord) -> None:
        response = self.response
        if response is None or response.over or response.message.message_id != record.message_id:
            self._close()
            message = AssistantMessage(
                uuid=record.uuid,
                message_id=record.message_id,
                model=record.model,
                requested_model=record.requested_model,
                content=(),
            )
            self.response = response = _Response(message)
        response.add(record)

    def _response_end(self, record: ResponseEndRecord) -> None:
        self.out.usage[record.message_id] = (record.model, record.usage)
        response = self.response
        if response is not None and response.message.message_id == record.message_id and not response.over:
            response.over = not record.beside_block
            response.message = attrs.evolve(response.message, stop_reason=record.stop_reason, usage=record.usage)

    def _result(self, record: ResultRecord) -> None:
        self.out.started.pop(record.block.tool_use_id, None)
        if self.response is not None:
            self.response.answer(record)

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
