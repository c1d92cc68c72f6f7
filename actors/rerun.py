"""
Calls that a crash had cut short are made again, if their tools say that this does no harm.

Only on resume, before anything else happens in the session. Each goes the way of every call, with its permission and
its record; one that fails to answer in time keeps the result that says its outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from atrio.runtime.mailbox import Address, Inbox, open_mailbox
from atrio.runtime.messages import ToolUseBlock
from atrio.runtime.records import ResultRecord

from .call import CallPipeline
from .protocol import LoopInput

__all__ = ["rerun_calls"]

RERUN_LIMIT = 30.0
"""Seconds for all of them together. They read or look up; what takes longer is for the model to ask for again."""


async def rerun_calls(
    calls: Sequence[ToolUseBlock], pipeline: Callable[[Address[LoopInput]], CallPipeline]
) -> dict[str, ResultRecord]:
    """
    The results by call id, of those that answered. ``pipeline`` makes the calls' way, given whom to report to.

    Cancelled: calls that had ended are recorded as begun, and nothing more; a later resume makes them again.
    """
    answers: dict[str, ResultRecord] = {}
    listener: Address[LoopInput]
    inbox: Inbox[LoopInput]
    listener, inbox = open_mailbox(len(calls) + 1, name="resumed calls")
    with listener, inbox, trio.move_on_after(RERUN_LIMIT):
        way = pipeline(listener)
        for call in calls:
            performed = await way.perform(way.prepare(call), lambda _text, data=None: None)
            done = performed.done
            answers[call.id] = ResultRecord(uuid=call.id, block=done.result, name=call.name, details=done.details)
    return answers
