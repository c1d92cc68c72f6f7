"""The machine, arm by arm, and what holds whatever comes."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.machine import OVERLOADED, PROMPT, Machine

from atrio.runtime import notes
from atrio.runtime.actions import CallModel, Prepare, Publish, StartCall, Write
from atrio.runtime.decide import decide
from atrio.runtime.errors import InvariantError
from atrio.runtime.events import AssistantBlock, MessageWithdrawn, ToolEnded, TurnEnded
from atrio.runtime.history import check
from atrio.runtime.messages import (
    AssistantMessage,
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
    ResponseOpened,
    ResponseRestarted,
    SetupFailed,
)
from atrio.runtime.result import TerminalReason
from atrio.runtime.state import ContinueReason, Phase


def call(id: str = "t1", name: str = "Read") -> ToolUseBlock:
    return ToolUseBlock(id, name, {"file_path": "a"})


def answer(id: str = "t1", text: str = "ok") -> CallEnded:
    return CallEnded(call_id=id, result=ToolResultBlock(id, text))


def test_a_prompt_is_journaled_durably_before_the_model_is_asked() -> None:
    machine = Machine().feed(InputAccepted(message=PROMPT))
    write, prepare = machine.actions
    assert isinstance(write, Write)
    assert write.sync
    assert prepare == Prepare()
    assert Phase.PREPARE is machine.phase()
    assert (PROMPT,) == machine.state.messages


def test_a_text_answer_completes_the_run() -> None:
    machine = Machine().begin().block(TextBlock("hello")).end()
    machine.assert_over(TerminalReason.COMPLETED)
    assert ["hello"] == [
        block.text
        for message in machine.state.messages
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    ]


def test_a_finished_call_starts_while_the_response_goes_on() -> None:
    machine = Machine().begin().block(call())
    assert StartCall(block=call()) == machine.last[-1]
    assert Phase.STREAM is machine.phase()
    written, published = machine.last[0], machine.last[1]
    assert isinstance(written, Write)
    assert isinstance(published, Publish)
    assert isinstance(published.event, AssistantBlock)


def test_the_next_turn_begins_when_the_last_call_is_answered() -> None:
    machine = Machine().begin().block(call("t1"), call("t2")).feed(answer("t1")).end("tool_use")
    assert Phase.TOOLS is machine.phase()
    assert (PROMPT,) == machine.state.messages
    machine.feed(answer("t2"))
    assert Phase.PREPARE is machine.phase()
    assert Prepare() == machine.last[-1]
    assert ContinueReason.NEXT_TURN is machine.state.transition
    assert 2 == machine.state.turn_count
    assert [TurnEnded(turn=1, transition="next_turn")] == machine.events(TurnEnded)
    assert [] == check(machine.state.messages)


def test_results_stand_in_call_order_in_the_history() -> None:
    machine = Machine().begin().block(call("t1"), call("t2")).end("tool_use").feed(answer("t1"), answer("t2"))
    results = machine.state.messages[-1]
    assert ["t1", "t2"] == [block.tool_use_id for block in results.content if isinstance(block, ToolResultBlock)]  # type: ignore[union-attr]  # a UserMessage


def test_calls_answered_during_the_stream_need_no_tools_phase() -> None:
    machine = Machine().begin().block(call()).feed(answer()).end("tool_use")
    assert Phase.PREPARE is machine.phase()


def test_the_turn_limit_ends_the_run_after_its_tools() -> None:
    machine = Machine(max_turns=1).begin().block(call()).feed(answer()).end("tool_use")
    finish = machine.assert_over(TerminalReason.MAX_TURNS)
    assert ("the limit of 1 turns is reached",) == finish.errors
    assert 1 == machine.state.turn_count


def test_the_turn_limit_does_not_end_a_run_that_completes() -> None:
    Machine(max_turns=1).begin().block(TextBlock("x")).end().assert_over(TerminalReason.COMPLETED)


# --- failures --------------------------------------------------------------------------------------


def test_a_failure_before_anything_completed_ends_as_api_error() -> None:
    machine = Machine().begin().fail()
    finish = machine.assert_over(TerminalReason.API_ERROR)
    assert OVERLOADED == finish.failure
    assert (PROMPT,) == machine.state.messages


@pytest.mark.parametrize("kind", [FailureKind.UNKNOWN, FailureKind.ACTOR_CRASHED, FailureKind.MALFORMED])
def test_a_failure_that_no_api_reported_is_a_model_error(kind: FailureKind) -> None:
    failed = ModelFailure(kind=kind, message="x", retryable=False)
    Machine().begin().fail(failed).assert_over(TerminalReason.MODEL_ERROR)


def test_a_response_that_breaks_off_after_a_text_is_gone_on_from_three_times_in_a_row() -> None:
    machine = Machine().begin()
    for number in range(3):
        machine.block(TextBlock(f"half {number}")).fail()
        assert Phase.PREPARE is machine.phase()
        last = machine.state.messages[-1]
        assert isinstance(last, UserMessage)
        assert (TextBlock(notes.RESUME_CUT),) == last.content
        machine.prepared()
    machine.block(TextBlock("half again")).fail()
    machine.assert_over(TerminalReason.API_ERROR)
    assert [] == check(machine.state.messages)


def test_a_failure_that_no_repetition_heals_ends_a_run_that_it_broke_off() -> None:
    machine = Machine().begin().block(TextBlock("half")).fail(attrs.evolve(OVERLOADED, retryable=False))
    machine.assert_over(TerminalReason.API_ERROR)


def test_calls_that_had_completed_run_and_the_loop_goes_on_when_the_rest_fails() -> None:
    machine = Machine().begin().block(call()).fail()
    assert Phase.TOOLS is machine.phase()
    machine.feed(answer())
    assert Phase.PREPARE is machine.phase()
    assert ContinueReason.NEXT_TURN is machine.state.transition


def test_thinking_that_had_completed_is_withdrawn_when_the_rest_fails() -> None:
    machine = Machine().begin().block(ThinkingBlock("hm", "sig")).fail()
    machine.assert_over(TerminalReason.API_ERROR)
    [tombstone] = machine.events(MessageWithdrawn)
    assert ("msg_1", 1) == (tombstone.message_id, len(tombstone.uuids))
    assert (PROMPT,) == machine.state.messages


def test_a_restarted_response_begins_from_nothing() -> None:
    machine = Machine().begin().block(ThinkingBlock("hm", "sig"))
    machine.feed(ResponseRestarted(request=1, reason="again"))
    assert () == machine.state.turn.blocks
    assert 1 == len(machine.events(MessageWithdrawn))
    number = machine.state.turn.request
    machine.feed(ResponseOpened(request=number, message_id="msg_b", model="m", usage=Usage()))
    machine.block(TextBlock("x")).end().assert_over(TerminalReason.COMPLETED)
    assert 2 == len(machine.state.messages)


def test_a_crashed_streamer_is_asked_again_with_a_new_number_and_bounded() -> None:
    machine = Machine(max_crash_retries=2).begin()
    crash = attrs.evolve(OVERLOADED, kind=FailureKind.ACTOR_CRASHED)
    for number in (2, 3):
        machine.fail(crash, crashed=True)
        assert isinstance(machine.last[-1], CallModel)
        assert number == machine.last[-1].request
    machine.fail(crash, crashed=True)
    machine.assert_over(TerminalReason.MODEL_ERROR)


def test_what_comes_of_an_older_request_is_ignored() -> None:
    machine = Machine().begin()
    machine.fail(attrs.evolve(OVERLOADED, kind=FailureKind.ACTOR_CRASHED), crashed=True)
    before = machine.state
    machine.feed(BlockArrived(request=1, index=0, block=TextBlock("late")))
    assert before == machine.state
    assert () == machine.last


def test_a_turn_that_cannot_be_prepared_ends_the_run() -> None:
    machine = Machine().feed(InputAccepted(message=PROMPT), SetupFailed(error="no"))
    assert ("no",) == machine.assert_over(TerminalReason.TURN_SETUP_FAILED).errors


def test_a_part_that_failed_for_good_ends_the_run_with_its_calls_answered() -> None:
    machine = Machine().begin().block(call()).end("tool_use")
    machine.feed(PartFailed(name="executor", error="ValueError: x"))
    finish = machine.assert_over(TerminalReason.MODEL_ERROR)
    assert "executor" in finish.errors[0]
    assert 1 == len(machine.events(ToolEnded))


# --- output limit ----------------------------------------------------------------------------------

CUT = (IncompleteBlock(index=1, type="tool_use", text='{"a": "lo', name="Write", id="t9"),)


def test_a_first_cut_is_asked_again_with_a_higher_limit_and_no_trace() -> None:
    machine = Machine().begin().block(TextBlock("long")).end("max_tokens")
    assert ContinueReason.MAX_OUTPUT_TOKENS_ESCALATE is machine.state.transition
    assert 1 == len(machine.events(MessageWithdrawn))
    assert (PROMPT,) == machine.state.messages
    machine.prepared()
    calls = [action for action in machine.actions if isinstance(action, CallModel)]
    assert [8_000, 64_000] == [action.max_tokens for action in calls]


def test_further_cuts_are_resumed_three_times_then_surface() -> None:
    machine = Machine().begin().block(TextBlock("a")).end("max_tokens").prepared()
    for count in (1, 2, 3):
        machine.block(TextBlock("b")).end("max_tokens")
        assert ContinueReason.MAX_OUTPUT_TOKENS_RECOVERY is machine.state.transition
        assert count == machine.state.max_output_tokens_recovery_count
        machine.prepared()
    machine.block(TextBlock("c")).end("max_tokens")
    machine.assert_over(TerminalReason.API_ERROR)


def test_the_users_own_limit_is_never_raised() -> None:
    machine = Machine(max_output_tokens=100).begin().block(TextBlock("a")).end("max_tokens")
    assert ContinueReason.MAX_OUTPUT_TOKENS_RECOVERY is machine.state.transition
    assert 100 == machine.state.output_tokens


def test_a_cut_call_is_not_run_and_the_model_is_told() -> None:
    machine = Machine(max_output_tokens=100).begin().block(TextBlock("a")).end("max_tokens", CUT)
    assert not any(isinstance(action, StartCall) for action in machine.actions)
    assert notes.cut_calls(CUT) in machine.state.messages[-1].content[0].text  # type: ignore[union-attr]  # a TextBlock


def test_a_cut_call_beside_a_whole_one_is_told_with_its_result() -> None:
    machine = Machine().begin().block(call()).end("max_tokens", CUT).feed(answer())
    assert ContinueReason.NEXT_TURN is machine.state.transition
    assert TextBlock(notes.cut_calls(CUT)) == machine.state.messages[-1].content[-1]  # type: ignore[union-attr]  # a UserMessage


# --- pauses, steering, interruptions ---------------------------------------------------------------


def test_a_paused_turn_goes_on_with_the_conversation_unchanged_and_bounded() -> None:
    machine = Machine(max_pauses=2).begin()
    for count in (1, 2):
        machine.block(TextBlock("searching")).end("pause_turn")
        assert count == machine.state.pauses
        assert isinstance(machine.state.messages[-1], AssistantMessage)
        machine.prepared()
    machine.block(TextBlock("still")).end("pause_turn").assert_over(TerminalReason.COMPLETED)


def steer(text: str = "also this") -> MessageQueued:
    return MessageQueued(message=UserMessage(uuid=f"s{text}", content=(TextBlock(text),), origin="steer"))


def test_a_queued_message_joins_after_the_tool_results() -> None:
    machine = Machine().begin().block(call()).feed(steer()).end("tool_use").feed(answer())
    assert steer().message == machine.state.messages[-1]
    assert () == machine.state.queued


def test_a_queued_message_keeps_a_run_going_that_would_complete() -> None:
    machine = Machine().begin().feed(steer()).block(TextBlock("done")).end()
    assert Phase.PREPARE is machine.phase()
    assert steer().message == machine.state.messages[-1]


def test_a_queued_message_survives_a_failing_end() -> None:
    machine = Machine().begin().feed(steer()).fail()
    machine.assert_over(TerminalReason.API_ERROR)
    assert steer().message == machine.state.messages[-1]


@pytest.mark.parametrize(
    ("expected", "ended"), [(TerminalReason.ABORTED_STREAMING, False), (TerminalReason.ABORTED_TOOLS, True)]
)
def test_an_interruption_answers_every_open_call(expected: TerminalReason, ended: bool) -> None:
    machine = Machine().begin().block(call("t1"), call("t2"), call("t3")).feed(answer("t1"))
    if ended:
        machine.end("tool_use")
    machine.feed(Interrupted(reason="stop", during=machine.state.phase))
    machine.assert_over(expected)
    results = [event.result for event in machine.events(ToolEnded)]
    assert ["t1", "t2", "t3"] == [result.tool_use_id for result in results]
    assert [False, True, True] == [result.is_error for result in results]


def test_an_interruption_before_anything_came_keeps_the_prompt() -> None:
    machine = Machine().begin().feed(Interrupted(reason="stop", during=Phase.STREAM))
    machine.assert_over(TerminalReason.ABORTED_STREAMING)
    assert PROMPT == machine.state.messages[0]


def test_too_many_calls_in_one_response_are_refused_not_queued() -> None:
    machine = Machine(max_calls_per_response=2).begin().block(call("t1"), call("t2"), call("t3"))
    assert 2 == sum(isinstance(action, StartCall) for action in machine.actions)
    machine.feed(answer("t1"), answer("t2")).end("tool_use")
    assert Phase.PREPARE is machine.phase()
    assert [] == check(machine.state.messages)


# --- what is illegal -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "observation",
    [
        InputAccepted(message=PROMPT),
        ContextReady(messages=()),
        answer("nobody"),
    ],
)
def test_an_illegal_observation_raises_and_changes_nothing(observation: Observation) -> None:
    machine = Machine().begin()
    before = machine.state
    with pytest.raises(InvariantError):
        decide(machine.state, observation)
    assert before == machine.state


def test_nothing_comes_after_the_end() -> None:
    machine = Machine().begin().block(TextBlock("x")).end()
    with pytest.raises(InvariantError):
        decide(machine.state, Interrupted(reason="late", during=Phase.STREAM))


# --- whatever comes --------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.sampled_from(["text", "think", "call", "call", "answer", "answer", "end", "end", "steer"]),
        st.sampled_from(["fail", "crash", "cut", "restart", "interrupt", "down"]),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(STEPS, st.integers(1, 4))
def test_whatever_comes_the_history_is_valid_and_the_end_is_one(steps: list[str], max_turns: int) -> None:
    machine = Machine(max_turns=max_turns).begin()
    calls = 0
    numbers = itertools.count()
    for step in steps:
        if machine.state.phase is Phase.TERMINAL:
            break
        if machine.state.phase is Phase.PREPARE:
            machine.prepared()
        streaming = machine.state.phase is Phase.STREAM
        open_calls = machine.state.turn.open_calls
        match step:
            case "text" if streaming:
                machine.block(TextBlock("x"))
            case "think" if streaming:
                machine.block(ThinkingBlock("x", "s"))
            case "call" if streaming:
                calls += 1
                machine.block(call(f"t{calls}"))
            case "answer" if open_calls:
                machine.feed(answer(open_calls[0].block.id))
            case "end" if streaming:
                machine.end("tool_use" if machine.state.turn.calls else "end_turn")
            case "cut" if streaming:
                machine.end("max_tokens", CUT)
            case "fail" if streaming:
                machine.fail()
            case "crash" if streaming:
                machine.fail(attrs.evolve(OVERLOADED, kind=FailureKind.ACTOR_CRASHED), crashed=True)
            case "restart" if streaming and not machine.state.turn.calls:
                machine.feed(ResponseRestarted(request=machine.state.turn.request, reason="r"))
                number = machine.state.turn.request
                machine.feed(ResponseOpened(request=number, message_id=f"r{calls}", model="m", usage=Usage()))
            case "steer":
                machine.feed(steer(str(next(numbers))))
            case "interrupt":
                machine.feed(Interrupted(reason="i", during=machine.state.phase))
            case "down":
                machine.feed(PartFailed(name="executor", error="e"))
        assert [] == check(machine.state.messages)
        assert machine.state.turn_count <= max_turns
        assert machine.state.max_output_tokens_recovery_count <= 3
    assert len(machine.finishes()) == (machine.state.phase is Phase.TERMINAL)
    started = [action.block.id for action in machine.actions if isinstance(action, StartCall)]
    assert len(set(started)) == len(started)


@given(STEPS)
def test_the_same_observations_give_the_same_actions(steps: list[str]) -> None:
    runs = []
    for _ in range(2):
        machine = Machine().begin()
        for step in steps:
            if machine.state.phase is Phase.STREAM and step in ("text", "end"):
                machine.block(TextBlock("x")) if step == "text" else machine.end()
        runs.append(machine.actions)
    assert runs[0] == runs[1]
