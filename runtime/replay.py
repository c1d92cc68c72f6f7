"""
From a journal back to the history that it records.

A bad line never hides what follows it: it is skipped and reported with its place. Replaying a journal gives the
very history that the session had in memory. Journals of other programs are read as well as possible. What a crash
left unfinished is settled in `resume`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import orjson

from .beside import Beside
from .errors import JournalCorrupt
from .messages import AssistantMessage, JsonObject, Message, SystemMessage, ToolUseBlock, Usage, UserMessage
from .records import (
    BlockRecord,
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
from .rerecord import BOUNDARY, REWOUND, SUBAGENT_ENDED, USAGE_TOTALS
from .schema import NewerSchema, upgraded
from .transcript import records_from_line
from .wirejson import parse_object, without_surrogates

__all__ = ["BadLine", "OpenResponse", "Replay", "Replayer", "read_records", "replay", "replay_file"]


@attrs.frozen(kw_only=True)
class BadLine:
    """A line that was skipped. ``number`` counts from where the reading began; ``offset_bytes`` is its place."""

    number: int
    offset_bytes: int
    reason: str


@attrs.define(eq=False, kw_only=True)
class Replay:
    """What a journal holds. ``started`` maps each call that began but has no recorded result to its start."""

    messages: tuple[Message, ...] = ()
    usage: dict[str, tuple[str, Usage]] = attrs.field(factory=dict)
    """
    By message id: model and usage of each response, withdrawn ones too (they were paid for); those that
    ``usage_before`` counts are not among them, nor copies of another session's.
    """
    usage_before: JsonObject | None = None
    """What had been used when the history was last compacted, if that is recorded; see `Ledger.totals`."""
    usage_below: list[JsonObject] = attrs.field(factory=list)
    """What each subagent had used that ended since then; see `Ledger.totals`."""
    started: dict[str, ToolStartRecord] = attrs.field(factory=dict)
    queued: dict[str, QueueRecord] = attrs.field(factory=dict)
    """By message id: messages that were accepted during a run, but not delivered."""
    last_uuid: str | None = None
    run: RunStartRecord | RunEndRecord | None = None
    """Start or end of the last run, whichever is recorded last."""
    incomplete: bool = False
    """The last response was broken off."""
    beside: Beside = attrs.field(factory=Beside)
    """What works in the background, as far as the model knows."""
    bad_lines: list[BadLine] = attrs.field(factory=list)


def read_records(path: Path, bad_lines: list[BadLine], *, start: int = 0, stop: int | None = None) -> Iterator[Record]:
    """
    The records of a file, one line in memory at a time; what is no record goes to ``bad_lines``.

    Args:
        start: the offset (bytes) of the first line to be read.
        stop: where to end; None is the file's end.

    Raises:
        JournalCorrupt: the file can't be read, or is of a later form than this version knows.
    """
    number, offset = 0, start
    try:
        with path.open("rb") as file:
            file.seek(start)
            for number, line in enumerate(file, 1):
                if stop is not None and offset >= stop:
                    return
                try:
                    records = records_from_line(upgraded(_parse(line))) if not line.isspace() else ()
                except NewerSchema as error:
                    raise JournalCorrupt(str(path), number, str(error)) from error
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
    replayer = Replayer()
    for record in records:
        replayer.take(record)
    return replayer.finish()


@attrs.define(eq=False)
class OpenResponse:
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
    def open_calls(self) -> tuple[ToolUseBlock, ...]:
        return tuple(call for call, result in zip(self.message.tool_uses, self.results, strict=True) if result is None)

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
class Replayer:
    """Takes one record after the other. ``response`` is the one that more may still be said of."""

    out: Replay = attrs.field(factory=Replay)
    messages: list[Message] = attrs.field(factory=list)
    message_of: dict[str, str] = attrs.field(factory=dict)
    """By a line's uuid: the uuid of the message that it became a part of. In order of the lines."""
    response: OpenResponse | None = None
    waiting: list[Message] = attrs.field(factory=list)
    """Messages that were recorded while calls were open; they join after the results."""

    def take(self, record: Record) -> None:
        self.out.last_uuid = record.uuid
        self.message_of[record.uuid] = record.uuid
        match record:
            case UserRecord():
                self.out.queued.pop(record.uuid, None)
                self.out.beside.message(record.message)
                self._add(record.message)
            case QueueRecord():
                self._queue(record)
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
                self._system(record)
            case RunStartRecord() | RunEndRecord():
                self.out.run = record
                # A run's end delivers all that it accepted; what was refused at that very moment may still be here.
                begun = record.run_id if isinstance(record, RunStartRecord) else None
                self.out.queued = {id: each for id, each in self.out.queued.items() if each.run_id == begun}
                self._close()

    def finish(self) -> Replay:
        self._close()
        self.out.messages = tuple(self.messages)
        return self.out

    def _system(self, record: SystemRecord) -> None:
        if record.subtype == REWOUND:
            self._rewind(str(_data(record).get("to", "")))
            return
        if record.subtype == USAGE_TOTALS:
            self.out.usage, self.out.usage_before = {}, _data(record)
            self.out.usage_below = []
            return
        if record.subtype == SUBAGENT_ENDED:
            totals = _data(record).get("totals")
            self.out.usage_below += [totals] if isinstance(totals, dict) else []
            return
        if record.subtype == BOUNDARY:
            self._begin_anew()
        self._add(SystemMessage(uuid=record.uuid, subtype=record.subtype, text=record.text, data=_data(record)))

    def _queue(self, record: QueueRecord) -> None:
        run = self.out.run
        # It may have come before the run's own first record. What comes behind the last one was refused.
        if run is None or isinstance(run, RunStartRecord) == (run.run_id == record.run_id):
            self.out.queued[record.message.uuid] = record

    def _rewind(self, uuid: str) -> None:
        """What came after this message no longer counts; the results of its calls stay with it."""
        self._close()
        place = next((n for n, message in enumerate(self.messages) if message.uuid == uuid), None)
        if place is None:
            return
        following = self.messages[place + 1 : place + 2]
        answered = any(isinstance(message, UserMessage) and message.origin == "tool_results" for message in following)
        del self.messages[place + (2 if answered else 1) :]
        self.out.incomplete = False

    def _begin_anew(self) -> None:
        """What is behind a boundary takes the place of all that came before it."""
        self.response = None
        self.waiting = []
        self.messages = []
        self.message_of = {}
        self.out.started = {}
        self.out.incomplete = False

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
            self.response = response = OpenResponse(message)
            self.out.incomplete = False
        self.message_of[record.uuid] = response.message.uuid
        response.add(record)

    def _response_end(self, record: ResponseEndRecord) -> None:
        if not record.copied:
            self.out.usage[record.message_id] = (record.model, record.usage)
        self.out.incomplete = record.incomplete
        response = self.response
        if response is not None and response.message.message_id == record.message_id and not response.over:
            self.message_of[record.uuid] = response.message.uuid
            response.over = not record.beside_block
            response.message = attrs.evolve(response.message, stop_reason=record.stop_reason, usage=record.usage)

    def _result(self, record: ResultRecord) -> None:
        self.out.started.pop(record.block.tool_use_id, None)
        self.out.beside.result(record)
        if self.response is not None:
            self.message_of[record.uuid] = self.response.message.uuid
            self.response.answer(record)

    def _withdraw(self, record: WithdrawRecord) -> None:
        if self.response is not None and self.response.message.message_id == record.message_id:
            self.response = None
            self.out.incomplete = False
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
