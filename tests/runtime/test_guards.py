"""
The machine's guards, one by one: what happens where a condition doesn't hold.

Each test fails when the one condition that it is about is taken out of `decide` and what belongs to it.
"""

from __future__ import annotations

from typing import Any, Self

import pytest
from tests.support.machine import PROMPT, Machine

from atrio.runtime import notes
from atrio.runtime.actions import CallModel, Compact, Finish, Publish, RunStopHooks, StopModel, Write
from atrio.runtime.errors import InvariantError
from atrio.runtime.events import ContextCompacted, MessageWithdrawn, Notice, TurnEnded
from atrio.runtime.history import check
from atrio.runtime.messages import Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, Usage, UserMessage
from atrio.runtime.model import FailureKind, IncompleteBlock, ModelFailure
from atrio.runtime.observations import (
    CallEnded,
    Compacted,
    CompactFailed,
    InputAccepted,
    Interrupted,
    MessageQueued,
    SetupFailed,
    StopHooksEnded,
)
from atrio.runtime.progress import fingerprint
from atrio.runtime.records import ResponseEndRecord, WithdrawRecord
from atrio.runtime.result import TerminalReason
from atrio.runtime.state import STRUCTURED_OUTPUT, ContinueReason, Phase

MORE = UserMessage(uuid="q", content=(TextBlock("and this"),))
READ = ToolUseBlock("t1", "Read", {"file_path": "a"})


def failure(kind: FailureKind, **more: Any) -> ModelFailure:
    return ModelFailure(kind=kind, message=kind.value, retryable=False, **more)


class Run(Machine):
    """A run, looked at after its latest observation."""

    @classmethod
    def begun(cls, **limits: Any) -> Self:
        return cls(**limits).feed(InputAccepted(message=PROMPT))

    @classmethod
    def asked(cls, **limits: Any) -> Self:
        return cls.begun(**limits).ready()

    @classmethod
    def opened(cls, **limits: Any) -> Self:
        return cls.asked(**limits).open()

    def answered(self, id: str = "t1", **more: Any) -> Self:
        return self.feed(CallEnded(call_id=id, result=ToolResultBlock(id, "ok"), **more))

    def after_a_call(self, block: ToolUseBlock = READ, **more: Any) -> Self:
        return self.block(block).end("tool_use").answered(block.id, **more)

    def all(self, kind: type) -> list[Any]:
        return [action for action in self.last if isinstance(action, kind)]

    def told(self, kind: type) -> list[Any]:
        return [action.event for action in self.all(Publish) if isinstance(action.event, kind)]

    def records(self, kind: type) -> list[Any]:
        return [record for write in self.all(Write) for record in write.records if isinstance(record, kind)]

    @property
    def finish(self) -> Finish | None:
        return next(iter(self.all(Finish)), None)


# --- messages in mid-run ---------------------------------------------------------------------------


def test_an_urgent_message_breaks_in_only_on_a_response() -> None:
    run = Run.opened().block(READ).end("tool_use").feed(MessageQueued(message=MORE, priority="now"))
    assert Phase.TOOLS is run.state.phase
    assert () == run.last


def test_only_urgent_messages_join_before_the_request() -> None:
    run = Run.begun().feed(MessageQueued(message=MORE)).ready()
    assert (MORE,) == run.state.queued
    assert [PROMPT] == list(run.state.messages)


@pytest.mark.parametrize("view", [None, (PROMPT,)])
def test_an_urgent_message_joins_before_the_request_and_what_the_model_sees(view: tuple[Message, ...] | None) -> None:
    run = Run.begun().feed(MessageQueued(message=MORE, priority="now")).ready(view=view)
    assert (PROMPT, MORE) == run.state.messages
    assert (None if view is None else (PROMPT, MORE)) == run.state.view


def test_a_break_in_behind_answered_calls_keeps_their_results() -> None:
    run = Run.opened().block(READ).answered().feed(MessageQueued(message=MORE, priority="now"))
    assert [StopModel(request=1)] == run.all(StopModel)
    assert ["User", "Assistant", "User", "User"] == [
        type(message).__name__.removesuffix("Message") for message in run.state.messages
    ]
    assert [] == check(run.state.messages)


