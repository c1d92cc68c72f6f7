"""The error that somebody looks for, wherever it is inside of another."""

from __future__ import annotations

from atrio.runtime.errors import JournalUnwritable
from atrio.runtime.groups import find_error

LOST = JournalUnwritable("/j", "full")


def because_of(cause: BaseException) -> Exception:
    error = RuntimeError("the loop")
    error.__cause__ = cause
    return error


def test_it_is_found_in_groups_and_behind_causes() -> None:
    assert find_error(LOST, JournalUnwritable) is LOST
    assert find_error(ExceptionGroup("", [ValueError(), ExceptionGroup("", [LOST])]), JournalUnwritable) is LOST
    assert find_error(ExceptionGroup("", [because_of(LOST)]), JournalUnwritable) is LOST
    assert find_error(because_of(ExceptionGroup("", [KeyError(), LOST])), JournalUnwritable) is LOST


def test_what_is_not_there_is_not_found() -> None:
    assert find_error(ExceptionGroup("", [ValueError(), because_of(KeyError())]), JournalUnwritable) is None


def test_a_circle_of_causes_comes_to_an_end() -> None:
    one, two = RuntimeError("1"), RuntimeError("2")
    one.__cause__, two.__cause__ = two, one
    assert find_error(one, JournalUnwritable) is None
