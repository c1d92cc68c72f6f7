"""What the loop needs from outside, injected so that tests and embedding programs can replace it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeAlias

import attrs

from atrio.runtime.messages import Message
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
    A history made ready for a request: the history itself, what the model is to see of it (None: all), and how much
    of it could be collapsed if there were no room.
    """

    messages: tuple[Message, ...]
    view: tuple[Message, ...] | None = None
    staged_collapses: int = 0


async def _as_it_is(messages: tuple[Message, ...]) -> Prepared:
    return Prepared(messages=messages)


@attrs.frozen(kw_only=True)
class Dependencies:
    """
    Args:
        prepare: the context pipeline, run before each model request. It may raise `ContextExhausted`.
        autocompact: called when the model refuses a history as too long; None: then the run ends.
        new_id: makes session, run and message ids (UUIDs).
        now: the wall clock, for time stamps and dates.
        jitter: numbers in [0, 1) that spread retries.
    """

    prepare: Callable[[tuple[Message, ...]], Awaitable[Prepared]] = _as_it_is
    autocompact: CompactHistory | None = None
    new_id: Callable[[], str] = _new_id
    now: Callable[[], datetime] = _now
    jitter: Callable[[], float] = random.random
