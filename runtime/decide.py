"""
The machine: one state and one observation in, the next state and the actions out.

Pure and total over what may happen: an observation that can't come in a phase raises `InvariantError` and
changes nothing. What comes from an older request is ignored. The arms that conclude a response are in
`conclude`; here is what happens while it comes.
"""

from __future__ import annotations

from typing import assert_never

import attrs

from . import notes
from .actions import Action, Prepare, Publish, StartCall, Transition, Write
from .backoff import Position
from .conclude import after_tools, break_in, conclude_response
from .ending import hooks_ended
from .errors import InvariantError
from .events import AssistantBlock, Notice, ToolEnded, UserMessageAdded
from .messages import ToolResultBlock, ToolUseBlock
from .observations import (
    BlockArrived,
    CallEnded,
    Compacted,
    CompactFailed,
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
    SetupFailed,
    StopHooksEnded,
    TimeExpired,
)
from .records import BlockRecord, ResultRecord, RunStartRecord, UserRecord
from .recovery import compact_failed, compacted, recover, replace_history
from .result import TerminalReason
from .state import Call, LoopState, Phase, Turn, block_id, changed, derive_id, result_id
from .steps import ask_model, finish, join_queued, settle, withdraw

__all__ = ["decide"]


def decide(state: LoopState, observation: Observation) -> Transition:
    """
    The next state, and what to do about it.

    Raises:
        InvariantError: the observation can't come in this phase. The state is as it was.
    """
    if state.phase is Phase.TERMINAL:
        raise InvariantError(f"{type(observation).__name__} after the end of the run")
    match observation:
        case InputAccepted():
            return _accept(state, observation)
        case ContextReady():
            return _request(_expect(state, Phase.PREPARE, observation), observation)
        case SetupFailed():
            return _setup_failed(_expect(state, Phase.PREPARE, observation), observation)
        case ResponseOpened() | BlockArrived() | ResponseFinished() | ResponseRestarted() | ResponseFailed():
            if observation.request != state.turn.request:
                return Transition(state)
            return _response(_expect(state, Phase.STREAM, observation), observation)
        case CallEnded():
            return _call_ended(state, observation)
        case MessageQueued():
            return _queue(state, observation)
        case Compacted():
            return compacted(_expect(state, Phase.RECOVER, observation), observation)
        case CompactFailed():
            return compact_failed(_expect(state, Phase.RECOVER, observation), observation)
        case StopHooksEnded():
            return hooks_ended(_expect(state, Phase.HOOKS, observation), observation)
        case Interrupted():
            return _interrupted(state, observation)
        case TimeExpired():
            return _time_expired(state, observation)
        case PartFailed():
            return _part_failed(state, observation)
        case _:
            assert_never(observation)


def _expect(state: LoopState, phase: Phase, observation: Observation) -> LoopState:
    if state.phase is not phase:
        raise InvariantError(f"{type(observation).__name__} in phase {state.phase.value}, which expects none")
    return state


def _accept(state: LoopState, observation: InputAccepted) -> Transition:
    _expect(state, Phase.START, observation)
    message = observation.message
    started = RunStartRecord(uuid=derive_id(state.run_id, "run", "start"), run_id=state.run_id, model=state.model)
    return Transition(
        changed(state, phase=Phase.PREPARE, messages=(*state.messages, message)),
        (Write((started, UserRecord(message=message)), sync=True), Prepare()),
    )


def _queue(state: LoopState, observation: MessageQueued) -> Transition:
    message = observation.message
    if observation.priority == "later":
        return Transition(changed(state, later=(*state.later, message)))
    state = changed(state, queued=(*state.queued, message))
    if observation.priority == "next":
        return Transition(state)
    state = changed(state, urgent=True)
    return break_in(state) if state.phase is Phase.STREAM else Transition(state)


def _request(state: LoopState, observation: ContextReady) -> Transition:
    told: tuple[Action, ...] = ()
    view = observation.view
    if observation.compacted is not None:
        state, told = replace_history(
            state,
            observation.messages,
            trigger=observation.compacted,
            pre_tokens=observation.pre_tokens,
            post_tokens=observation.post_tokens,
        )
        if observation.messages != state.messages:
            view = None
    for message in observation.attachments:
        told += (Write((UserRecord(message=message),)), Publish(UserMessageAdded(message=message)))
    state = changed(
        state,
        phase=Phase.STREAM,
        turn=Turn(request=state.turn.request + 1),
        messages=(*state.messages, *observation.attachments),
        view=view,
        staged_collapses=observation.staged_collapses,
    )
    if state.urgent:
        known = len(state.messages)
        state, joined = join_queued(state)
        view = state.view if state.view is None else (*state.view, *state.messages[known:])
        state, told = changed(state, view=view), (*told, *joined)
    budget = state.limits.max_budget_usd
    if budget is None or (observation.spent_usd is not None and observation.spent_usd < budget):
        return Transition(state, (*told, *ask_model(state)))
    if observation.spent_usd is None:
        error = f"a price is unknown, so the budget of ${budget:g} can't be kept"
    else:
        error = f"the budget of ${budget:g} is used up: ${observation.spent_usd:.4f} spent"
    return finish(state, TerminalReason.BUDGET_EXHAUSTED, errors=(error,)).prefixed(*told)


def _setup_failed(state: LoopState, observation: SetupFailed) -> Transition:
    if observation.reason is TerminalReason.HOOK_STOPPED:
        note = Publish(Notice(level="info", source="hook", text=observation.error))
        return finish(state, observation.reason).prefixed(note)
    return finish(state, observation.reason, errors=(observation.error,))


