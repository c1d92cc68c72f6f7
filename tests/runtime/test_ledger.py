"""Usage and cost: each response once, and never a guess."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.ledger import Ledger
from atrio.runtime.messages import Usage
from atrio.runtime.prices import Catalogue, ModelInfo, Prices

SONNET = "claude-sonnet-4-5"
PRICES = Prices(input=1, output=10, cache_write=2, cache_write_1h=4, cache_read=0.5)
LONG = Prices(input=2, output=20, cache_write=4, cache_write_1h=8, cache_read=1)
MODEL = ModelInfo(prices=PRICES, context_window=1000, max_output_tokens=100, long_context=(2_000_000, LONG))
CATALOGUE = Catalogue(as_of="2026-01-01", models={"m": MODEL, "n": MODEL}, aliases={"o": "n"})
MILLION = 1_000_000


def usage(**wire: Any) -> Usage:
    return Usage().updated(wire)


def ledger() -> Ledger:
    return Ledger(CATALOGUE)


# --- usage ----------------------------------------------------------------------------------------


def test_running_totals_replace_and_are_never_added_up() -> None:
    book = ledger()
    so_far = usage(input_tokens=9, cache_read_input_tokens=1)
    book.record("a", "m", so_far)
    for wire in ({"input_tokens": 9, "cache_read_input_tokens": 1, "output_tokens": 16}, {"output_tokens": 20}):
        so_far = so_far.updated(wire)
        book.record("a", "m", so_far)
    expected = Usage(input_tokens=9, cache_read_input_tokens=1, output_tokens=20, reported=True)
    assert expected == book.usage
    assert 1 == book.by_model["m"].requests


def test_nulls_in_a_usage_change_nothing() -> None:
    got = usage(input_tokens=7).updated(
        {"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 43, "server_tool_use": None}
    )
    assert Usage(input_tokens=7, output_tokens=43, reported=True) == got


@pytest.mark.parametrize("wire", [None, {}, {"input_tokens": None}, {"input_tokens": "7"}, {"input_tokens": -1}])
def test_a_usage_that_is_missing_or_nonsense_is_unknown(wire: dict[str, Any] | None) -> None:
    got = Usage().updated(wire)
    assert not got.reported
    assert ledger().record("a", "m", got) is None


def test_each_id_counts_once_and_the_later_record_holds() -> None:
    book = ledger()
    book.record("a", "m", usage(output_tokens=5))
    book.record("b", "n", usage(output_tokens=7))
    book.record("a", "n", usage(output_tokens=6))
    assert Usage(output_tokens=13, reported=True) == book.usage
    assert {"n": 2} == {name: entry.requests for name, entry in book.by_model.items()}


RECORDS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["m", "n", "unknown"]), st.none() | st.integers(0, 10**6))
)


@pytest.mark.slow
@given(RECORDS)
def test_a_ledger_is_what_its_last_records_come_to(records: list[tuple[str, str, int | None]]) -> None:
    book = ledger()
    for id, model, count in records:
        book.record(id, model, usage(output_tokens=count))
    last = {id: (model, count) for id, model, count in records}
    assert sum(count or 0 for _, count in last.values()) == book.usage.output_tokens
    assert len(last) == sum(entry.requests for entry in book.by_model.values())
    known = all(model != "unknown" and count is not None for model, count in last.values())
    if known:
        assert pytest.approx(sum((count or 0) * 10 / MILLION for _, count in last.values())) == book.cost_usd
    else:
        assert book.cost_usd is None


# --- cost -----------------------------------------------------------------------------------------


def test_before_the_first_response_the_cost_is_nought() -> None:
    assert 0 == ledger().cost_usd


def test_an_unknown_model_has_no_cost_and_takes_the_sum_with_it() -> None:
    book = ledger()
    assert 10 == book.record("a", "m", usage(output_tokens=MILLION))
    assert book.record("b", "mystery", usage(output_tokens=1)) is None
    assert book.cost_usd is None
    assert 10 == book.by_model["m"].cost_usd
    assert book.by_model["mystery"].cost_usd is None
    assert book.by_model["mystery"].context_window is None


@pytest.mark.parametrize(
    ("expected", "wire"),
    [
        (1, {"input_tokens": MILLION}),
        (10, {"output_tokens": MILLION}),
        (0.5, {"cache_read_input_tokens": MILLION}),
        (2, {"cache_creation_input_tokens": MILLION}),
        (4, {"cache_creation_input_tokens": MILLION, "cache_creation": {"ephemeral_1h_input_tokens": MILLION}}),
        (3, {"cache_creation_input_tokens": MILLION, "cache_creation": {"ephemeral_1h_input_tokens": MILLION // 2}}),
        (4, {"cache_creation_input_tokens": MILLION, "cache_creation": {"ephemeral_1h_input_tokens": 9 * MILLION}}),
        (2, {"cache_creation_input_tokens": MILLION, "cache_creation": {"ephemeral_1h_input_tokens": None}}),
        (2, {"cache_creation_input_tokens": MILLION, "cache_creation": 7}),
    ],
)
def test_each_kind_of_token_has_its_price(expected: float, wire: dict[str, Any]) -> None:
    assert pytest.approx(expected) == MODEL.cost(usage(**wire))


def test_a_long_context_costs_more_and_cached_input_counts_for_its_length() -> None:
    assert pytest.approx(1 + 0.5) == MODEL.cost(usage(input_tokens=MILLION, cache_read_input_tokens=MILLION))
    wire = {"input_tokens": MILLION, "cache_read_input_tokens": MILLION, "cache_creation_input_tokens": 1}
    assert pytest.approx(2 + 1 + 4 / MILLION) == MODEL.cost(usage(**wire))
    # What the model writes is no part of that length.
    assert pytest.approx(50) == MODEL.cost(usage(output_tokens=5 * MILLION))


# --- the catalogue --------------------------------------------------------------------------------


def test_every_model_of_the_catalogue_is_plausible() -> None:
    catalogue = Catalogue.load()
    for name, info in catalogue.models.items():
        for prices in (info.prices, *(info.long_context[1:] if info.long_context else ())):
            assert isinstance(prices, Prices)
            assert 0 < prices.cache_read < prices.input < prices.cache_write < prices.cache_write_1h, name
            assert prices.input < prices.output, name
        assert info.max_output_tokens < info.context_window, name
    assert set(catalogue.aliases.values()) <= set(catalogue.models)


@pytest.mark.parametrize(
    "name",
    [
        SONNET,
        f"{SONNET}-20250929",
        f"{SONNET}@20250929",
        f"{SONNET}@default",
        f"{SONNET}-latest",
        f"{SONNET}[1m]",
        f"{SONNET}-20250929[1m]",
        f"anthropic/{SONNET}",
        f"openrouter/anthropic/{SONNET}",
        f"anthropic.{SONNET}-20250929-v1:0",
        f"bedrock/global.anthropic.{SONNET}-20250929-v1:0",
    ],
)
def test_provider_date_and_variant_make_no_difference(name: str) -> None:
    catalogue = Catalogue.load()
    assert catalogue.models[SONNET] is catalogue.find(name)


def test_an_alias_is_its_model() -> None:
    assert CATALOGUE.models["n"] is CATALOGUE.find("provider/o-20260101")


@pytest.mark.parametrize(
    "name",
    ["", "claude", "gpt-4", f"{SONNET}-thinking", f"{SONNET}-2025", f"us.anthropic.{SONNET}-v1:0", "claude-sonnet-4-9"],
)
def test_what_is_not_in_the_catalogue_is_unknown(name: str) -> None:
    assert Catalogue.load().find(name) is None


# --- over a compaction ----------------------------------------------------------------------------


def test_totals_are_carried_over_and_added_to() -> None:
    before, after = ledger(), ledger()
    before.record("a", "m", usage(output_tokens=MILLION))
    before.record("b", "unknown", usage(output_tokens=1))
    after.carry(orjson.loads(orjson.dumps(before.totals())))

    assert (before.usage, before.by_model, before.cost_usd) == (after.usage, after.by_model, after.cost_usd)
    after.record("c", "m", usage(output_tokens=1))
    after.record("c", "m", usage(output_tokens=2))
    assert (MILLION + 2, 2) == (after.by_model["m"].usage.output_tokens, after.by_model["m"].requests)


@pytest.mark.parametrize("totals", [{}, {"m": None}, {"m": {"usage": 1, "costUSD": "x", "requests": None}}])
def test_totals_that_make_no_sense_are_no_cost_that_is_known(totals: dict[str, Any]) -> None:
    book = ledger()
    book.carry(totals)

    assert Usage() == book.usage
    assert [None] * isinstance(totals.get("m"), dict) == [entry.cost_usd for entry in book.by_model.values()]
