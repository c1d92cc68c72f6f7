"""Several answers become one outcome: the strictest permission, all texts, the last update."""

from __future__ import annotations

import itertools

import pytest

from atrio.actors.hooking.verdicts import HookAnswer, HookNotice, HookOutcome, Permission, aggregate

ORDER = [Permission.ALLOW, Permission.ASK, Permission.DEFER, Permission.DENY]


def test_no_answers_are_an_outcome_that_says_nothing() -> None:
    assert HookOutcome() == aggregate([]) == aggregate([HookAnswer(), HookAnswer()])
    assert HookOutcome().block is None


@pytest.mark.parametrize("order", list(itertools.permutations(ORDER, 2)))
def test_deny_beats_defer_beats_ask_beats_allow_in_any_order(order: tuple[Permission, Permission]) -> None:
    outcome = aggregate([HookAnswer(), *(HookAnswer(permission=each, reason=each.value) for each in order)])
    strictest = max(order, key=ORDER.index)
    assert (strictest, strictest.value) == (outcome.permission, outcome.reason)


def test_the_reasons_of_all_who_decide_are_given_once() -> None:
    said = [HookAnswer(permission=Permission.DENY, reason=text) for text in ("a", "b", "a")]
    assert "a\nb" == aggregate(said).reason


def test_texts_are_joined_in_order_and_the_first_stop_is_told() -> None:
    notice = HookNotice("n")
    said = [
        HookAnswer(block="b1", context=("c1",), notices=(notice,)),
        HookAnswer(stop="s1", context=("c2", "c1"), notices=(notice,)),
        HookAnswer(block="b2", stop="s2"),
    ]
    expected = HookOutcome(blocks=("b1", "b2"), stop="s1", contexts=("c1", "c2"), notices=(notice, notice))
    assert expected == aggregate(said)
    assert "b1\n\nb2" == expected.block


def test_the_last_update_holds_but_none_of_a_hook_that_is_against_the_call() -> None:
    said = [
        HookAnswer(updated_input={"n": 1}, updated_output="o1"),
        HookAnswer(updated_input={"n": 2}, updated_output="o2", permission=Permission.ALLOW),
        HookAnswer(updated_input={"n": 3}, permission=Permission.DEFER),
    ]
    outcome = aggregate(said)
    assert ({"n": 2}, "o2") == (outcome.updated_input, outcome.updated_output)


def test_changed_rules_and_an_interrupt_count_only_with_the_decision_they_came_with() -> None:
    allow = HookAnswer(permission=Permission.ALLOW, updated_permissions=({"a": 1},))
    deny = HookAnswer(permission=Permission.DENY, reason="r", interrupt=True)
    assert ({"a": 1},) == aggregate([allow]).updated_permissions
    assert HookOutcome(permission=Permission.DENY, reason="r", interrupt=True) == aggregate([allow, deny])
