"""Checks that tests make of what a session leaves behind."""

from __future__ import annotations

from collections.abc import Sequence

from atrio.runtime.history import check
from atrio.runtime.messages import Message

__all__ = ["check_history"]


def check_history(messages: Sequence[Message]) -> None:
    """
    The history is one that the API would take: pairing, order, nothing empty.

    Raises AssertionError that lists everything wrong.
    """
    problems = check(messages)
    if problems:
        raise AssertionError("the history is not valid:\n" + "\n".join(f"- {problem}" for problem in problems))