# --- while the response comes ---------------------------------------------------------------------


def _response(
    state: LoopState,
    observation: ResponseOpened | BlockArrived | ResponseFinished | ResponseRestarted | ResponseFailed,
) -> Transition:
    turn = state.turn
    match observation:
        case ResponseOpened():
            # A server that gives its message no id gets one, since withdrawals and the ledger go by it.
            message_id = observation.message_id or derive_id(state.run_id, turn.request, "message")
            opened = changed(turn, message_id=message_id, model=observation.model, usage=observation.usage)
            return Transition(changed(state, turn=opened))
        case BlockArrived():
            return _block_arrived(state, observation)
        case ResponseFinished():
            ended = changed(
                turn,
                stop_reason=observation.stop_reason,
                usage=observation.usage,
                incomplete=observation.incomplete,
            )
            spent = state.output_spent + observation.usage.output_tokens
            context = observation.usage.context_tokens or state.context_tokens
            return conclude_response(changed(state, turn=ended, output_spent=spent, context_tokens=context))
        case ResponseRestarted():
            fresh = Turn(request=turn.request, crashes=turn.crashes)
            return Transition(changed(state, turn=fresh), withdraw(state, observation.reason))
        case ResponseFailed():
            return _response_failed(state, observation)


def _block_arrived(state: LoopState, observation: BlockArrived) -> Transition:
    turn, block = state.turn, observation.block
    uuid = block_id(state, len(turn.blocks))
    model = turn.model or state.model
    record = BlockRecord(
        uuid=uuid,
        message_id=turn.message_id,
        model=model,
        block=block,
        requested_model=state.model if model != state.model else "",
    )
    event = AssistantBlock(
        uuid=uuid,
        message_id=turn.message_id,
        model=model,
        index=observation.index,
        block=block,
        usage=turn.usage,
    )
    turn = changed(turn, blocks=(*turn.blocks, block))
    if not isinstance(block, ToolUseBlock):
        return Transition(changed(state, turn=turn), (Write((record,)), Publish(event)))
    turn = changed(turn, calls=(*turn.calls, Call(block=block)))
    state = changed(state, turn=turn)
    actions = (Write((record,)), Publish(event))
    if len(turn.calls) <= state.limits.max_calls_per_response:
        return Transition(state, (*actions, StartCall(block=block)))
    refused = CallEnded(call_id=block.id, result=ToolResultBlock(block.id, notes.TOO_MANY_CALLS, is_error=True))
    return _call_ended(state, refused).prefixed(*actions)


def _response_failed(state: LoopState, observation: ResponseFailed) -> Transition:
    turn, failure = state.turn, observation.failure
    if turn.position >= Position.COMMITTED:
        note = Notice(level="warning", source="model", text=f"the response is incomplete: {failure.message}")
        return conclude_response(state, failure).prefixed(Publish(note))
    if observation.crashed and turn.crashes < state.limits.max_crash_retries:
        again = changed(state, turn=Turn(request=turn.request + 1, crashes=turn.crashes + 1))
        return Transition(again, (*withdraw(state, failure.message), *ask_model(again)))
    return recover(state, failure)


# --- tools ----------------------------------------------------------------------------------------


def _call_ended(state: LoopState, observation: CallEnded) -> Transition:
    calls = state.turn.calls
    position = next(
        (n for n, call in enumerate(calls) if call.block.id == observation.call_id and call.result is None), None
    )
    if position is None:
        raise InvariantError(f"a result for {observation.call_id}, which is no open call of this turn")
    call = attrs.evolve(
        calls[position],
        result=observation.result,
        details=observation.details,
        stop_loop=observation.stop_loop,
        deferred=observation.deferred,
    )
    turn = changed(state.turn, calls=(*calls[:position], call, *calls[position + 1 :]))
    state = changed(state, turn=turn)
    uuid = result_id(state, observation.call_id)
    record = ResultRecord(uuid=uuid, block=observation.result, name=call.block.name, details=observation.details)
    event = ToolEnded(
        uuid=uuid,
        call_id=observation.call_id,
        name=call.block.name,
        result=observation.result,
        duration=observation.duration,
        details=observation.details,
    )
    actions = (Write((record,)), Publish(event))
    if state.phase is Phase.TOOLS and not turn.open_calls:
        return after_tools(state).prefixed(*actions)
    return Transition(state, actions)


# --- the end from outside -------------------------------------------------------------------------


def _interrupted(state: LoopState, observation: Interrupted) -> Transition:
    reason = TerminalReason.ABORTED_TOOLS if observation.during is Phase.TOOLS else TerminalReason.ABORTED_STREAMING
    settled, actions = settle(state, notes.INTERRUPTED_CALL, mark=notes.INTERRUPTED)
    return finish(settled, reason).prefixed(*actions)


def _time_expired(state: LoopState, observation: TimeExpired) -> Transition:
    settled, actions = settle(state, notes.INTERRUPTED_CALL, mark=notes.TIME_IS_UP)
    error = f"the time of {observation.limit:g} s is used up"
    ended = finish(settled, TerminalReason.BUDGET_EXHAUSTED, errors=(error,), subtype="error_during_execution")
    return ended.prefixed(*actions)


def _part_failed(state: LoopState, observation: PartFailed) -> Transition:
    settled, actions = settle(state, notes.lost_part(observation.name), mark=None)
    error = f"the {observation.name} failed for good: {observation.error}"
    return finish(settled, TerminalReason.MODEL_ERROR, errors=(error,)).prefixed(*actions)
