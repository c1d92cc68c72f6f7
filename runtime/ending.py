"""
The model has answered without asking for a tool: is the run over? Pure.

In this order: what was queued meanwhile, the output that a schema demands, stop hooks, the token target. Each may
send the loop round again, and each is counted.
"""

from __future__ import annotations

from . import notes
from .actions import Publish, RunStopHooks, Transition
from .events import Notice
from .observations import StopHooksEnded
from .result import TerminalReason
from .state import ContinueReason, LoopState, Phase, TokenTarget, changed
from .steps import add_hidden, finish, go_on, next_turn, queue_hidden

__all__ = ["complete", "hooks_ended", "structured_output_exhausted", "wrap_up"]

TARGET_REACHED = 0.9
"""Share of a token target at which the work counts as done."""

DIMINISHING_AFTER = 3
DIMINISHING_TOKENS = 500
"""After three continuations, two in a row with less new output than this say that nothing more will come."""


def wrap_up(state: LoopState) -> Transition:
    """The response joined the history; go on, or end."""
    if state.queued:
        return next_turn(state)
    if state.limits.wants_structured_output:
        return _demand_structured_output(state)
    if state.limits.has_stop_hooks:
        waiting = changed(state, phase=Phase.HOOKS)
        return Transition(waiting, (RunStopHooks(active=state.stop_hook_active),))
    return _after_hooks(state)


def complete(state: LoopState) -> Transition:
    """The work is done: the run ends, unless somebody has said more meanwhile."""
    if not state.queued and not state.later:
        return finish(state, TerminalReason.COMPLETED)
    # To stop hooks, what follows is a new piece of work.
    return next_turn(
        changed(state, queued=(*state.queued, *state.later), later=(), stop_hook_active=False, stop_hook_blocks=0)
    )


def _demand_structured_output(state: LoopState) -> Transition:
    """The schema's answer comes as a call, which ends the run; text alone is not it."""
    if state.structured_output_retries >= state.limits.max_structured_output_retries:
        return structured_output_exhausted(state)
    count = state.structured_output_retries + 1
    state = queue_hidden(state, "recovery", notes.STRUCTURED_OUTPUT_MISSING, "schema", count)
    return next_turn(changed(state, structured_output_retries=count))


def structured_output_exhausted(state: LoopState) -> Transition:
    error = f"no answer that fits the schema came, also after {state.structured_output_retries} retries"
    return finish(state, TerminalReason.STRUCTURED_OUTPUT_RETRY_EXHAUSTED, errors=(error,))


def hooks_ended(state: LoopState, observation: StopHooksEnded) -> Transition:
    """What the stop hooks say: prevention beats blocking, and blocking has a cap."""
    if observation.prevent is not None:
        note = Publish(Notice(level="info", source="stop hook", text=observation.prevent))
        return finish(state, TerminalReason.STOP_HOOK_PREVENTED).prefixed(note)
    if not observation.blocking:
        return _after_hooks(state)
    cap = state.limits.stop_hook_cap
    if cap and state.stop_hook_blocks >= cap:
        text = f"a stop hook blocked the end {cap} times in a row; it is overridden"
        return _after_hooks(state).prefixed(Publish(Notice(level="warning", source="stop hook", text=text)))
    return _block(state, observation)


def _block(state: LoopState, observation: StopHooksEnded) -> Transition:
    """Transition stop_hook_blocking: the hooks' reasons go to the model."""
    blocks = state.stop_hook_blocks + 1
    text = notes.stop_hook_feedback(observation.blocking)
    state, told = add_hidden(state, "hook", text, blocks)
    return go_on(
        changed(
            state,
            stop_hook_active=True,
            stop_hook_blocks=blocks,
            transition=ContinueReason.STOP_HOOK_BLOCKING,
        ),
        *told,
    )


def _after_hooks(state: LoopState) -> Transition:
    target = state.limits.token_target
    if target is None or state.queued:
        return complete(state)
    tracker = state.token_target
    delta = state.output_spent - tracker.last_total
    reached = state.output_spent >= TARGET_REACHED * target
    diminishing = (
        tracker.continuations >= DIMINISHING_AFTER
        and delta < DIMINISHING_TOKENS
        and tracker.last_delta < DIMINISHING_TOKENS
    )
    if reached or diminishing:
        text = f"{state.output_spent:,} of {target:,} tokens" + ("; little more came" if diminishing else "")
        note = Publish(Notice(level="info", source="token target", text=text))
        return complete(state).prefixed(note)
    count = tracker.continuations + 1
    state, told = add_hidden(state, "recovery", notes.token_target(state.output_spent, target), "target", count)
    return go_on(
        changed(
            state,
            token_target=TokenTarget(continuations=count, last_delta=delta, last_total=state.output_spent),
            transition=ContinueReason.TOKEN_BUDGET_CONTINUATION,
        ),
        *told,
    )
