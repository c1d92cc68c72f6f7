"""
When a failed model attempt is sent again: pure decisions, jitter and time passed in.

The rules by position in the stream are those of the reference (3.5): nothing is repeated once a text or
tool block has completed, because a tool may already have run.
"""

from __future__ import annotations

from enum import IntEnum

import attrs

from .model import FailureKind, ModelFailure

__all__ = ["Attempts", "Position", "Retry", "RetryPolicy", "plan_retry"]


class Position(IntEnum):
    """How far the response had come when it failed."""

    NOTHING = 0
    """No block was complete (some text may have begun)."""
    THINKING = 1
    """Only thinking blocks were complete."""
    COMMITTED = 2
    """A text or tool block was complete."""
    FINISHED = 3
    """The message itself was complete."""


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """Times are seconds."""

    max_retries: int = 10
    base: float = 0.5
    cap: float = 32.0
    jitter: float = 0.25
    """Up to this share is added, so that clients that failed together don't return together."""
    max_thinking_retries: int = 2
    max_stall_retries: int = 1
    max_unreached_retries: int = 2
    """For an endpoint that has never answered: a wrong address shows at once, not after minutes."""
    longest_wait: float = 300.0
    """A server that asks for more than this ends the attempt with its own words, unless ``unattended``."""


@attrs.frozen(kw_only=True)
class Attempts:
    """What has been tried for this request so far."""

    retries: int = 0
    stall_retries: int = 0
    thinking_retries: int = 0

    def after(self, retry: Retry) -> Attempts:
        match retry.counted_as:
            case "stall":
                return attrs.evolve(self, stall_retries=self.stall_retries + 1)
            case "thinking":
                return attrs.evolve(self, thinking_retries=self.thinking_retries + 1)
            case _:
                return attrs.evolve(self, retries=self.retries + 1)

    @property
    def total(self) -> int:
        return self.retries + self.stall_retries + self.thinking_retries


@attrs.frozen(kw_only=True)
class Retry:
    """Send again after ``delay`` seconds; this is retry number ``number`` of at most ``limit``."""

    delay: float
    number: int
    limit: int
    counted_as: str = "plain"


def plan_retry(
    policy: RetryPolicy,
    failure: ModelFailure,
    position: Position,
    attempts: Attempts,
    *,
    jitter: float,
    reached: bool,
) -> Retry | None:
    """
    Whether and when to send again; None: the failure stands.

    Args:
        jitter: a number in [0, 1), drawn by the caller.
        reached: the endpoint has answered anything before in this process.
    """
    if position >= Position.COMMITTED or not failure.retryable:
        return None
    if failure.kind is FailureKind.STALLED:
        if attempts.stall_retries >= policy.max_stall_retries:
            return None
        return Retry(delay=0.0, number=attempts.stall_retries + 1, limit=policy.max_stall_retries, counted_as="stall")
    if position is Position.THINKING:
        if attempts.thinking_retries >= policy.max_thinking_retries:
            return None
        number = attempts.thinking_retries + 1
        return Retry(
            delay=backoff(policy, number, jitter),
            number=number,
            limit=policy.max_thinking_retries,
            counted_as="thinking",
        )
    limit = policy.max_retries
    if failure.kind is FailureKind.UNREACHABLE and not reached:
        limit = min(limit, policy.max_unreached_retries)
    if attempts.retries >= limit:
        return None
    number = attempts.retries + 1
    if failure.retry_after is None:
        return Retry(delay=backoff(policy, number, jitter), number=number, limit=limit)
    if failure.retry_after > policy.longest_wait:
        return None
    return Retry(delay=failure.retry_after * (1 + policy.jitter * jitter), number=number, limit=limit)


def backoff(policy: RetryPolicy, number: int, jitter: float) -> float:
    """The delay before retry ``number`` (from 1): exponential, capped, with up to ``policy.jitter`` added."""
    return min(policy.cap, policy.base * 2.0 ** (number - 1)) * (1 + policy.jitter * jitter)
