"""
Which queued tool calls may start now: a reader/writer rule over a queue in call order. Pure.

A call starts when nothing runs, or when it and everything that runs is concurrency-safe. The walk stops at
the first queued call that may not start, so nothing overtakes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

__all__ = ["CallState", "admit"]


class CallState(Enum):
    """The life of one call. ``yielded``: its result was handed on, in call order."""

    QUEUED = "queued"
    EXECUTING = "executing"
    COMPLETED = "completed"
    YIELDED = "yielded"


def admit(calls: Iterable[tuple[CallState, bool]], *, limit: int) -> list[int]:
    """
    The positions of the calls that start now.

    Args:
        calls: (state, concurrency-safe) of every call, in call order.
        limit: how many may run at once.
    """
    running = 0
    all_safe = True
    queued: list[tuple[int, bool]] = []
    for position, (state, safe) in enumerate(calls):
        if state is CallState.EXECUTING:
            running += 1
            all_safe = all_safe and safe
        elif state is CallState.QUEUED:
            queued.append((position, safe))
    started: list[int] = []
    for position, safe in queued:
        if running >= limit or (running and not (safe and all_safe)):
            break
        started.append(position)
        running += 1
        all_safe = all_safe and safe
    return started
