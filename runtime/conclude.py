"""
How a response is concluded: recover, run on, or end. Pure; each transition is made at one site here.

The order is that of the reference (phases 4 to 7): calls first; without calls, output-limit recovery, then
what was queued meanwhile, then the end.
"""

from __future__ import annotations

from . import notes
from .actions import Action, Publish, StopModel, Transition
from .backoff import Position
from .ending import complete, structured_output_exhausted, wrap_up
from .events import Notice
from .model import ModelFailure
from .progress import fingerprint
from .result import TerminalReason
from .state import (
    STRUCTURED_OUTPUT,
    Call,
    ContinueReason,
    LoopState,
    Phase,
    assistant_message,
    changed,
    results_message,
)
from .steps import (
    add_hidden,
    finish,
    go_on,
    join_queued,
    next_turn,
    queue_hidden,
    response_end,
    with_response,
    withdraw,
)

__all__ = ["after_tools", "break_in", "conclude_response"]

OUTPUT_LIMIT = frozenset(("max_tokens", "model_context_window_exceeded"))


def conclude_response(state: LoopState, failure: ModelFailure | None = None) -> Transition:
    """
    The response is over: complete, or broken off (``failure``) after something in it was complete.

    What was complete is kept either way; calls that had completed run and the loop goes on.
    """
    turn = state.turn
    ended = (response_end(state, incomplete=failure is not None),)
    if turn.open_calls:
        return Transition(changed(state, phase=Phase.TOOLS), ended)
    if turn.calls:
        return after_tools(state).prefixed(*ended)
    if failure is not None:
        return _resume_cut(with_response(state), failure).prefixed(*ended)
    state = changed(state, cut_recoveries=0)
    if turn.stop_reason in OUTPUT_LIMIT:
        return _output_limit(state, ended)
    if turn.stop_reason == "pause_turn" and state.pauses < state.limits.max_pauses:
        kept = changed(with_response(state), pauses=state.pauses + 1)
        return next_turn(kept).prefixed(*ended)
    return wrap_up(with_response(state)).prefixed(*ended)


def break_in(state: LoopState) -> Transition:
    """
    A message that is not to wait breaks the response off. What was complete is kept; calls that had begun come to
    their end first.
    """
    turn = state.turn
    stop = StopModel(request=turn.request)
    if turn.position < Position.COMMITTED:
        void = withdraw(state, "the user broke in")
        state, joined = join_queued(state)
        return go_on(changed(state, transition=ContinueReason.NEXT_TURN), stop, *void, *joined)
    ended = (stop, response_end(state, incomplete=True))
    if turn.open_calls:
        return Transition(changed(state, phase=Phase.TOOLS), ended)
    if turn.calls:
        return after_tools(state).prefixed(*ended)
    return next_turn(with_response(state)).prefixed(*ended)


def after_tools(state: LoopState) -> Transition:
    """Every call of the turn has its result: they join the history together with the response."""
    turn = state.turn
    messages = (*state.messages, assistant_message(state, turn.blocks), results_message(state))
    state = changed(
        state,
        messages=messages,
        pauses=0,
        cut_recoveries=0,
        max_output_tokens_recovery_count=0,
        max_output_tokens_override=None,
        has_attempted_reactive_compact=False,
        malformed_count=state.malformed_count + 1 if all(_is_malformed(call) for call in turn.calls) else 0,
        circles=state.circles.after(fingerprint((call.block, call.result) for call in turn.calls)),
    )
    if any(block.type == "tool_use" for block in turn.incomplete):
        state = queue_hidden(state, "recovery", notes.cut_calls(turn.incomplete), "cut")
    return _stop_after_tools(state) or _point_out_circles(state)


def _is_malformed(call: Call) -> bool:
    return call.block.invalid_json is not None


def _stop_after_tools(state: LoopState) -> Transition | None:
    """The ends that a turn with tool calls can come to, apart from its number."""
    limits = state.limits
    stop = next((call.stop_loop for call in state.turn.calls if call.stop_loop is not None), None)
    if stop is not None:
        note = Publish(Notice(level="info", source="hook", text=stop))
        return finish(state, TerminalReason.HOOK_STOPPED).prefixed(note)
    if any(call.deferred for call in state.turn.calls):
        return finish(state, TerminalReason.TOOL_DEFERRED)
    answers = [call for call in state.turn.calls if limits.wants_structured_output and _is_answer(call)]
    if any(call.result is not None and not call.result.is_error for call in answers):
        return complete(state)
    if answers and state.structured_output_retries >= limits.max_structured_output_retries:
        return structured_output_exhausted(state)
    if state.malformed_count > limits.max_malformed:
        error = f"the model's tool calls were no valid JSON in {state.malformed_count} responses in a row"
        return finish(state, TerminalReason.MALFORMED_TOOL_USE_EXHAUSTED, errors=(error,))
    end = limits.no_progress_end
    if end is not None and state.circles.repeats >= end:
        error = f"no progress: the same calls gave the same results {state.circles.repeats + 1} times in a row"
        return finish(state, TerminalReason.MODEL_ERROR, errors=(error,))
    return None


def _is_answer(call: Call) -> bool:
    return call.block.name == STRUCTURED_OUTPUT


def _point_out_circles(state: LoopState) -> Transition:
    """The next turn; with a word to the model if it goes in circles, or if its answer didn't fit the schema."""
    limits = state.limits
    if limits.wants_structured_output and any(map(_is_answer, state.turn.calls)):
        state = changed(state, structured_output_retries=state.structured_output_retries + 1)
    if state.circles.repeats == limits.no_progress_note:
        state = queue_hidden(state, "recovery", notes.no_progress(state.circles.repeats + 1), "circles")
    return next_turn(state)


def _resume_cut(state: LoopState, failure: ModelFailure) -> Transition:
    """The connection broke after a text was complete: nothing is repeated, the model goes on from there."""
    count = state.cut_recoveries + 1
    if not failure.retryable or count > state.limits.max_cut_recoveries:
        return finish(state, TerminalReason.API_ERROR, errors=(failure.message,), failure=failure)
    state = queue_hidden(state, "recovery", notes.RESUME_CUT, "cut", count)
    return next_turn(changed(state, cut_recoveries=count))


def _output_limit(state: LoopState, ended: tuple[Action, ...]) -> Transition:
    """The response was cut by the output limit before any call was complete: raise it once, then resume."""
    limits = state.limits
    if state.max_output_tokens_override is None and limits.max_output_tokens is None:
        return _escalate(state)
    if state.max_output_tokens_recovery_count < limits.max_output_recoveries:
        return _resume_output(state, ended)
    error = f"the response was cut off by the output limit, also after {limits.max_output_recoveries} continuations"
    return finish(with_response(state), TerminalReason.API_ERROR, errors=(error,)).prefixed(*ended)


def _escalate(state: LoopState) -> Transition:
    """Transition max_output_tokens_escalate: the same request with a higher cap; the cut response is void."""
    reason = "cut off by the output limit; asked again with a higher one"
    return go_on(
        changed(
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
    kept, told = add_hidden(with_response(state), "recovery", text, count)
    return go_on(
        changed(
            kept,
            max_output_tokens_recovery_count=count,
            transition=ContinueReason.MAX_OUTPUT_TOKENS_RECOVERY,
        ),
        *ended,
        *told,
    )
