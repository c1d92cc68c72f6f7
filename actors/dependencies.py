"""What the loop needs from outside, injected so that tests and embedding programs can replace it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import attrs

from atrio.runtime.messages import Message

__all__ = ["Dependencies"]


async def _as_it_is(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return messages


def _new_id() -> str:
    return str(uuid.uuid4())


def _now() -> datetime:
    return datetime.now(UTC)


@attrs.frozen(kw_only=True)
class Dependencies:
    """
    Args:
        prepare: the context pipeline, run before each model request.
        new_id: makes session, run and message ids (UUIDs).
        now: the wall clock, for time stamps and dates.
        jitter: numbers in [0, 1) that spread retries.
    """

    prepare: Callable[[tuple[Message, ...]], Awaitable[tuple[Message, ...]]] = _as_it_is
    new_id: Callable[[], str] = _new_id
    now: Callable[[], datetime] = _now
    jitter: Callable[[], float] = random.random
