"""
From what a session's journal holds to a session that goes on. No Trio; `resume_records` is pure.

A process may die at any instant. What it left open is settled as an abort would have settled it: what was whole is
kept, each open call gets a result. A call that had started is never run again unknowingly: its result says that the
outcome is unknown (calls of idempotent tools are listed, so that they can be run again in place of that).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from . import notes
from .border import call_ids
from .errors import ConfigError
from .history import repair_pairs
from .journal_search import Span, find_span, line_of
from .messages import (
    AssistantMessage,
    JsonObject,
    Message,
    RedactedThinkingBlock,
    SystemMessage,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UserMessage,
)
from .records import (
    MAIN_SCOPE,
    Record,
    ResponseEndRecord,
    ResultRecord,
    RunEndRecord,
    SystemRecord,
    UserRecord,
    WithdrawRecord,
)
from .replay import BadLine, OpenResponse, Replay, Replayer, read_records
from .rerecord import BOUNDARY, REWOUND, USAGE_TOTALS, records_of
from .result import TerminalReason
from .state import derive_id

__all__ = ["Resumed", "forked", "resume_file", "resume_records"]

DONE = frozenset(
    (
        TerminalReason.COMPLETED,
        TerminalReason.HOOK_STOPPED,
        TerminalReason.STOP_HOOK_PREVENTED,
        TerminalReason.TOOL_DEFERRED,
        TerminalReason.STRUCTURED_OUTPUT_RETRY_EXHAUSTED,
    )
)
"""Runs that came to an end of their own. Any other can be gone on with."""

_CUT_SHORT = ("max_tokens", "pause_turn", "model_context_window_exceeded")


@attrs.frozen(kw_only=True)
class Resumed:
    """
    A session as it goes on.

    Args:
        messages: the history, valid. A replay of the journal with ``settle_records`` at its end gives the same.
        usage: by message id, model and usage of the responses since the last boundary.
        usage_before: what had been used until there, if it is recorded; see `Ledger.totals`.
        usage_below: the same of each subagent that has ended since then.
        settle_records: to be written before anything else.
        rerun: calls of idempotent tools whose outcome is unknown; see `answered`.
        interrupted_prompt: what the user last asked for, if that is not done.
        continuation: what to tell the model so that it goes on with that; None: there is nothing to go on with.
        notices: what was found to be wrong, for people.
        last_uuid: of the last line, ``settle_records`` apart.
    """

    messages: tuple[Message, ...]
    usage: Mapping[str, tuple[str, Usage]]
    usage_before: JsonObject | None
    usage_below: tuple[JsonObject, ...]
    call_ids: frozenset[str]
    settle_records: tuple[Record, ...] = ()
    rerun: tuple[ToolUseBlock, ...] = ()
    interrupted_prompt: UserMessage | None = None
    continuation: str | None = None
    notices: tuple[str, ...] = ()
    last_uuid: str | None = None

    def answered(self, answers: Mapping[str, ResultRecord]) -> Resumed:
        """The same with these results, by call id, in place of "outcome unknown". Their uuids are not used."""
        records: list[Record] = []
        for record in self.settle_records:
            answer = answers.get(record.block.tool_use_id) if isinstance(record, ResultRecord) else None
            records.append(record if answer is None else attrs.evolve(answer, uuid=record.uuid))
        messages = [_with_answers(message, answers) for message in self.messages]
        rerun = tuple(call for call in self.rerun if call.id not in answers)
        return attrs.evolve(self, messages=tuple(messages), settle_records=tuple(records), rerun=rerun)


def forked(resumed: Resumed, *, origin: str, new_id: str) -> Resumed:
    """
    The same history as the beginning of another session, whose journal is begun with ``settle_records``. What was
    used so far is the other session's and doesn't count again.

    Args:
        origin: the journal that it comes from, for the mark in the history.
        new_id: the new session's id.
    """
    messages = resumed.messages
    data = {"from": origin, "at": messages[-1].uuid if messages else None}
    mark = SystemMessage(uuid=derive_id(new_id, "forked"), subtype="forked", text=f"Forked from {origin}.", data=data)
    totals = SystemRecord(uuid=derive_id(new_id, "totals"), subtype=USAGE_TOTALS, data={})
    return attrs.evolve(
        resumed,
        messages=(*messages, mark),
        usage={},
        usage_before=None,
        usage_below=(),
        settle_records=(*records_of((*messages, mark)), totals),
        last_uuid=None,
    )


def _with_answers(message: Message, answers: Mapping[str, ResultRecord]) -> Message:
    if not isinstance(message, UserMessage) or message.origin != "tool_results":
        return message
    here = [block.tool_use_id for block in message.content if isinstance(block, ToolResultBlock)]
    new = {id: answers[id] for id in here if id in answers}
    if not new:
        return message
    content = tuple(
        new[block.tool_use_id].block if isinstance(block, ToolResultBlock) and block.tool_use_id in new else block
        for block in message.content
    )
    details = {id: record.details for id, record in new.items() if record.details is not None}
    return attrs.evolve(message, content=content, details={**message.details, **details})


def resume_file(
    path: Path, *, at: str | None = None, behind_boundaries: bool = False, marks: Sequence[Record] = ()
) -> tuple[Resumed, Span]:
    """
    The session in a journal, and which part of that counts. Memory doesn't grow with what lies before it.

    Args:
        at: the uuid of a line; the history ends with the message that it belongs to, and the results of its calls.
        behind_boundaries: that line may lie before the last boundary.
        marks: more to be recorded, behind what settles the rest.

    Raises:
        JournalCorrupt: the file can't be read.
        ConfigError: there is no such line, or not where it may be.
    """
    span = find_span(path)
    if at is not None:
        place = line_of(path, at)
        if place is None or place >= span.stop:
            raise _no_such_message(at)
        if place < span.start:
            if not behind_boundaries:
                raise ConfigError(
                    "the message to resume at",
                    f"{at} lies before the session's last compaction",
                    "fork the session there (--fork-session), or name a later one",
                )
            span = attrs.evolve(find_span(path, before=place), stop=_end_of_stretch(path, place, span))
    bad_lines: list[BadLine] = []
    resumed = resume_records(read_records(path, bad_lines, start=span.start, stop=span.stop), at=at, marks=marks)
    return attrs.evolve(resumed, notices=(*resumed.notices, *_notices(span, bad_lines))), span


def _end_of_stretch(path: Path, place: int, last: Span) -> int:
    """Where the first boundary behind ``place`` begins."""
    end = last.start
    while (earlier := find_span(path, before=end).start) > place:
        end = earlier
    return end


def _notices(span: Span, bad_lines: list[BadLine]) -> list[str]:
    found: list[str] = []
    if span.torn and span.start < span.stop:
        found.append("the last compaction had not been recorded to its end and was dropped")
    if bad_lines:
        first = bad_lines[0]
        found.append(
            f"{len(bad_lines)} lines of the journal can't be read and were skipped, the first at byte "
            f"{first.offset_bytes:,}: {first.reason}"
        )
    return found


def _no_such_message(uuid: str) -> ConfigError:
    return ConfigError("the message to resume at", f"the session has no message {uuid}", "take a uuid of its lines")


def resume_records(records: Iterable[Record], *, at: str | None = None, marks: Sequence[Record] = ()) -> Resumed:
    """
    What these records come to, with all that is open settled. Pure. For the arguments see `resume_file`.

    Raises:
        ConfigError: no record that counts has the uuid ``at``.
    """
    replayer = Replayer()
    for record in records:
        replayer.take(record)
    last_uuid = replayer.out.last_uuid
    settling, rerun = _settling(replayer)
    # Accepted, but not yet given to the model: now they are, once.
    waiting = [UserRecord(message=each.message) for each in replayer.out.queued.values() if each.scope == MAIN_SCOPE]
    settling = (*settling, *waiting, *marks)
    for record in settling:
        replayer.take(record)
    if at is None and (lost := replayer.out.beside.lost(derive_id("lost", last_uuid or ""))) is not None:
        told = UserRecord(message=lost)
        replayer.take(told)
        settling = (*settling, told)
    if at is not None:
        rewound = _rewound(replayer, at)
        replayer.take(rewound)
        settling = (*settling, rewound)
    replay = replayer.finish()
    messages = repair_pairs(replay.messages)
    continuation = _continuation(replay, messages, rewound=at is not None)
    return Resumed(
        messages=messages,
        usage=replay.usage,
        usage_before=replay.usage_before,
        usage_below=tuple(replay.usage_below),
        call_ids=frozenset(call_ids(messages)),
        settle_records=settling,
        rerun=rerun if at is None else (),
        interrupted_prompt=_last_prompt(messages) if continuation is not None else None,
        continuation=continuation,
        notices=_unknown_usage(replay, messages),
        last_uuid=last_uuid,
    )


def _settling(replayer: Replayer) -> tuple[tuple[Record, ...], tuple[ToolUseBlock, ...]]:
    """What ends the response that was in progress, by the rules of `steps.settle`; calls that may be run again."""
    response = replayer.response
    if response is None:
        return (), ()
    message = response.message
    records: list[Record] = []
    if not _has_end(response):
        if all(isinstance(block, ThinkingBlock | RedactedThinkingBlock) for block in message.content):
            reason = "the response was broken off"
            uuid = derive_id(message.uuid, "withdrawn")
            return (WithdrawRecord(uuid=uuid, message_id=message.message_id, reason=reason),), ()
        records.append(
            ResponseEndRecord(
                uuid=derive_id(message.uuid, "settled", "end"),
                message_id=message.message_id,
                model=message.model,
                stop_reason=None,
                usage=Usage(),
                incomplete=True,
            )
        )
    rerun: list[ToolUseBlock] = []
    for call in response.open_calls:
        started = replayer.out.started.get(call.id)
        if started is not None and started.idempotent:
            rerun.append(call)
        text = notes.NOT_RUN if started is None else notes.outcome_unknown(call.name)
        records.append(
            ResultRecord(
                uuid=derive_id(message.uuid, "settled", call.id),
                block=ToolResultBlock(call.id, text, is_error=True),
                name=call.name,
            )
        )
    return tuple(records), tuple(rerun)


def _has_end(response: OpenResponse) -> bool:
    message = response.message
    return response.over or message.stop_reason is not None or message.usage.reported


def _rewound(replayer: Replayer, at: str) -> SystemRecord:
    target = replayer.message_of.get(at)
    known = {message.uuid for message in replayer.messages}
    if replayer.response is not None:
        known.add(replayer.response.message.uuid)
    if target not in known:
        raise _no_such_message(at)
    line = [line for line, message in replayer.message_of.items() if message == target][-1]
    return SystemRecord(
        uuid=derive_id(at, "rewound", replayer.out.last_uuid),
        subtype=REWOUND,
        text="The conversation goes on from an earlier message.",
        data={"to": target, "line": line},
    )


def _continuation(replay: Replay, messages: tuple[Message, ...], *, rewound: bool) -> str | None:
    last = next((message for message in reversed(messages) if not isinstance(message, SystemMessage)), None)
    if last is None:
        return None
    if isinstance(last, AssistantMessage) and replay.incomplete:
        return notes.RESUME_CUT
    if isinstance(replay.run, RunEndRecord) and not rewound:
        return None if replay.run.terminal_reason in DONE else notes.RESUMED
    if isinstance(last, UserMessage) or last.api_error or last.stop_reason in _CUT_SHORT:
        return notes.RESUMED
    return None


def _last_prompt(messages: tuple[Message, ...]) -> UserMessage | None:
    prompts = (m for m in reversed(messages) if isinstance(m, UserMessage) and m.origin == "prompt" and not m.hidden)
    return next(prompts, None)


def _unknown_usage(replay: Replay, messages: tuple[Message, ...]) -> tuple[str, ...]:
    first = messages[0] if messages else None
    if isinstance(first, SystemMessage) and first.subtype == BOUNDARY and replay.usage_before is None:
        return ("what the session had used before its last compaction is not recorded, so its totals begin there",)
    return ()
