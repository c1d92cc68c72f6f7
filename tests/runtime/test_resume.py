"""What a crash left in a journal, and the session that goes on from it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atrio.runtime import notes
from atrio.runtime.errors import ConfigError
from atrio.runtime.history import check
from atrio.runtime.journal_search import BLOCK_BYTES, find_span, line_of
from atrio.runtime.messages import (
    AssistantMessage,
    Block,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UserMessage,
    text_of,
)
from atrio.runtime.records import (
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
from atrio.runtime.replay import replay
from atrio.runtime.rerecord import USAGE_TOTALS, rerecord
from atrio.runtime.resume import forked, resume_file, resume_records
from atrio.runtime.transcript import LineWriter

NOW = datetime(2026, 3, 4, tzinfo=UTC)
USED = Usage().updated({"input_tokens": 10, "output_tokens": 5})


def prompt(uuid: str = "u1", text: str = "do it") -> UserRecord:
    return UserRecord(message=UserMessage(uuid=uuid, content=(TextBlock(text),)))


def block(uuid: str, content: Block, message_id: str = "m1") -> BlockRecord:
    return BlockRecord(uuid=uuid, message_id=message_id, model="claude", block=content)


def end(message_id: str = "m1", reason: str = "tool_use") -> ResponseEndRecord:
    return ResponseEndRecord(
        uuid=f"end-{message_id}", message_id=message_id, model="claude", stop_reason=reason, usage=USED
    )


def call(id: str) -> ToolUseBlock:
    return ToolUseBlock(id, "Bash", {"command": id})


def started(id: str, *, idempotent: bool = False) -> ToolStartRecord:
    return ToolStartRecord(uuid=f"s-{id}", call_id=id, name="Bash", idempotent=idempotent)


def result(id: str) -> ResultRecord:
    return ResultRecord(uuid=f"r-{id}", block=ToolResultBlock(id, "ok"), name="Bash")


RUN = RunStartRecord(uuid="run", run_id="run-1", model="claude")
CALLS: tuple[Record, ...] = (
    RUN,
    prompt(),
    block("b0", TextBlock("I look.")),
    block("b1", call("c1")),
    block("b2", call("c2")),
    block("b3", call("c3")),
    end(),
    started("c1"),
    result("c1"),
    started("c2"),
)
"""Killed when of three calls the first had ended and the second was running."""


def write(path: Path, records: Sequence[Record], *, parent: str | None = None) -> None:
    writer = LineWriter(session_id=path.stem, cwd="/w", version="1", parent=parent)
    with path.open("ab") as file:
        file.writelines(writer.line(record, NOW) for record in records)


def answers(messages: Sequence[Any]) -> list[tuple[str, str, bool]]:
    return [
        (part.tool_use_id, str(part.content), part.is_error)
        for message in messages
        if isinstance(message, UserMessage)
        for part in message.content
        if isinstance(part, ToolResultBlock)
    ]


# --- settling -------------------------------------------------------------------------------------


def test_each_open_call_is_answered_by_what_is_known_of_it() -> None:
    resumed = resume_records(CALLS)

    assert [
        ("c1", "ok", False),
        ("c2", notes.outcome_unknown("Bash"), True),
        ("c3", notes.NOT_RUN, True),
    ] == answers(resumed.messages)
    assert [] == check(resumed.messages)
    assert {"c1", "c2", "c3"} == resumed.call_ids


def test_what_settles_is_recorded_so_that_a_replay_gives_the_same() -> None:
    resumed = resume_records(CALLS)
    again = resume_records((*CALLS, *resumed.settle_records))

    assert resumed.messages == replay((*CALLS, *resumed.settle_records)).messages
    assert (resumed.messages, ()) == (again.messages, again.settle_records)


@pytest.mark.parametrize("cut", range(1, len(CALLS) + 1))
def test_killed_after_any_record_the_history_is_valid_and_settled_once(cut: int) -> None:
    resumed = resume_records(CALLS[:cut])

    assert [] == check(resumed.messages)
    assert resumed.messages == replay((*CALLS[:cut], *resumed.settle_records)).messages
    assert () == resume_records((*CALLS[:cut], *resumed.settle_records)).settle_records


def test_a_response_that_was_broken_off_is_kept_as_far_as_it_came() -> None:
    resumed = resume_records((RUN, prompt(), block("b0", ThinkingBlock("hm", "sig")), block("b1", TextBlock("So"))))

    assert isinstance(resumed.messages[-1], AssistantMessage)
    assert (ThinkingBlock("hm", "sig"), TextBlock("So")) == resumed.messages[-1].content
    assert [True] == [r.incomplete for r in resumed.settle_records if isinstance(r, ResponseEndRecord)]
    assert notes.RESUME_CUT == resumed.continuation


def test_mere_thinking_is_withdrawn() -> None:
    resumed = resume_records((RUN, prompt(), block("b0", ThinkingBlock("hm", "sig"))))

    assert [prompt().message] == list(resumed.messages)
    assert [WithdrawRecord] == [type(record) for record in resumed.settle_records]
    assert prompt().message == resumed.interrupted_prompt


def test_calls_of_idempotent_tools_may_be_made_again() -> None:
    records = (*CALLS[:-1], started("c2", idempotent=True))
    resumed = resume_records(records)
    answer = ResultRecord(uuid="x", block=ToolResultBlock("c2", "found"), name="Bash", details={"n": 1})
    answered = resumed.answered({"c2": answer})

    assert [call("c2")] == list(resumed.rerun)
    assert ("c2", "found", False) in answers(answered.messages)
    assert () == answered.rerun
    assert answered.messages == replay((*records, *answered.settle_records)).messages


def test_messages_that_came_while_calls_ran_stay_behind_the_results() -> None:
    resumed = resume_records((*CALLS, prompt("u2", "and that")))

    assert "u2" == resumed.messages[-1].uuid
    assert [] == check(resumed.messages)


def test_an_older_hole_is_repaired_too() -> None:
    # A process that knew nothing of resuming went on behind the crash.
    again = RunStartRecord(uuid="run2", run_id="run-2", model="claude")
    resumed = resume_records((*CALLS, again, prompt("u2"), block("b9", TextBlock("ok"), "m2"), end("m2", "end_turn")))

    assert [] == check(resumed.messages)
    assert ["c1", "c2", "c3"] == [id for id, _, _ in answers(resumed.messages)]


# --- going on -------------------------------------------------------------------------------------


def run_end(reason: str) -> RunEndRecord:
    return RunEndRecord(uuid="run-end", run_id="run-1", terminal_reason=reason)


ANSWER: tuple[Record, ...] = (RUN, prompt(), block("b0", TextBlock("Done.")), end(reason="end_turn"))


@pytest.mark.parametrize(
    ("records", "continuation"),
    [
        pytest.param((), None, id="nothing was said"),
        pytest.param((RUN,), None, id="a run without its prompt"),
        pytest.param((RUN, prompt()), notes.RESUMED, id="an unanswered prompt"),
        pytest.param(CALLS, notes.RESUMED, id="open calls"),
        pytest.param(ANSWER, None, id="an answer whose run has no end"),
        pytest.param((*ANSWER, run_end("completed")), None, id="an answer"),
        pytest.param((*ANSWER, run_end("max_turns")), notes.RESUMED, id="a limit"),
        pytest.param((RUN, prompt(), run_end("aborted_streaming")), notes.RESUMED, id="an abort"),
    ],
)
def test_whether_there_is_something_to_go_on_with(records: Sequence[Record], continuation: str | None) -> None:
    resumed = resume_records(records)

    assert continuation == resumed.continuation
    assert (resumed.interrupted_prompt is not None) is (continuation is not None)


def test_a_history_can_end_with_an_earlier_message_and_the_results_of_its_calls() -> None:
    records = (
        *CALLS,
        result("c2"),
        result("c3"),
        prompt("u2"),
        block("b9", TextBlock("no"), "m2"),
        end("m2", "end_turn"),
    )
    resumed = resume_records(records, at="b1")

    assert ["u1", "b0", "r-c1"] == [message.uuid for message in resumed.messages]
    assert resumed.messages == replay((*records, *resumed.settle_records)).messages
    with pytest.raises(ConfigError, match="no message nothing"):
        resume_records(records, at="nothing")


def test_a_message_that_was_withdrawn_is_no_place_to_go_back_to() -> None:
    void = WithdrawRecord(uuid="w", message_id="m1", reason="again")
    with pytest.raises(ConfigError):
        resume_records((RUN, prompt(), block("b0", TextBlock("x")), void), at="b0")


# --- forks ----------------------------------------------------------------------------------------


def test_a_fork_replays_to_the_same_history_and_counts_nothing_twice() -> None:
    resumed = resume_records(CALLS)
    fork = forked(resumed, origin="s1", new_id="s2")
    again = replay(fork.settle_records)

    assert fork.messages == again.messages
    assert resumed.messages == fork.messages[:-1]
    assert ({"m1": ("claude", USED)}, {}) == (dict(resumed.usage), again.usage)


# --- boundaries -----------------------------------------------------------------------------------


def compaction(number: int, *texts: str) -> tuple[Record, ...]:
    kept = [UserMessage(uuid=f"k{number}-{n}", content=(TextBlock(text),)) for n, text in enumerate(texts)]
    _, records = rerecord(kept, run_id="run-1", number=number, data={"trigger": "auto"}, used=())
    totals = {"claude": {"usage": USED.to_wire(), "costUSD": 0.5, "requests": 1}}
    return (*records, SystemRecord(uuid=f"t{number}", subtype=USAGE_TOTALS, data=totals))


def test_nothing_before_the_last_boundary_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"not JSON at all\n" * 1000)
    write(path, (*compaction(1, "old"), *compaction(2, "summary", "tail"), prompt("u9")))
    resumed, _span = resume_file(path)

    assert ["summary", "tail", "do it"] == [
        part.text
        for message in resumed.messages
        if isinstance(message, UserMessage)
        for part in message.content
        if isinstance(part, TextBlock)
    ]
    assert ((), 0.5) == (resumed.notices, (resumed.usage_before or {})["claude"]["costUSD"])


def test_a_compaction_that_was_not_written_to_its_end_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, CALLS)
    size = path.stat().st_size
    write(path, compaction(1, "summary", "tail")[:2])
    resumed, span = resume_file(path)

    assert (0, size, True) == (span.start, span.stop, span.torn)
    assert resume_records(CALLS).messages == resumed.messages
    assert ["the last compaction had not been recorded to its end and was dropped"] == list(resumed.notices)


def test_a_text_about_boundaries_is_none(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, (prompt("u1", '{"type":"system","subtype":"compact_boundary"}'),))

    assert 0 == find_span(path).start


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(before=st.integers(0, 3), size=st.integers(1, 60), shift=st.integers(-40, 40))
def test_a_boundary_is_found_wherever_the_blocks_of_the_search_end(
    tmp_path_factory: pytest.TempPathFactory, before: int, size: int, shift: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "s.jsonl"
    write(path, [prompt(f"u{n}") for n in range(before)])
    start = path.stat().st_size
    write(path, compaction(1, "kept"))
    line = b'{"type":"x","text":"' + b"x" * max(0, BLOCK_BYTES + shift - size) + b'"}\n'
    path.write_bytes(path.read_bytes() + line)

    assert start == find_span(path).start


def test_a_message_before_the_boundary_can_be_forked_at_only(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, (*CALLS, result("c2"), result("c3"), *compaction(1, "first"), prompt("u2"), *compaction(2, "second")))

    with pytest.raises(ConfigError, match="last compaction"):
        resume_file(path, at="u1")
    early, _ = resume_file(path, at="u1", behind_boundaries=True)
    later, _ = resume_file(path, at="u2", behind_boundaries=True)
    assert ["u1"] == [message.uuid for message in early.messages]
    assert isinstance(later.messages[0], SystemMessage)
    assert "u2" == later.messages[-1].uuid
    assert line_of(path, "no such line") is None


def test_bad_lines_are_skipped_and_told(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    write(path, CALLS[:2])
    path.write_bytes(path.read_bytes() + b'{"type":"user","uuid":"x"}\n')
    write(path, CALLS[2:])
    resumed, _span = resume_file(path)

    assert resume_records(CALLS).messages == resumed.messages
    assert 1 == len(resumed.notices)
    assert "1 lines of the journal" in resumed.notices[0]


def test_a_journal_of_another_program_is_not_given_a_second_end() -> None:
    foreign = attrs.evolve(end(), beside_block=True)
    resumed = resume_records((prompt(), block("b1", call("c1")), foreign))

    assert [ResultRecord] == [type(record) for record in resumed.settle_records]
    assert ("claude", USED) == resumed.usage["m1"]


def begun(id: str, **details: object) -> tuple[Record, ...]:
    """A call whose result says how something in the background stands."""
    answer = ResultRecord(uuid=f"r-{id}", block=ToolResultBlock(id, "ok"), name="Agent", details=details)
    return (block(f"b-{id}", call(id), f"m-{id}"), end(f"m-{id}"), started(id), answer)


AGENT: dict[str, object] = {"agentId": "a1", "description": "looks", "isAsync": True, "transcriptPath": "/x.jsonl"}
SHELL: dict[str, object] = {"outputFile": "/out"}


def hidden(uuid: str, text: str) -> UserRecord:
    return UserRecord(message=UserMessage(uuid=uuid, content=(TextBlock(text),), origin="hook", hidden=True))


@pytest.mark.parametrize(
    ("records", "named"),
    [
        (begun("t1", **AGENT, status="running"), ["a1 (looks)", "/x.jsonl"]),
        (begun("t1", backgroundTaskId="bash_1", status="running", **SHELL), ["bash_1", "may still run", "/out"]),
        (begun("t1", **{**AGENT, "isAsync": False}, status="completed"), []),
        ((*begun("t1", **AGENT, status="running"), *begun("t2", **AGENT, status="stopped")), []),
        ((*begun("t1", **AGENT, status="running"), hidden("n", "<task-notification> a1 completed")), []),
        ((*begun("t1", **AGENT, status="running"), hidden("n", "<task-notification> a2 completed")), ["a1 (looks)"]),
        ((*begun("t1", **AGENT, status="running"), prompt("u2", "<task-notification> a1")), ["a1 (looks)"]),
        (
            (
                *begun("t1", backgroundTaskId="bash_1", status="running", **SHELL),
                *begun("t2", shellId="bash_1", status="completed"),
            ),
            [],
        ),
    ],
)
def test_what_was_lost_with_the_process_is_told_once(records: Sequence[Record], named: Sequence[str]) -> None:
    before = (RUN, prompt(), *records, block("b9", TextBlock("I wait."), "m9"), end("m9", "end_turn"))
    resumed = resume_records(before)

    told = [text for message in resumed.messages for text in [said(message)] if text.startswith("<background-lost>")]
    assert bool(named) == bool(told)
    assert all(name in told[0] for name in named)
    # There is something to go on with: otherwise the run would seem to be done.
    assert (notes.RESUMED if named else None) == resumed.continuation
    again = resume_records((*before, *resumed.settle_records))
    assert resumed.messages == again.messages
    assert () == again.settle_records


def said(message: object) -> str:
    return text_of(message.content) if isinstance(message, UserMessage) else ""
