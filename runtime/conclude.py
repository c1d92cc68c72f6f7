"""
How a response is concluded: recover, run on, or end. Pure; each transition is made at one site here.

The order is that of the reference (phases 4 to 7): calls first; without calls, output-limit recovery, then
what was queued meanwhile, then the end.
"""

from __future__ import annotations

import attrs

from . import notes
from .actions import Action, Finish, Prepare, Publish, Transition, Write
from .backoff import Position
from .events import MessageWithdrawn, ToolEnded, TurnEnded, UserMessageAdded
from .messages import TextBlock, ToolResultBlock, UserMessage, UserOrigin
from .model import ModelFailure
from .records import ResponseEndRecord, ResultRecord, UserRecord, WithdrawRecord
from .result import TerminalReason
from .state import (
    ContinueReason,
    LoopState,
    Phase,
    assistant_message,
    block_id,
    derive_id,
    result_id,
    results_message,
)

__all__ = ["after_tools", "conclude_response", "finish", "settle", "withdraw"]

OUTPUT_LIMIT = frozenset(("max_tokens", "model_context_window_exceeded"))


def conclude_response(state: LoopState, failure: ModelFailure | None = None) -> Transition:
    """
    The response is over: complete, or broken off (``failure``) after something in it was complete.

    What was complete is kept either way; calls that had completed run and the loop goes on.
    """
    turn = state.turn
    ended = (_response_end(state, incomplete=failure is not None),)
    if turn.open_calls:
        return Transition(attrs.evolve(state, phase=Phase.TOOLS), ended)
    if turn.calls:
        return after_tools(state).prefixed(*ended)
    if failure is not None:
        return _resume_cut(_with_response(state), failure).prefixed(*ended)
    state = attrs.evolve(state, cut_recoveries=0)
    if turn.stop_reason in OUTPUT_LIMIT:
        return _output_limit(state, ended)
    if turn.stop_reason == "pause_turn" and state.pauses < state.limits.max_pauses:
        kept = attrs.evolve(_with_response(state), pauses=state.pauses + 1)
        return _next_turn(kept).prefixed(*ended)
    kept = _with_response(state)
    if state.queued:
        return _next_turn(kept).prefixed(*ended)
    return finish(kept, TerminalReason.COMPLETED).prefixed(*ended)


def _response_end(state: LoopState, *, incomplete: bool) -> Action:
    turn = state.turn
    record = ResponseEndRecord(
        uuid=derive_id(state.run_id, turn.request, "end"),
        message_id=turn.message_id,
        model=turn.model or state.model,
        stop_reason=turn.stop_reason,
        usage=turn.usage,
        incomplete=incomplete,
    )
    return Write((record,))


def after_tools(state: LoopState) -> Transition:
    """Every call of the turn has its result: they join the history together with the response."""
    turn = state.turn
    messages = (*state.messages, assistant_message(state, turn.blocks), results_message(state))
    state = attrs.evolve(
        state,
        messages=messages,
        pauses=0,
        cut_recoveries=0,
        max_output_tokens_recovery_count=0,
        max_output_tokens_override=None,
    )
    if any(block.type == "tool_use" for block in turn.incomplete):
        note = hidden_message(state, "recovery", notes.cut_calls(turn.incomplete), "cut")
        state = attrs.evolve(state, queued=(note, *state.queued))
    return _next_turn(state)


def _with_response(state: LoopState) -> LoopState:
    """The state with the response in its history (an empty one is no message)."""
    if not state.turn.blocks:
        return state
    return attrs.evolve(state, messages=(*state.messages, assistant_message(state, state.turn.blocks)))


def _next_turn(state: LoopState) -> Transition:
    """Transition next_turn: queued messages join, the turn limit is tested."""
    state, actions = _join_queued(state)
    limit = state.limits.max_turns
    if limit is not None and state.turn_count + 1 > limit:
        error = f"the limit of {limit} turns is reached"
        return finish(state, TerminalReason.MAX_TURNS, errors=(error,)).prefixed(*actions)
    following = attrs.evolve(state, turn_count=state.turn_count + 1, transition=ContinueReason.NEXT_TURN)
    return _go_on(following, *actions, turn=state.turn_count)


def _resume_cut(state: LoopState, failure: ModelFailure) -> Transition:
    """The connection broke after a text was complete: nothing is repeated, the model goes on from there."""
    count = state.cut_recoveries + 1
    if not failure.retryable or count > state.limits.max_cut_recoveries:
        return finish(state, TerminalReason.API_ERROR, errors=(failure.message,), failure=failure)
    message = hidden_message(state, "recovery", notes.RESUME_CUT, "cut", count)
    return _next_turn(attrs.evolve(state, cut_recoveries=count, queued=(message, *state.queued)))


def _output_limit(state: LoopState, ended: tuple[Action, ...]) -> Transition:
    """The response was cut by the output limit before any call was complete: raise it once, then resume."""
    limits = state.limits
    if state.max_output_tokens_override is None and limits.max_output_tokens is None:
        return _escalate(state)
    if state.max_output_tokens_recovery_count < limits.max_output_recoveries:
        return _resume_output(state, ended)
    error = f"the response was cut off by the output limit, also after {limits.max_output_recoveries} continuations"
    return finish(_with_response(state), TerminalReason.API_ERROR, errors=(error,)).prefixed(*ended)


