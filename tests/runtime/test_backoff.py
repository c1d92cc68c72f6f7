"""When a failed attempt is sent again."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.backoff import Attempts, Position, Retry, RetryPolicy, backoff, plan_retry
from atrio.runtime.model import FailureKind, ModelFailure

POLICY = RetryPolicy()


def failure(kind: FailureKind = FailureKind.OVERLOADED, **fields: object) -> ModelFailure:
    made = ModelFailure(kind=kind, message="no", retryable=True)
    return attrs.evolve(made, **fields)  # type: ignore[arg-type]  # fields of the tests below


def plan(
    given: ModelFailure, position: Position = Position.NOTHING, attempts: Attempts | None = None, reached: bool = True
) -> Retry | None:
    return plan_retry(POLICY, given, position, attempts or Attempts(), jitter=0.0, reached=reached)


@pytest.mark.parametrize(
    ("number", "delay"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 16.0), (7, 32.0), (8, 32.0), (10, 32.0)]
)
def test_delays_double_up_to_the_cap(number: int, delay: float) -> None:
    assert delay == backoff(POLICY, number, 0.0)


@given(st.integers(1, 10), st.floats(0, 1, exclude_max=True))
def test_jitter_adds_at_most_a_quarter(number: int, jitter: float) -> None:
    plain = backoff(POLICY, number, 0.0)
    assert plain <= backoff(POLICY, number, jitter) <= plain * 1.25


def test_ten_retries_then_the_failure_stands() -> None:
    attempts = Attempts()
    for number in range(1, 11):
        retry = plan(failure(), attempts=attempts)
        assert retry is not None
        assert (number, 10) == (retry.number, retry.limit)
        attempts = attempts.after(retry)
    assert plan(failure(), attempts=attempts) is None


@pytest.mark.parametrize("position", [Position.COMMITTED, Position.FINISHED])
def test_nothing_is_repeated_once_a_block_has_completed(position: Position) -> None:
    assert plan(failure(), position) is None


def test_a_failure_that_is_not_retryable_stands() -> None:
    assert plan(failure(retryable=False)) is None


def test_retry_after_replaces_the_delay() -> None:
    assert Retry(delay=30.0, number=1, limit=10) == plan(failure(retry_after=30.0))


def test_jitter_never_undercuts_retry_after() -> None:
    retry = plan_retry(POLICY, failure(retry_after=30.0), Position.NOTHING, Attempts(), jitter=0.9, reached=True)
    assert retry is not None
    assert 30.0 <= retry.delay <= 37.5


def test_a_wait_over_the_longest_is_reported_instead() -> None:
    assert plan(failure(FailureKind.RATE_LIMIT, retry_after=3600.0)) is None


def test_a_stall_is_repeated_once_outside_the_budget() -> None:
    spent = Attempts(retries=10)
    retry = plan(failure(FailureKind.STALLED), attempts=spent)
    assert retry == Retry(delay=0.0, number=1, limit=1, counted_as="stall")
    assert plan(failure(FailureKind.STALLED), attempts=spent.after(retry)) is None


def test_after_thinking_at_most_two_quick_retries() -> None:
    attempts = Attempts()
    for _ in range(2):
        retry = plan(failure(FailureKind.CONNECTION), Position.THINKING, attempts)
        assert retry is not None
        attempts = attempts.after(retry)
    assert plan(failure(FailureKind.CONNECTION), Position.THINKING, attempts) is None
    assert Attempts(thinking_retries=2) == attempts


def test_an_endpoint_that_never_answered_is_given_up_soon() -> None:
    given = failure(FailureKind.UNREACHABLE)
    assert plan(given, attempts=Attempts(retries=2), reached=False) is None
    assert plan(given, attempts=Attempts(retries=2), reached=True) is not None