def test_a_break_in_behind_a_text_keeps_the_text() -> None:
    run = Run.opened().block(TextBlock("x")).feed(MessageQueued(message=MORE, priority="now"))
    assert ["User", "Assistant", "User"] == [
        type(message).__name__.removesuffix("Message") for message in run.state.messages
    ]
    assert [] == check(run.state.messages)


def test_what_waits_goes_before_stop_hooks() -> None:
    run = Run.opened(has_stop_hooks=True).feed(MessageQueued(message=MORE)).block(TextBlock("x")).end()
    assert [] == run.all(RunStopHooks)
    assert Phase.PREPARE is run.state.phase


def test_what_came_during_stop_hooks_goes_before_the_token_target() -> None:
    run = Run.opened(has_stop_hooks=True, token_target=1_000_000).block(TextBlock("x")).end()
    run.feed(MessageQueued(message=MORE), StopHooksEnded())
    assert ContinueReason.NEXT_TURN is run.state.transition


# --- before the request ----------------------------------------------------------------------------


def test_a_history_that_was_given_new_ids_makes_its_view_stale() -> None:
    run = Run.begun()
    other = UserMessage(uuid="s", content=(TextBlock("summary"),))
    run.ready(messages=(other, PROMPT), view=(PROMPT,), compacted="auto")
    assert run.state.view is None


def test_a_history_that_is_taken_as_it_came_keeps_its_view() -> None:
    first = Run.begun().ready(messages=(UserMessage(uuid="s", content=(TextBlock("s"),)),), compacted="auto")
    compacted = first.state.messages
    second = Run.begun().ready(messages=compacted, view=compacted, compacted="auto")
    assert second.state.messages == compacted
    assert compacted == second.state.view


@pytest.mark.parametrize(
    ("spent", "error"), [(None, "a price is unknown"), (1.0, "is used up: $1.0000 spent"), (0.99, None)]
)
def test_a_budget_is_kept_or_named(spent: float | None, error: str | None) -> None:
    run = Run.begun(max_budget_usd=1.0).ready(spent_usd=spent)
    assert (error is None) == bool(run.all(CallModel))
    assert error is None or (run.finish is not None and error in run.finish.errors[0])


@pytest.mark.parametrize("reason", [TerminalReason.HOOK_STOPPED, TerminalReason.TURN_SETUP_FAILED])
def test_a_hook_that_stops_the_run_is_no_error(reason: TerminalReason) -> None:
    run = Run.begun().feed(SetupFailed(error="because", reason=reason))
    stopped = reason is TerminalReason.HOOK_STOPPED
    assert run.finish is not None
    assert (() if stopped else ("because",)) == run.finish.errors
    assert (["because"] if stopped else []) == [notice.text for notice in run.told(Notice)]


# --- calls -----------------------------------------------------------------------------------------


def test_results_are_for_open_calls_only() -> None:
    run = Run.opened().block(READ, ToolUseBlock("t2", "Read", {})).answered()
    for id in ("t1", "t3"):
        with pytest.raises(InvariantError, match=id):
            run.answered(id)
    assert [READ.id] == [call.block.id for call in run.state.turn.calls if call.result is not None]


def test_any_call_can_stop_the_loop() -> None:
    run = Run.opened().block(READ, ToolUseBlock("t2", "Read", {})).end("tool_use").answered()
    run.answered("t2", stop_loop="enough")
    assert run.finish is not None
    assert TerminalReason.HOOK_STOPPED is run.finish.reason
    assert ["enough"] == [notice.text for notice in run.told(Notice)]


ANSWER = ToolUseBlock("t1", STRUCTURED_OUTPUT, {})


def test_an_answer_that_nobody_asked_for_is_a_call_like_any_other() -> None:
    run = Run.opened().after_a_call(ANSWER)
    assert Phase.PREPARE is run.state.phase
    assert 0 == run.state.structured_output_retries


