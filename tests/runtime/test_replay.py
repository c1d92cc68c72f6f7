"""From a journal back to the history: the very same that was in memory."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atrio.runtime.actions import Action, Write
from atrio.runtime.decide import decide
from atrio.runtime.errors import JournalCorrupt
from atrio.runtime.history import check
from atrio.runtime.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UserMessage,
)
from atrio.runtime.model import FailureKind, IncompleteBlock, ModelFailure
from atrio.runtime.observations import (
    BlockArrived,
    CallEnded,
    ContextReady,
    InputAccepted,
    Interrupted,
    MessageQueued,
    Observation,
    PartFailed,
    ResponseFailed,
    ResponseFinished,
    ResponseOpened,
    ResponseRestarted,
)
from atrio.runtime.records import (
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
from atrio.runtime.replay import BadLine, replay, replay_file
from atrio.runtime.state import Limits, LoopState, Phase
from atrio.runtime.transcript import LineWriter, records_from_line

NOW = datetime(2026, 3, 4, tzinfo=UTC)
CUT = (IncompleteBlock(index=1, type="tool_use", text='{"a', name="Write", id="t9"),)
FAILURE = ModelFailure(kind=FailureKind.OVERLOADED, message="overloaded", retryable=True, status=529)


def user(uuid: str, text: str = "x") -> UserMessage:
    return UserMessage(uuid=uuid, content=(TextBlock(text),))


def block(uuid: str, content: Any, message_id: str = "m") -> BlockRecord:
    return BlockRecord(uuid=uuid, message_id=message_id, model="claude", block=content)


def call(id: str) -> ToolUseBlock:
    return ToolUseBlock(id, "T", {})


def result(id: str, text: str = "ok", details: Any = None) -> ResultRecord:
    return ResultRecord(uuid=f"r{id}", block=ToolResultBlock(id, text), name="T", details=details)


def end(uuid: str = "e", message_id: str = "m", stop_reason: str = "end_turn") -> ResponseEndRecord:
    usage = Usage(output_tokens=1, reported=True)
    return ResponseEndRecord(uuid=uuid, message_id=message_id, model="claude", stop_reason=stop_reason, usage=usage)


def assistant(uuid: str, *content: Any, message_id: str = "m", **changes: Any) -> AssistantMessage:
    return AssistantMessage(uuid=uuid, message_id=message_id, model="claude", content=content, **changes)


ENDED: dict[str, Any] = {"stop_reason": "end_turn", "usage": Usage(output_tokens=1, reported=True)}

# --- a session's own journal ----------------------------------------------------------------------


def test_a_response_and_its_results_become_two_messages_in_call_order() -> None:
    records = [block("b1", TextBlock("a")), block("b2", call("1")), block("b3", call("2"))]
    got = replay([*records, end(), result("2", details={"n": 2}), result("1")])
    expected = (
        assistant("b1", TextBlock("a"), call("1"), call("2"), **ENDED),
        UserMessage(
            uuid="r1",
            content=(ToolResultBlock("1", "ok"), ToolResultBlock("2", "ok")),
            origin="tool_results",
            details={"2": {"n": 2}},
        ),
    )
    assert expected == got.messages
    assert {"m": ("claude", Usage(output_tokens=1, reported=True))} == got.usage
    assert "r1" == got.last_uuid


def test_a_withdrawn_response_leaves_no_trace() -> None:
    got = replay(
        [UserRecord(message=user("p")), block("b", TextBlock("a")), withdrawn("m"), block("c", TextBlock("b"))]
    )
    assert (user("p"), assistant("c", TextBlock("b"))) == got.messages


def withdrawn(message_id: str) -> WithdrawRecord:
    return WithdrawRecord(uuid="w", message_id=message_id, reason="r")


def test_messages_that_came_while_calls_were_open_follow_the_results() -> None:
    mark = SystemRecord(uuid="s", subtype="informational", text="note", data={"a": 1})
    got = replay([block("b", call("1")), UserRecord(message=user("p")), mark, result("1")])
    expected = ["b", "r1", "p", "s"]
    assert expected == [message.uuid for message in got.messages]
    assert SystemMessage(uuid="s", subtype="informational", text="note", data={"a": 1}) == got.messages[-1]


def test_a_call_without_a_result_is_known_as_started() -> None:
    starts = [ToolStartRecord(uuid=f"s{id}", call_id=id, name="T", idempotent=True) for id in "12"]
    got = replay([block("b", call("1")), block("c", call("2")), starts[0], result("1"), starts[1]])
    assert {"2": starts[1]} == got.started


def test_a_server_that_gives_all_its_messages_one_id_gets_them_back_apart() -> None:
    records: list[Record] = [block("b", TextBlock("a")), end("e1"), block("c", TextBlock("b")), end("e2")]
    assert (assistant("b", TextBlock("a"), **ENDED), assistant("c", TextBlock("b"), **ENDED)) == replay(
        records
    ).messages


def test_calls_of_one_response_with_one_id_are_answered_in_order() -> None:
    got = replay([block("b", call("1")), block("c", call("1")), result("1", "first"), result("1", "second")])
    answers = got.messages[1]
    assert isinstance(answers, UserMessage)
    assert (ToolResultBlock("1", "first"), ToolResultBlock("1", "second")) == answers.content


def test_a_new_run_closes_what_the_last_one_left_open() -> None:
    got = replay(
        [block("b", call("1")), RunStartRecord(uuid="x", run_id="r", model="m"), UserRecord(message=user("p"))]
    )
    assert ["b", "p"] == [message.uuid for message in got.messages]


def test_an_empty_response_of_the_same_id_changes_nothing() -> None:
    records: list[Record] = [block("b", TextBlock("a")), end("e1"), end("e2", stop_reason="refusal")]
    assert (assistant("b", TextBlock("a"), **ENDED),) == replay(records).messages


# --- files ----------------------------------------------------------------------------------------


def lines(*records: Record) -> list[bytes]:
    writer = LineWriter(session_id="s", cwd="/", version="1")
    return [writer.line(record, NOW) for record in records]


@pytest.mark.parametrize(
    "bad",
    [b"garbage\n", b'{"type":"user","uuid":"u"}\n', b"[1]\n", b"\xff\xfe\n", b"\0" * 30 + b"\n", b"[" * 5000 + b"\n"],
)
def test_a_bad_line_is_reported_and_hides_nothing(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "s.jsonl"
    first, second = lines(UserRecord(message=user("a")), UserRecord(message=user("b")))
    path.write_bytes(first + bad + second)
    got = replay_file(path)
    assert (user("a"), user("b")) == got.messages
    (line,) = got.bad_lines
    assert BadLine(number=2, offset_bytes=len(first), reason=line.reason) == line
    assert line.reason


def test_blank_lines_are_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\n \r\n" + lines(UserRecord(message=user("a")))[0])
    got = replay_file(path)
    assert (user("a"),) == got.messages
    assert [] == got.bad_lines


@pytest.mark.slow
def test_a_file_cut_at_any_byte_of_its_last_line_gives_all_before_it(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    first, last = lines(UserRecord(message=user("a")), UserRecord(message=user("b")))
    for kept in range(len(last) - 1):
        path.write_bytes(first + last[:kept])
        got = replay_file(path)
        assert (user("a"),) == got.messages
        assert (kept > 0) == bool(got.bad_lines)


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_a_journal_that_cannot_be_read_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s.jsonl"
    if kind == "folder":
        path.mkdir()
    with pytest.raises(JournalCorrupt, match=r"s\.jsonl"):
        replay_file(path)


def test_half_surrogates_and_odd_bytes_of_another_program_are_read(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"type":"user","uuid":"a","message":{"content":"x\\ud83d"}}\n')
    assert (user("a", "x\ufffd"),) == replay_file(path).messages


def test_another_programs_transcript_is_read(tmp_path: Path) -> None:
    def said(uuid: str, *content: Any, id: str = "m", **message: Any) -> dict[str, Any]:
        return {"type": "assistant", "uuid": uuid, "message": {"id": id, "model": "c", "content": content, **message}}

    def answered(uuid: str, id: str) -> dict[str, Any]:
        content = [{"type": "tool_result", "tool_use_id": id, "content": f"of {id}"}]
        return {"type": "user", "uuid": uuid, "message": {"content": content}, "toolUseResult": {"stdout": id}}

    usage = {"input_tokens": 3, "output_tokens": 5}
    use = {"type": "tool_use", "name": "T", "input": {}}
    values: list[dict[str, Any]] = [
        {"type": "summary", "summary": "s", "leafUuid": "x"},
        {"type": "user", "uuid": "p", "message": {"role": "user", "content": "go"}, "isMeta": True},
        said("b1", {"type": "text", "text": "a"}, usage=usage, stop_reason=None),
        said("b2", {**use, "id": "1"}, usage=usage, stop_reason=None),
        answered("r1", "1"),
        said("b3", {**use, "id": "2"}, usage=usage, stop_reason="tool_use"),
        answered("r2", "2"),
        said("c", {"type": "text", "text": "x"}, {"type": "text", "text": "y"}, id="n", stop_reason="end_turn"),
        {"type": "queue-operation", "operation": "enqueue", "uuid": "q"},
    ]
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(orjson.dumps(value) + b"\n" for value in values))
    got = replay_file(path)
    assert [] == got.bad_lines
    assert [] == check(got.messages)
    prompt, first, results, last = got.messages
    assert UserMessage(uuid="p", content=(TextBlock("go"),), hidden=True) == prompt
    assert isinstance(first, AssistantMessage)
    assert (TextBlock("a"), call("1"), call("2")) == first.content
    assert Usage(input_tokens=3, output_tokens=5, reported=True) == first.usage
    assert isinstance(results, UserMessage)
    assert (ToolResultBlock("1", "of 1"), ToolResultBlock("2", "of 2")) == results.content
    assert isinstance(last, AssistantMessage)
    assert (TextBlock("x"), TextBlock("y")) == last.content


# --- whatever a run does --------------------------------------------------------------------------


class Recorded:
    """A run that collects what it writes, each record through its line."""

    def __init__(self, *, one_id: bool, history: tuple[Message, ...] = (), number: int = 0, **limits: Any) -> None:
        run_id = f"11111111-1111-4111-8111-{number:012}"
        self.state = LoopState(run_id=run_id, model="m", limits=Limits(**limits), messages=history)
        self.one_id = one_id
        self.records: list[Record] = []
        self.writer = LineWriter(session_id="s", cwd="/", version="1")

    def feed(self, observation: Observation) -> None:
        transition = decide(self.state, observation)
        self.state = transition.state
        for action in transition.actions:
            self._take(action)

    def _take(self, action: Action) -> None:
        if isinstance(action, Write):
            for record in action.records:
                read = records_from_line(orjson.loads(self.writer.line(record, NOW)))
                assert (record,) == read
                self.records += read

    def opened(self) -> None:
        number = self.state.turn.request
        usage = Usage(input_tokens=number, reported=True)
        id = "msg" if self.one_id else f"msg_{number}"
        self.feed(ResponseOpened(request=number, message_id=id, model="dated-m", usage=usage))

    def arrived(self, content: Any) -> None:
        self.feed(BlockArrived(request=self.state.turn.request, index=len(self.state.turn.blocks), block=content))

    def finished(self, reason: str, incomplete: tuple[IncompleteBlock, ...] = ()) -> None:
        usage = Usage(input_tokens=1, output_tokens=2, reported=True, extra={"service_tier": "standard"})
        request = self.state.turn.request
        self.feed(ResponseFinished(request=request, stop_reason=reason, usage=usage, incomplete=incomplete))


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["text", "text", "think", "call", "call", "answer", "answer", "end", "end", "pause", "cut"]),
        st.sampled_from(["steer", "steer_now", "steer_later", "fail", "crash", "restart", "interrupt", "down"]),
    ),
    max_size=40,
)


def act(run: Recorded, step: str, numbers: itertools.count[int]) -> None:
    state = run.state
    streaming = state.phase is Phase.STREAM
    open_calls = state.turn.open_calls
    match step:
        case "text" if streaming:
            run.arrived(TextBlock("x", extra={"citations": [1]}))
        case "think" if streaming:
            run.arrived(ThinkingBlock("x", "s"))
        case "call" if streaming:
            run.arrived(call(f"t{next(numbers)}"))
        case "answer" if open_calls:
            id = open_calls[-1].block.id
            run.feed(CallEnded(call_id=id, result=ToolResultBlock(id, "ok"), details={"n": id} if id > "t2" else None))
        case "end" if streaming:
            run.finished("tool_use" if state.turn.calls else "end_turn")
        case "pause" if streaming:
            run.finished("pause_turn")
        case "cut" if streaming:
            run.finished("max_tokens", CUT)
        case "fail" | "crash" if streaming:
            run.feed(ResponseFailed(request=state.turn.request, failure=FAILURE, crashed=step == "crash"))
            if run.state.phase is Phase.STREAM:
                run.opened()
        case "restart" if streaming and not state.turn.calls:
            run.feed(ResponseRestarted(request=state.turn.request, reason="r"))
            run.opened()
        case "steer" | "steer_now" | "steer_later":
            message = UserMessage(uuid=f"s{next(numbers)}", content=(TextBlock("and"),), origin="steer")
            priorities: dict[str, Priority] = {"steer_now": "now", "steer_later": "later"}
            run.feed(MessageQueued(message=message, priority=priorities.get(step, "next")))
        case "interrupt":
            run.feed(Interrupted(reason="i", during=state.phase))
        case "down":
            run.feed(PartFailed(name="executor", error="e"))


def drive(run: Recorded, steps: list[str], numbers: itertools.count[int], before: list[Record]) -> None:
    run.feed(InputAccepted(message=user(f"p{next(numbers)}")))
    for step in steps:
        if run.state.phase is Phase.PREPARE:
            run.feed(ContextReady(messages=run.state.messages))
            run.opened()
        act(run, step, numbers)
        if run.state.phase in (Phase.PREPARE, Phase.TERMINAL):
            assert run.state.messages == replay([*before, *run.records]).messages
        if run.state.phase is Phase.TERMINAL:
            return


@pytest.mark.slow
@settings(max_examples=300)
@given(STEPS, STEPS, st.integers(1, 5), st.booleans())
def test_a_replayed_journal_is_the_history_in_memory(
    steps: list[str], more: list[str], max_turns: int, one_id: bool
) -> None:
    numbers = itertools.count()
    run = Recorded(one_id=one_id, max_turns=max_turns)
    drive(run, [*steps, "interrupt"], numbers, [])
    again = Recorded(one_id=one_id, history=run.state.messages, number=1, max_turns=max_turns)
    drive(again, [*more, "interrupt"], numbers, run.records)


# --- messages that wait ----------------------------------------------------------------------------


def queued(name: str, run_id: str) -> QueueRecord:
    return QueueRecord(uuid=f"q{name}", message=user(name), run_id=run_id)


def test_a_message_waits_until_it_is_delivered_or_its_run_ends() -> None:
    start = RunStartRecord(uuid="a", run_id="r", model="m")
    end = RunEndRecord(uuid="z", run_id="r", terminal_reason="completed")
    assert ["m"] == list(replay([start, queued("m", "r")]).queued)
    assert ["m"] == list(replay([queued("m", "r"), start]).queued)
    assert [] == list(replay([start, queued("m", "r"), UserRecord(message=user("m"))]).queued)
    assert [] == list(replay([start, queued("m", "r"), end]).queued)
    assert [] == list(replay([start, end, queued("m", "r")]).queued)
    assert ["n"] == list(replay([start, end, queued("n", "s")]).queued)
