"""When a failed attempt is sent again."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.backoff import Attempts, Position, Retry, RetryPolicy, Tally, backoff, plan_retry
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
        attempts = attempts.after(failure(), retry)
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


def spend(given: ModelFailure, position: Position = Position.NOTHING, start: Attempts | None = None) -> list[Retry]:
    """Every retry that is granted, until the failure stands."""
    attempts, retries = start or Attempts(), list[Retry]()
    while (retry := plan(given, position, attempts)) is not None:
        retries.append(retry)
        attempts = attempts.after(given, retry)
        assert len(retries) < 50
    return retries


def test_a_stall_is_repeated_once_outside_the_budget_then_asked_without_streaming() -> None:
    retries = spend(failure(FailureKind.STALLED), start=Attempts(plain=10))
    assert [Tally.STALL, Tally.WHOLE] == [retry.tally for retry in retries]
    assert [True, False] == [retry.streaming for retry in retries]


@pytest.mark.parametrize("kind", [FailureKind.TRUNCATED, FailureKind.MALFORMED])
@pytest.mark.parametrize("position", [Position.NOTHING, Position.THINKING])
def test_a_broken_stream_is_repeated_twice_then_asked_without_streaming(kind: FailureKind, position: Position) -> None:
    retries = spend(failure(kind), position)
    assert [Tally.BROKEN, Tally.BROKEN, Tally.WHOLE] == [retry.tally for retry in retries]


def test_after_thinking_at_most_two_quick_retries() -> None:
    retries = spend(failure(FailureKind.CONNECTION), Position.THINKING)
    assert [(1, 2), (2, 2)] == [(retry.number, retry.limit) for retry in retries]


def test_an_endpoint_that_never_answered_is_given_up_soon() -> None:
    given = failure(FailureKind.UNREACHABLE)
    assert plan(given, attempts=Attempts(plain=2), reached=False) is None
    assert plan(given, attempts=Attempts(plain=2), reached=True) is not None


def test_three_overloads_in_a_row_make_room_for_a_fallback_model() -> None:
    attempts = Attempts()
    for expected in (True, True, False):
        retry = plan_retry(POLICY, failure(), Position.NOTHING, attempts, jitter=0.0, reached=True, has_fallback=True)
        assert expected == (retry is not None)
        if retry is not None:
            attempts = attempts.after(failure(), retry)


def test_another_failure_between_breaks_the_row_of_overloads() -> None:
    retry = Retry(delay=0, number=1, limit=10)
    attempts = Attempts(overloads=2).after(failure(FailureKind.SERVER_ERROR), retry)
    assert 0 == attempts.overloads


def test_unattended_a_limit_is_waited_out_for_as_long_as_the_server_says() -> None:
    policy = RetryPolicy(unattended=True)
    limited = failure(FailureKind.RATE_LIMIT, retry_after=3600.0)
    retry = plan_retry(policy, limited, Position.NOTHING, Attempts(plain=500), jitter=0.0, reached=True)
    assert Retry(delay=3600.0, number=501, limit=None) == retry


@given(st.integers(0, 100_000), st.one_of(st.none(), st.floats(0, 1e9)), st.floats(0, 1, exclude_max=True))
def test_unattended_waits_are_bounded(spent: int, retry_after: float | None, jitter: float) -> None:
    policy = RetryPolicy(unattended=True)
    limited = failure(FailureKind.OVERLOADED, retry_after=retry_after)
    retry = plan_retry(policy, limited, Position.NOTHING, Attempts(plain=spent), jitter=jitter, reached=True)
    assert retry is not None
    assert 0 <= retry.delay <= 6 * 3600
