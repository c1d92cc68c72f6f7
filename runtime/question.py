"""A question of the model to the person behind the session, and how an embedding program answers it. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import attrs

__all__ = ["AskHandler", "Option", "Question"]


@attrs.frozen(kw_only=True)
class Option:
    """One answer that is offered: a few words, and what choosing it means."""

    label: str
    description: str = ""


@attrs.frozen(kw_only=True)
class Question:
    """
    What is asked. The answer may be one of the options (several with ``multi_select``) or any other text.

    ``deadline`` is how many seconds the model waits for it.
    """

    session_id: str
    call_id: str
    text: str
    header: str = ""
    options: tuple[Option, ...] = ()
    multi_select: bool = False
    deadline: float


AskHandler: TypeAlias = Callable[[Question], Awaitable[str | tuple[str, ...] | None]]
"""
Puts a question to somebody and returns what they say: a text, the chosen labels, or None for no answer.

It is cancelled at the question's deadline and when the run is aborted.
"""
