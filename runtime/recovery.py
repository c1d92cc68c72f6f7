"""
The ladders for a request that failed before anything in it was complete: from light to heavy, each rung once.

An error that can be recovered from is *withheld*: nobody hears of it until the ladder has no rung left. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from .actions import Action, Compact, Publish, Transition, Write
from .events import ContextCompacted, ModelChanged, Notice
from .messages import Message
from .model import FailureKind, ModelFailure
from .observations import Compacted, CompactFailed, CompactLevel
from .rerecord import rerecord
from .result import TerminalReason
from .state import ContinueReason, LoopState, Phase, Turn, changed
from .steps import ask_model, finish, go_on, withdraw

__all__ = ["compact_failed", "compacted", "recover", "replace_history", "surface"]

TOO_LONG = frozenset((FailureKind.PROMPT_TOO_LONG, FailureKind.CONTEXT_OVERFLOW, FailureKind.REQUEST_TOO_LARGE))

FALLS_BACK = frozenset((FailureKind.OVERLOADED, FailureKind.SERVER_ERROR, FailureKind.NOT_FOUND))
"""Another model may do where this one is overloaded, broken or gone; it can't help with keys, bills or sizes."""

# Failures that no API reported: the model call itself went wrong.
_NOT_API = frozenset((FailureKind.UNKNOWN, FailureKind.ACTOR_CRASHED, FailureKind.MALFORMED))

SMALLEST_OUTPUT_TOKENS = 3_000
OUTPUT_MARGIN_TOKENS = 1_000


def recover(state: LoopState, failure: ModelFailure) -> Transition:
    """The next rung for this failure, or the end of the run with it."""
    withdrawn = withdraw(state, failure.message)
    if failure.kind is FailureKind.CONTEXT_OVERFLOW:
        cap = _shrunk_cap(state, failure)
        if cap is not None:
            return _ask_again(changed(state, max_output_tokens_override=cap), *withdrawn)
    if failure.kind in TOO_LONG:
        return _make_room(state, failure).prefixed(*withdrawn)
    if failure.kind is FailureKind.MEDIA and not state.has_attempted_reactive_compact:
        return _compact(state, failure, "reactive").prefixed(*withdrawn)
    if failure.kind in FALLS_BACK and state.fallbacks:
        return _fall_back(state, failure).prefixed(*withdrawn)
    return surface(state, failure).prefixed(*withdrawn)


def surface(state: LoopState, failure: ModelFailure) -> Transition:
    """No rung is left: the withheld error ends the run."""
    if failure.kind in TOO_LONG:
        reason = TerminalReason.PROMPT_TOO_LONG
    elif failure.kind is FailureKind.MEDIA:
        reason = TerminalReason.IMAGE_ERROR
    elif failure.kind in _NOT_API:
        reason = TerminalReason.MODEL_ERROR
    else:
        reason = TerminalReason.API_ERROR
    return finish(state, reason, errors=(failure.message,), failure=failure)


def _shrunk_cap(state: LoopState, failure: ModelFailure) -> int | None:
    """An output cap that fits beside the input, if there is one below the present cap."""
    if failure.window is None or failure.input_tokens is None:
        return None
    cap = max(SMALLEST_OUTPUT_TOKENS, failure.window - failure.input_tokens - OUTPUT_MARGIN_TOKENS)
    fits = failure.input_tokens + cap <= failure.window
    return cap if fits and cap < state.output_tokens else None


def _ask_again(state: LoopState, *actions: Action) -> Transition:
    """The same request, once more, under a new number."""
    again = changed(state, turn=Turn(request=state.turn.request + 1, crashes=state.turn.crashes))
    return Transition(again, (*actions, *ask_model(again)))


def _make_room(state: LoopState, failure: ModelFailure) -> Transition:
    if state.staged_collapses and state.transition is not ContinueReason.COLLAPSE_DRAIN_RETRY:
        return _compact(state, failure, "drain")
    if not state.has_attempted_reactive_compact:
        return _compact(state, failure, "reactive")
    return surface(state, failure)


def _compact(state: LoopState, failure: ModelFailure, level: CompactLevel) -> Transition:
    waiting = changed(state, phase=Phase.RECOVER, withheld=failure)
    return Transition(waiting, (Compact(level=level, failure=failure),))


def compacted(state: LoopState, observation: Compacted) -> Transition:
    """Room was made: transitions collapse_drain_retry and reactive_compact_retry."""
    told: tuple[Action, ...] = ()
    messages = observation.messages
    if messages != state.messages:
        state, told = replace_history(
            state,
            messages,
            trigger=observation.level,
            pre_tokens=observation.pre_tokens,
            post_tokens=observation.post_tokens,
        )
    if observation.level == "drain":
        return go_on(
            changed(
                state,
                staged_collapses=0,
                withheld=None,
                transition=ContinueReason.COLLAPSE_DRAIN_RETRY,
            ),
            *told,
        )
    return go_on(
        changed(
            state,
            has_attempted_reactive_compact=True,
            withheld=None,
            transition=ContinueReason.REACTIVE_COMPACT_RETRY,
        ),
        *told,
    )


def replace_history(
    state: LoopState, messages: Sequence[Message], *, trigger: str, pre_tokens: int | None, post_tokens: int | None
) -> tuple[LoopState, tuple[Action, ...]]:
    """The state with another history, as a compaction left it; recorded whole, and told."""
    before = pre_tokens if pre_tokens is not None else state.context_tokens
    kept, records = rerecord(
        messages,
        run_id=state.run_id,
        number=state.turn.request,
        data={"trigger": trigger, "preTokens": before},
        used={message.uuid for message in state.messages},
    )
    event = ContextCompacted(uuid=kept[0].uuid, trigger=trigger, pre_tokens=before, post_tokens=post_tokens)
    state = changed(
        state,
        messages=kept,
        compaction=attrs.evolve(state.compaction, last_turn=state.turn_count, failures=0),
        task_budget_remaining=remaining_task_budget(state),
    )
    return state, (Write(records), Publish(event))


def remaining_task_budget(state: LoopState) -> int | None:
    """
    What a compaction leaves of the task budget. Until then the server counts for itself; from then on it can't know
    what the replaced history had cost.
    """
    before = state.task_budget_remaining if state.task_budget_remaining is not None else state.limits.task_budget
    return None if before is None else max(0, before - state.context_tokens)


def compact_failed(state: LoopState, observation: CompactFailed) -> Transition:
    """The rung gave nothing: the next one, or the end."""
    failure = state.withheld
    assert failure is not None
    note = Publish(Notice(level="warning", source="compaction", text=observation.error))
    if observation.level == "drain":
        return _make_room(changed(state, staged_collapses=0), failure).prefixed(note)
    failed = changed(
        state,
        has_attempted_reactive_compact=True,
        withheld=None,
        compaction=attrs.evolve(state.compaction, failures=state.compaction.failures + 1),
    )
    return surface(failed, failure).prefixed(note)


def _fall_back(state: LoopState, failure: ModelFailure) -> Transition:
    """Transition model_fallback_retry: the next model of the chain, for this submission only."""
    old, new = state.model, state.fallbacks[0]
    told = Publish(ModelChanged(old=old, new=new, reason=failure.message))
    return _ask_again(
        changed(state, model=new, fallbacks=state.fallbacks[1:], transition=ContinueReason.MODEL_FALLBACK_RETRY),
        told,
    )
