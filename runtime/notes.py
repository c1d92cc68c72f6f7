"""The sentences that atrio puts into a conversation in its own name. The model reads them."""

from __future__ import annotations

from collections.abc import Sequence

from .model import IncompleteBlock

__all__ = [
    "INTERRUPTED",
    "INTERRUPTED_CALL",
    "NOT_RUN",
    "RESUMED",
    "RESUME_CUT",
    "RESUME_OUTPUT",
    "STRUCTURED_OUTPUT_MISSING",
    "TIME_IS_UP",
    "TOO_MANY_CALLS",
    "cut_calls",
    "lost_part",
    "no_progress",
    "outcome_unknown",
    "sibling_failed",
    "stop_hook_feedback",
    "token_target",
]

INTERRUPTED = "[The user interrupted the request here.]"
INTERRUPTED_CALL = "The call was interrupted before it finished. It may have had effects; check before you repeat it."
TIME_IS_UP = "[The time that was set for this task is used up; the run ended here.]"
TOO_MANY_CALLS = "Not run: the response asked for more tool calls than one response may hold. Ask for it again."
STRUCTURED_OUTPUT_MISSING = (
    "Give your final answer by calling the StructuredOutput tool with input that fits its schema; a text alone does "
    "not count."
)
NOT_RUN = (
    "Not run: the process ended before this call began, so it had no effect. Ask for it again if you still want it."
)
RESUMED = (
    "[Work on this task was broken off before it was done, and the session has now been resumed. Time has passed: "
    "look again at what you rely on. Go on with the task from where it stands.]"
)
RESUME_CUT = (
    "The connection broke while you were writing; what is above arrived, the rest is lost. Go on from there: no "
    "apology, no summary of what was already written."
)
RESUME_OUTPUT = (
    "Your last response was cut off by the output limit. Go on exactly where it stopped: no apology, no summary "
    "of what was already written. If much is left, do it in smaller steps."
)


def cut_calls(incomplete: Sequence[IncompleteBlock]) -> str:
    """Tells the model which of its calls were cut by the output limit and so never ran."""
    names = ", ".join(block.name or "a tool" for block in incomplete if block.type == "tool_use")
    return (
        f"Your response hit the output limit inside the call of {names}: that call was not run. "
        "Make it again with less text in it, for instance in several smaller calls."
    )


def lost_part(name: str) -> str:
    """The result of a call whose outcome was lost with a part of the runtime."""
    return f"The {name} failed while this call ran; its outcome is unknown. Check before you repeat it."


def outcome_unknown(name: str) -> str:
    """The result of a call that was running when the process ended."""
    return (
        f"The process ended while this {name} call was running; its outcome is unknown. It may have had all, some or "
        "none of its effects: check before you repeat it."
    )


def sibling_failed(name: str) -> str:
    """The result of a call that was not run, or was cancelled, because an earlier one of the same response failed."""
    return (
        f"Cancelled: the {name} call before it in the same response failed, and this call may have depended on it. "
        "Nothing is wrong with this call itself; ask for it again if you still want it."
    )


def no_progress(times: int) -> str:
    """Tells the model that it goes in circles."""
    return (
        f"The same calls have now given the same results {times} times in a row. Repeating them will not change that: "
        "look at what the results say, try something else, or say what stands in the way and stop."
    )


def stop_hook_feedback(reasons: Sequence[str]) -> str:
    """Tells the model why it may not stop yet."""
    return "A check that runs before you may stop says that the work isn't done:\n" + "\n".join(reasons)


def token_target(spent: int, target: int) -> str:
    """Tells the model that more work is wanted."""
    return (
        f"You have used {spent:,} of the {target:,} output tokens that were set as the target for this task "
        f"({spent * 100 // target} %). Go on working: deepen, check and extend what you have. Don't summarise yet."
    )
