"""What the loop needs from outside, injected so that tests and embedding programs can replace it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeAlias

import attrs

from atrio.runtime.messages import Message, Usage, UserMessage
from atrio.runtime.model import ModelFailure
from atrio.runtime.observations import CompactLevel

__all__ = ["CompactHistory", "Dependencies", "Prepared"]


CompactHistory: TypeAlias = Callable[[tuple[Message, ...], CompactLevel, ModelFailure], Awaitable[tuple[Message, ...]]]
"""
Makes room in a history that the model refused, and returns what takes its place: a valid history whose last message
is the user's. An exception says that no room could be made.
"""


def _new_id() -> str:
    return str(uuid.uuid4())


def _now() -> datetime:
    return datetime.now(UTC)


@attrs.frozen(kw_only=True)
class Prepared:
    """
    A history made ready for a request.

    Args:
        messages: the history; another one than before if it was compacted.
        view: what the model is to see of it (None: all).
        staged_collapses: how much of it could be collapsed if there were no room.
        compacted: why the history is another one, if it is.
        post_tokens: how large it is then.
        attachments: messages to join it now.
        notices: what a person should know.
        side_usage: responses that were paid for on the way (message id, model, usage).
    """

    messages: tuple[Message, ...]
    view: tuple[Message, ...] | None = None
    staged_collapses: int = 0
    compacted: str | None = None
    pre_tokens: int | None = None
    post_tokens: int | None = None
    attachments: tuple[UserMessage, ...] = ()
    notices: tuple[str, ...] = ()
    side_usage: tuple[tuple[str, str, Usage], ...] = ()


@attrs.frozen(kw_only=True)
class Dependencies:
    """
    Args:
        prepare: takes the place of the context pipeline, which runs before each model request. It may raise
            `ContextExhausted`.
        autocompact: takes the place of atrio's own compaction when the model refuses a history as too long.
        new_id: makes session, run and message ids (UUIDs).
        now: the wall clock, for time stamps and dates.
        jitter: numbers in [0, 1) that spread retries.
    """

    prepare: Callable[[tuple[Message, ...]], Awaitable[Prepared]] | None = None
    autocompact: CompactHistory | None = None
    new_id: Callable[[], str] = _new_id
    now: Callable[[], datetime] = _now
    jitter: Callable[[], float] = random.random
