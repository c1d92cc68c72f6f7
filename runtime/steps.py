"""
The steps that the arms of the machine are made of: join, withdraw, settle, go on, finish. Pure.
"""

from __future__ import annotations

import attrs

from .actions import Action, CallModel, Finish, Prepare, Publish, Transition, Write
from .backoff import Position
from .events import MessageWithdrawn, RequestStarted, ToolEnded, TurnEnded, UserMessageAdded
from .messages import TextBlock, ToolResultBlock, UserMessage, UserOrigin
from .model import ModelFailure
from .records import ResponseEndRecord, ResultRecord, UserRecord, WithdrawRecord
from .result import ResultSubtype, TerminalReason
from .state import (
    ContinueReason,
    LoopState,
    Phase,
    assistant_message,
    block_id,
    changed,
    derive_id,
    result_id,
    results_message,
)

__all__ = [
    "add_hidden",
    "ask_model",
    "finish",
    "go_on",
    "hidden_message",
    "join_queued",
    "next_turn",
    "queue_hidden",
    "response_end",
    "settle",
    "with_response",
    "withdraw",
]


def response_end(state: LoopState, *, incomplete: bool) -> Action:
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


def with_response(state: LoopState) -> LoopState:
    """The state with the response in its history (an empty one is no message)."""
    if not state.turn.blocks:
        return state
    return changed(state, messages=(*state.messages, assistant_message(state, state.turn.blocks)))


def next_turn(state: LoopState) -> Transition:
    """Transition next_turn: queued messages join, the turn limit is tested."""
    state, actions = join_queued(state)
    limit = state.limits.max_turns
    if limit is not None and state.turn_count + 1 > limit:
        error = f"the limit of {limit} turns is reached"
        return finish(state, TerminalReason.MAX_TURNS, errors=(error,)).prefixed(*actions)
    following = changed(state, turn_count=state.turn_count + 1, transition=ContinueReason.NEXT_TURN)
    return go_on(following, *actions, turn=state.turn_count)


def ask_model(state: LoopState) -> tuple[Action, ...]:
    """Send the request that the state describes."""
    started = RequestStarted(turn=state.turn_count, attempt=state.turn.crashes + 1, model=state.model)
    call = CallModel(
        request=state.turn.request,
        model=state.model,
        max_tokens=state.output_tokens,
        has_fallback=bool(state.fallbacks),
        task_budget_remaining=state.task_budget_remaining,
    )
    return Publish(started), call


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


def queue_hidden(state: LoopState, origin: UserOrigin, text: str, *parts: object) -> LoopState:
    """The state with a message in atrio's own name, which joins before anything else that waits."""
    message = hidden_message(state, origin, text, *parts)
    return changed(state, queued=(message, *state.queued))


def add_hidden(state: LoopState, origin: UserOrigin, text: str, *parts: object) -> tuple[LoopState, tuple[Action, ...]]:
    """The state with such a message at the end of its history, and what makes it known."""
    message = hidden_message(state, origin, text, *parts)
    known = (Write((UserRecord(message=message),)), Publish(UserMessageAdded(message=message)))
    return changed(state, messages=(*state.messages, message)), known


def go_on(state: LoopState, *actions: Action, turn: int | None = None) -> Transition:
    assert state.transition is not None
    ended = TurnEnded(turn=turn if turn is not None else state.turn_count, transition=state.transition.value)
    return Transition(changed(state, phase=Phase.PREPARE), (*actions, Publish(ended), Prepare()))


def finish(
    state: LoopState,
    reason: TerminalReason,
    *,
    errors: tuple[str, ...] = (),
    failure: ModelFailure | None = None,
    subtype: ResultSubtype | None = None,
) -> Transition:
    """The end of the run. Messages that still wait join the history, so that none is lost."""
    state, joined = join_queued(state, *state.later)
    state = changed(state, later=())
    ended = changed(state, phase=Phase.TERMINAL, terminal=reason)
    return Transition(ended, (*joined, Finish(reason=reason, errors=errors, failure=failure, subtype=subtype)))


def join_queued(state: LoopState, *more: UserMessage) -> tuple[LoopState, tuple[Action, ...]]:
    """The state with the messages that wait, and ``more``, in its history, and what makes them known."""
    actions: list[Action] = []
    messages = (*state.queued, *more)
    for message in messages:
        actions += (Write((UserRecord(message=message),)), Publish(UserMessageAdded(message=message)))
    return changed(state, messages=(*state.messages, *messages), queued=(), urgent=False), tuple(actions)


def settle(state: LoopState, text: str, *, mark: str | None) -> tuple[LoopState, tuple[Action, ...]]:
    """
    End the turn where it stands, leaving a valid history: what was complete is kept, each open call gets a
    synthetic error result, and ``mark`` (if any) tells the model that the user broke in.
    """
    actions: list[Action] = []
    turn = state.turn
    in_response = state.phase in (Phase.STREAM, Phase.TOOLS)
    if state.phase is Phase.STREAM and turn.position >= Position.COMMITTED:
        actions.append(response_end(state, incomplete=True))
    if in_response and turn.calls:
        for call in turn.open_calls:
            block = ToolResultBlock(call.block.id, text, is_error=True)
            uuid = result_id(state, call.block.id)
            actions += (
                Write((ResultRecord(uuid=uuid, block=block, name=call.block.name, details=None),)),
                Publish(ToolEnded(uuid=uuid, call_id=call.block.id, name=call.block.name, result=block, duration=0.0)),
            )
            turn = changed(
                turn,
                calls=tuple(attrs.evolve(c, result=block) if c is call else c for c in turn.calls),
            )
        state = changed(state, turn=turn)
        messages = (*state.messages, assistant_message(state, turn.blocks), results_message(state))
        state = changed(state, messages=messages)
    elif in_response and turn.position >= Position.COMMITTED:
        state = with_response(state)
    elif in_response:
        actions += withdraw(state, "the response was broken off")
    marks = () if mark is None else (hidden_message(state, "interruption", mark),)
    state, joined = join_queued(state, *marks)
    return state, (*actions, *joined)