def _escalate(state: LoopState) -> Transition:
    """Transition max_output_tokens_escalate: the same request with a higher cap; the cut response is void."""
    reason = "cut off by the output limit; asked again with a higher one"
    return _go_on(
        attrs.evolve(
            state,
            max_output_tokens_override=state.limits.escalated_output_tokens,
            transition=ContinueReason.MAX_OUTPUT_TOKENS_ESCALATE,
        ),
        *withdraw(state, reason),
    )


def _resume_output(state: LoopState, ended: tuple[Action, ...]) -> Transition:
    """Transition max_output_tokens_recovery: keep what came and ask for the rest."""
    count = state.max_output_tokens_recovery_count + 1
    text = notes.RESUME_OUTPUT
    if any(block.type == "tool_use" for block in state.turn.incomplete):
        text = f"{notes.cut_calls(state.turn.incomplete)}\n\n{text}"
    kept = _with_response(state)
    message = hidden_message(kept, "recovery", text, count)
    return _go_on(
        attrs.evolve(
            kept,
            messages=(*kept.messages, message),
            max_output_tokens_recovery_count=count,
            transition=ContinueReason.MAX_OUTPUT_TOKENS_RECOVERY,
        ),
        *ended,
        Write((UserRecord(message=message),)),
        Publish(UserMessageAdded(message=message)),
    )


def withdraw(state: LoopState, reason: str) -> tuple[Action, ...]:
    """The tombstone of what came of this response so far; nothing if nothing was shown."""
    turn = state.turn
    if not turn.message_id:
        return ()
    uuids = tuple(block_id(state, position) for position in range(len(turn.blocks)))
    tombstone = Publish(MessageWithdrawn(message_id=turn.message_id, uuids=uuids, reason=reason))
    if not turn.blocks:
        return (tombstone,)
    uuid = derive_id(state.run_id, turn.request, turn.message_id, "withdrawn")
    return (Write((WithdrawRecord(uuid=uuid, message_id=turn.message_id, reason=reason),)), tombstone)


def hidden_message(state: LoopState, origin: UserOrigin, text: str, *parts: object) -> UserMessage:
    """A message in atrio's own name."""
    return UserMessage(
        uuid=derive_id(state.run_id, state.turn.request, origin, *parts),
        content=(TextBlock(text),),
        origin=origin,
        hidden=True,
    )


def _go_on(state: LoopState, *actions: Action, turn: int | None = None) -> Transition:
    assert state.transition is not None
    ended = TurnEnded(turn=turn if turn is not None else state.turn_count, transition=state.transition.value)
    return Transition(attrs.evolve(state, phase=Phase.PREPARE), (*actions, Publish(ended), Prepare()))


def finish(
    state: LoopState,
    reason: TerminalReason,
    *,
    errors: tuple[str, ...] = (),
    failure: ModelFailure | None = None,
) -> Transition:
    """The end of the run. Messages that still wait join the history, so that none is lost."""
    state, joined = _join_queued(state)
    ended = attrs.evolve(state, phase=Phase.TERMINAL, terminal=reason)
    return Transition(ended, (*joined, Finish(reason=reason, errors=errors, failure=failure)))


def _join_queued(state: LoopState, *more: UserMessage) -> tuple[LoopState, tuple[Action, ...]]:
    actions: list[Action] = []
    messages = (*state.queued, *more)
    for message in messages:
        actions += (Write((UserRecord(message=message),)), Publish(UserMessageAdded(message=message)))
    return attrs.evolve(state, messages=(*state.messages, *messages), queued=()), tuple(actions)


def settle(state: LoopState, text: str, *, mark: str | None) -> tuple[LoopState, tuple[Action, ...]]:
    """
    End the turn where it stands, leaving a valid history: what was complete is kept, each open call gets a
    synthetic error result, and ``mark`` (if any) tells the model that the user broke in.
    """
    actions: list[Action] = []
    turn = state.turn
    in_response = state.phase in (Phase.STREAM, Phase.TOOLS)
    if state.phase is Phase.STREAM and (turn.calls or turn.position >= Position.COMMITTED):
        actions.append(_response_end(state, incomplete=True))
    if in_response and turn.calls:
        for call in turn.open_calls:
            block = ToolResultBlock(call.block.id, text, is_error=True)
            uuid = result_id(state, call.block.id)
            actions += (
                Write((ResultRecord(uuid=uuid, block=block, name=call.block.name, details=None),)),
                Publish(ToolEnded(uuid=uuid, call_id=call.block.id, name=call.block.name, result=block, duration=0.0)),
            )
            turn = attrs.evolve(
                turn,
                calls=tuple(attrs.evolve(c, result=block) if c is call else c for c in turn.calls),
            )
        state = attrs.evolve(state, turn=turn)
        messages = (*state.messages, assistant_message(state, turn.blocks), results_message(state))
        state = attrs.evolve(state, messages=messages)
    elif in_response and turn.position >= Position.COMMITTED:
        state = _with_response(state)
    elif in_response:
        actions += withdraw(state, "the response was broken off")
    marks = () if mark is None else (hidden_message(state, "interruption", mark),)
    state, joined = _join_queued(state, *marks)
    return state, (*actions, *joined)