@pytest.mark.parametrize("retries", [0, 5])
def test_calls_of_other_tools_are_no_attempts_at_an_answer(retries: int) -> None:
    run = Run.opened(wants_structured_output=True, max_structured_output_retries=retries).after_a_call()
    assert Phase.PREPARE is run.state.phase
    assert 0 == run.state.structured_output_retries


def test_the_answer_that_was_asked_for_ends_the_run() -> None:
    run = Run.opened(wants_structured_output=True).after_a_call(ANSWER)
    assert TerminalReason.COMPLETED is run.state.terminal


def test_repetitions_are_no_matter_where_that_is_switched_off() -> None:
    run = Run.opened(no_progress_note=None, no_progress_end=None)
    for _ in range(12):
        run.after_a_call().ready().open()
    assert 11 == run.state.circles.repeats
    assert [] == [message for message in run.state.messages if getattr(message, "hidden", False)]


def test_a_call_without_a_result_has_a_fingerprint_of_its_own() -> None:
    open, done = fingerprint([(READ, None)]), fingerprint([(READ, ToolResultBlock("t1", "ok"))])
    assert open != done
    assert open == fingerprint([(READ, None)])


# --- ends that aren't ------------------------------------------------------------------------------


@pytest.mark.parametrize(("incomplete", "told"), [("text", False), ("tool_use", True)])
def test_only_a_cut_call_is_told_as_one(incomplete: str, told: bool) -> None:
    cut = (IncompleteBlock(index=1, type=incomplete, text="{", name="Read"),)
    run = Run.opened(max_output_tokens=100).block(TextBlock("x")).end("max_tokens", cut)
    said = str(run.state.messages[-1])
    assert told == (notes.cut_calls(cut) in said)
    assert notes.RESUME_OUTPUT in said


def test_stop_hooks_without_a_cap_block_as_often_as_they_like() -> None:
    run = Run.opened(has_stop_hooks=True, stop_hook_cap=0)
    for count in range(1, 12):
        run.block(TextBlock("x")).end().feed(StopHooksEnded(blocking=("no",)))
        assert count == run.state.stop_hook_blocks
        run.ready().open()


@pytest.mark.parametrize(("tokens", "little"), [(1, True), (1_000, False)])
def test_a_target_says_why_it_lets_go(tokens: int, little: bool) -> None:
    run = Run.opened(token_target=100_000 if little else 3_000)
    while run.finish is None:
        run.block(TextBlock("x")).end(usage=Usage(output_tokens=tokens))
        if run.finish is None:
            run.ready().open()
    (note,) = run.told(Notice)
    assert little == ("little more came" in note.text)


def test_the_end_of_a_turn_has_its_number() -> None:
    run = Run.opened().after_a_call()
    assert [1] == [event.turn for event in run.told(TurnEnded)]
    run.ready().open().after_a_call()
    assert [2] == [event.turn for event in run.told(TurnEnded)]


# --- failures --------------------------------------------------------------------------------------

FITS = {"window": 200_000, "input_tokens": 190_000}


def test_an_overflow_shrinks_the_output_that_no_longer_fits() -> None:
    run = Run.asked(max_output_tokens=20_000).fail(failure(FailureKind.CONTEXT_OVERFLOW, **FITS))
    assert [9_000] == [call.max_tokens for call in run.all(CallModel)]


@pytest.mark.parametrize(
    ("kind", "figures", "output"),
    [
        (FailureKind.PROMPT_TOO_LONG, FITS, 20_000),
        (FailureKind.CONTEXT_OVERFLOW, {}, 20_000),
        (FailureKind.CONTEXT_OVERFLOW, {"window": 200_000}, 20_000),
        (FailureKind.CONTEXT_OVERFLOW, {"input_tokens": 190_000}, 20_000),
        (FailureKind.CONTEXT_OVERFLOW, FITS, 9_000),
        (FailureKind.CONTEXT_OVERFLOW, {"window": 200_000, "input_tokens": 199_000}, 20_000),
    ],
)
def test_where_no_smaller_output_helps_the_context_is_compacted(
    kind: FailureKind, figures: dict[str, int], output: int
) -> None:
    run = Run.asked(max_output_tokens=output).fail(failure(kind, **figures))
    assert ["reactive"] == [action.level for action in run.all(Compact)]


