"""JSON off the wire: what is understood, what is refused, and that all of it can be written again."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.wirejson import MAX_NESTING, Unparsable, mend, parse_object, without_surrogates

ANY_TEXT = st.text(st.characters(codec=None), max_size=6)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"{}", ({}, False)),
        (b' {"a" : 1}   ', ({"a": 1}, False)),
        (b'{"a":1,"a":2}', ({"a": 2}, False)),
        (b'{"a":"\xff"}', ({"a": "\ufffd"}, True)),
        (b'{"a":"\\ud83d"}', ({"a": "\ud83d"}, True)),
        (b'{"a":"x\ny\t"}', ({"a": "x\ny\t"}, True)),
        (b'{"a":NaN,"b":-Infinity}', ({"a": None, "b": None}, True)),
        (b'{"a":123456789012345678901234567890}', ({"a": 1.2345678901234568e29}, False)),
        (b'{"\\ud83d":18446744073709551616}', ({"\ud83d": 18446744073709551616.0}, True)),
        (b'{"\\ud83d":18446744073709551615}', ({"\ud83d": 18446744073709551615}, True)),
        (b'{"\\ud83d":-9223372036854775809}', ({"\ud83d": -9223372036854775808.0}, True)),
    ],
    ids=repr,
)
def test_what_real_servers_send_is_understood(data: bytes, expected: object) -> None:
    assert expected == parse_object(data)


@pytest.mark.parametrize(
    "data",
    [b"", b" ", b"[]", b'"x"', b"1", b"null", b"NaN", b"{", b"{'a':1}", b"{}{}", b"\xff", b"<p>", b"{" * 9999],
)
def test_what_is_no_object_is_refused_with_an_excerpt(data: bytes) -> None:
    with pytest.raises(Unparsable) as caught:
        parse_object(data)

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("half", ["", "\\ud83d"])
def test_nesting_has_a_limit(half: str) -> None:
    def nested(levels: int) -> bytes:
        return ('{"a":' * levels + f'"{half}"' + "}" * levels).encode()

    value, _ = parse_object(nested(MAX_NESTING))
    orjson.dumps(without_surrogates({"messages": [{"content": [{"input": value}]}]}))
    for levels in (MAX_NESTING + 1, 400, 900, 5000):
        with pytest.raises(Unparsable):
            parse_object(nested(levels))


def test_many_brackets_are_no_nesting() -> None:
    value = {"a": [[] for _ in range(1000)], "b": "[{" * 1000}

    assert (value, False) == parse_object(orjson.dumps(value))


@pytest.mark.slow
@given(JSON)
def test_any_object_comes_out_as_it_went_in_and_can_be_sent(value: object) -> None:
    parsed, torn = parse_object(json.dumps({"v": value}).encode())

    assert {"v": value} == parsed
    orjson.dumps(without_surrogates(parsed) if torn else parsed)


@given(st.binary(max_size=20))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        parsed, _ = parse_object(data)
    except Unparsable:
        return
    orjson.dumps(without_surrogates(parsed))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain \U0001f600", "plain \U0001f600"),
        ("\ud83d\ude00", "\U0001f600"),
        ("a\ud83db", "a\ufffdb"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ufeffa", "\ufeffa"),
        ("\ufffea", "\ufffea"),
    ],
)
def test_halves_are_joined_or_replaced(text: str, expected: str) -> None:
    assert expected == mend(text)


@given(ANY_TEXT)
def test_mended_text_can_be_encoded_and_stays(text: str) -> None:
    mended = mend(text)

    assert mended == mend(mended)
    mended.encode()


def test_every_text_of_a_value_is_mended() -> None:
    value = {"\ud83d": ["\ud83d", ("\ude00", 1, None)], "n": {"a": "\ud83d\ude00"}}

    assert {"\ufffd": ["\ufffd", ["\ufffd", 1, None]], "n": {"a": "\U0001f600"}} == without_surrogates(value)
