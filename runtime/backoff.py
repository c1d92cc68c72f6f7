"""
When a failed model attempt is sent again: pure decisions, jitter and time passed in.

The rules by position in the stream are those of the reference (3.5): nothing is repeated once a text or
tool block has completed, because a tool may already have run. A stream that fails as a stream (silence, a cut,
garbage) is given a second chance, then one request without streaming.
"""

from __future__ import annotations

from enum import Enum, IntEnum

import attrs

from .model import FailureKind, ModelFailure

__all__ = ["Attempts", "Position", "Retry", "RetryPolicy", "Tally", "backoff", "plan_retry"]


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


_LIMITED = frozenset((FailureKind.RATE_LIMIT, FailureKind.OVERLOADED))
_STREAM_FAULTS = frozenset((FailureKind.STALLED, FailureKind.TRUNCATED, FailureKind.MALFORMED))


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
    max_broken_retries: int = 2
    """For streams that were cut or garbled."""
    without_streaming: bool = True
    """When streaming keeps failing, ask once without it."""
    max_unreached_retries: int = 2
    """For an endpoint that has never answered: a wrong address shows at once, not after minutes."""
    max_overloads: int = 3
    """Overloads in a row after which a fallback model takes over, if there is one."""
    longest_wait: float = 300.0
    """A server that asks for more than this ends the attempt with its own words, unless ``unattended``."""
    unattended: bool = False
    """Nobody waits for an answer: rate limits and overloads are waited out, however often."""
    unattended_cap: float = 300.0
    longest_unattended_wait: float = 6 * 3600.0

    @property
    def patience(self) -> float:
        """The longest wait that a server may ask for."""
        return self.longest_unattended_wait if self.unattended else self.longest_wait


class Tally(Enum):
    """Which budget a retry is taken from."""

    PLAIN = "plain"
    STALL = "stall"
    BROKEN = "broken"
    THINKING = "thinking"
    WHOLE = "whole"
    """The one request without streaming."""


@attrs.frozen(kw_only=True)
class Attempts:
    """What has been tried for this request so far."""

    plain: int = 0
    stall: int = 0
    broken: int = 0
    thinking: int = 0
    whole: int = 0
    overloads: int = 0
    """Overload answers in a row."""

    def after(self, failure: ModelFailure, retry: Retry) -> Attempts:
        overloads = self.overloads + 1 if failure.kind is FailureKind.OVERLOADED else 0
        spent: int = getattr(self, retry.tally.value)
        return attrs.evolve(self, overloads=overloads, **{retry.tally.value: spent + 1})


@attrs.frozen(kw_only=True)
class Retry:
    """Send again after ``delay`` seconds; retry ``number`` of at most ``limit`` (None: as often as it takes)."""

    delay: float
    number: int
    limit: int | None
    tally: Tally = Tally.PLAIN

    @property
    def streaming(self) -> bool:
        return self.tally is not Tally.WHOLE


def plan_retry(
    policy: RetryPolicy,
    failure: ModelFailure,
    position: Position,
    attempts: Attempts,
    *,
    jitter: float,
    reached: bool,
    has_fallback: bool = False,
) -> Retry | None:
    """
    Whether and when to send again; None: the failure stands.

    Args:
        jitter: a number in [0, 1), drawn by the caller.
        reached: the endpoint has answered anything before.
        has_fallback: another model could take over.
    """
    if position >= Position.COMMITTED or not failure.retryable:
        return None
    if failure.kind in _STREAM_FAULTS:
        return _after_stream_fault(policy, failure, attempts, jitter)
    if position is Position.THINKING:
        return _within(Tally.THINKING, attempts.thinking, policy.max_thinking_retries, policy, jitter)
    if failure.kind is FailureKind.OVERLOADED and has_fallback and attempts.overloads + 1 >= policy.max_overloads:
        return None
    if failure.kind in _LIMITED and policy.unattended:
        return _wait_out(policy, failure, attempts, jitter)
    limit = policy.max_retries
    if failure.kind is FailureKind.UNREACHABLE and not reached:
        limit = min(limit, policy.max_unreached_retries)
    retry = _within(Tally.PLAIN, attempts.plain, limit, policy, jitter)
    if retry is None and failure.kind is FailureKind.CONNECTION:
        return _without_streaming(policy, attempts)
    if retry is None or failure.retry_after is None:
        return retry
    if failure.retry_after > policy.longest_wait:
        return None
    return attrs.evolve(retry, delay=failure.retry_after * (1 + policy.jitter * jitter))


def _after_stream_fault(policy: RetryPolicy, failure: ModelFailure, attempts: Attempts, jitter: float) -> Retry | None:
    if attempts.whole:
        return None
    if failure.kind is FailureKind.STALLED:
        retry = _within(Tally.STALL, attempts.stall, policy.max_stall_retries, policy, jitter)
    else:
        retry = _within(Tally.BROKEN, attempts.broken, policy.max_broken_retries, policy, jitter)
    return retry if retry is not None else _without_streaming(policy, attempts)


def _without_streaming(policy: RetryPolicy, attempts: Attempts) -> Retry | None:
    if attempts.whole or not policy.without_streaming:
        return None
    return Retry(delay=0.0, number=1, limit=1, tally=Tally.WHOLE)


def _wait_out(policy: RetryPolicy, failure: ModelFailure, attempts: Attempts, jitter: float) -> Retry:
    number = attempts.plain + 1
    if failure.retry_after is None:
        delay = backoff(attrs.evolve(policy, cap=policy.unattended_cap), number, jitter)
    else:
        delay = min(failure.retry_after * (1 + policy.jitter * jitter), policy.longest_unattended_wait)
    return Retry(delay=delay, number=number, limit=None)


def _within(tally: Tally, spent: int, limit: int, policy: RetryPolicy, jitter: float) -> Retry | None:
    if spent >= limit:
        return None
    return Retry(delay=backoff(policy, spent + 1, jitter), number=spent + 1, limit=limit, tally=tally)


def backoff(policy: RetryPolicy, number: int, jitter: float) -> float:
    """The delay before retry ``number`` (from 1): exponential, capped, with up to ``policy.jitter`` added."""
    # The exponent is bounded: 2**n of a long-lived outage overflows a float.
    return min(policy.cap, policy.base * 2.0 ** min(number - 1, 64)) * (1 + policy.jitter * jitter)