def too_long(**more: Any) -> Run:
    return Run.begun().ready(**more).fail(failure(FailureKind.PROMPT_TOO_LONG))


@pytest.mark.parametrize("level", ["drain", "reactive"])
def test_a_compaction_that_changed_nothing_in_the_history_is_not_told_as_one(level: Any) -> None:
    run = too_long(staged_collapses=1 if level == "drain" else 0)
    run.feed(Compacted(level=level, messages=run.state.messages))
    assert [] == run.told(ContextCompacted)
    assert (PROMPT,) == run.state.messages


@pytest.mark.parametrize(("counted", "told"), [(123, 123), (0, 0), (None, 77)])
def test_the_tokens_before_a_compaction_are_counted_or_known_from_the_last_response(
    counted: int | None, told: int
) -> None:
    run = Run.opened().block(READ).end("tool_use", usage=Usage(input_tokens=77)).answered().ready()
    run.fail(failure(FailureKind.PROMPT_TOO_LONG))
    smaller = (UserMessage(uuid="s", content=(TextBlock("s"),)),)
    run.feed(Compacted(level="reactive", messages=smaller, pre_tokens=counted))
    assert [told] == [event.pre_tokens for event in run.told(ContextCompacted)]


def test_each_compaction_takes_from_what_the_last_one_left_of_the_task_budget() -> None:
    run = Run.opened(task_budget=1_000)
    left = []
    for number in range(3):
        block = ToolUseBlock(f"t{number}", "Read", {})
        run.block(block).end("tool_use", usage=Usage(input_tokens=300)).answered(block.id)
        messages = (UserMessage(uuid=f"s{number}", content=(TextBlock("s"),)),)
        run.ready(messages=messages, compacted="auto").open()
        left.append(run.state.task_budget_remaining)
    assert [700, 400, 100] == left


def test_where_nothing_could_be_drained_the_next_rung_is_tried() -> None:
    run = too_long(staged_collapses=1).feed(CompactFailed(level="drain", error="nothing staged"))
    assert ["reactive"] == [action.level for action in run.all(Compact)]
    assert run.feed(CompactFailed(level="reactive", error="no")).finish is not None


def test_nothing_is_withdrawn_of_a_response_that_never_opened() -> None:
    run = Run.asked().fail(failure(FailureKind.SERVER_ERROR))
    assert [] == run.told(MessageWithdrawn)
    assert [] == run.records(WithdrawRecord)


def test_a_response_without_a_block_is_withdrawn_from_those_who_heard_of_it_alone() -> None:
    run = Run.opened().fail(failure(FailureKind.SERVER_ERROR))
    assert [()] == [event.uuids for event in run.told(MessageWithdrawn)]
    assert [] == run.records(WithdrawRecord)


@pytest.mark.parametrize(
    ("block", "kept"), [(None, False), (ThinkingBlock("hm", "sig"), False), (TextBlock("x"), True), (READ, True)]
)
def test_an_interrupted_response_has_an_end_in_the_journal_only_if_something_is_kept(block: Any, kept: bool) -> None:
    run = Run.opened().block(*([block] if block else []))
    run.feed(Interrupted(reason="user", during=Phase.STREAM))
    assert kept == bool(run.records(ResponseEndRecord))
    assert [] == check(run.state.messages)


def test_a_response_whose_calls_still_run_has_its_end_in_the_journal_already() -> None:
    run = Run.opened().block(READ).end("tool_use")
    assert 1 == len(run.records(ResponseEndRecord))
    run.feed(Interrupted(reason="user", during=Phase.TOOLS))
    assert [] == run.records(ResponseEndRecord)


def test_blocks_that_were_written_are_withdrawn_in_the_journal_too() -> None:
    run = Run.opened().block(ThinkingBlock("hm", "sig")).fail(failure(FailureKind.SERVER_ERROR))
    assert ["msg_1"] == [record.message_id for record in run.records(WithdrawRecord)]
    assert [1] == [len(event.uuids) for event in run.told(MessageWithdrawn)]
