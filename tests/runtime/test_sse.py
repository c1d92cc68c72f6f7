"""The event-stream decoder: the WHATWG rules as tables, any cut of any stream, httpx-sse as the oracle, the limit."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterable, Sequence

import httpx
import pytest
from httpx_sse import EventSource
from hypothesis import example, given
from hypothesis import strategies as st

from atrio.runtime.errors import EventTooLarge
from atrio.runtime.sse import MAX_EVENT_BYTES, EventStreamDecoder, Leftover, ServerSentEvent

Plain = tuple[str, bytes]

BOM = b"\xef\xbb\xbf"


def decode(*chunks: bytes, limit: int = MAX_EVENT_BYTES) -> list[ServerSentEvent]:
    decoder = EventStreamDecoder(max_event_bytes=limit)
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def plain(*chunks: bytes) -> list[Plain]:
    return [(event.event, event.data) for event in decode(*chunks)]


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(edges)]


def bytewise(body: bytes) -> list[bytes]:
    return [body[n : n + 1] for n in range(len(body))]


RULES: dict[str, tuple[bytes, list[Plain]]] = {
    "no name is a message": (b"data: a\n\n", [("message", b"a")]),
    "a name": (b"event: ping\ndata: a\n\n", [("ping", b"a")]),
    "the last name counts": (b"event: a\nevent: b\ndata: x\n\n", [("b", b"x")]),
    "an empty name is a message": (b"event: a\nevent:\ndata: x\n\n", [("message", b"x")]),
    "a name holds for one event": (b"event: a\ndata: x\n\ndata: y\n\n", [("a", b"x"), ("message", b"y")]),
    "a name without data": (b"event: a\n\ndata: y\n\n", [("message", b"y")]),
    "the name after the data": (b"data: x\nevent: a\n\n", [("a", b"x")]),
    "a name that isn't UTF-8": (b"event: \xff\ndata: x\n\n", [("\ufffd", b"x")]),
    "no space after the colon": (b"data:a\n\n", [("message", b"a")]),
    "one space is dropped": (b"data:  a \n\n", [("message", b" a ")]),
    "a tab is kept": (b"data:\ta\n\n", [("message", b"\ta")]),
    "colons in the value": (b"data: a: b:c\n\n", [("message", b"a: b:c")]),
    "several data lines": (b"data: a\ndata: b\ndata\ndata: c\n\n", [("message", b"a\nb\n\nc")]),
    "an empty data line": (b"data:\n\n", [("message", b"")]),
    "a field without a colon": (b"data\n\n", [("message", b"")]),
    "two empty data lines": (b"data\ndata\n\n", [("message", b"\n")]),
    "no data at all": (b"event: a\nid: 1\n\n\n\n", []),
    "blank lines": (b"\n\n\ndata: a\n\n\n\n", [("message", b"a")]),
    "comments": (b": hi\n:\ndata: a\n: data: b\n\n:\n\n", [("message", b"a")]),
    "unknown fields": (b"foo: 1\nbar\nDATA: 2\n data: 3\ndata : 4\ndatax: 5\n\n", []),
    "an incomplete last event": (b"data: a\n\ndata: b\n", [("message", b"a")]),
    "an incomplete last line": (b"data: a\n\ndata: b", [("message", b"a")]),
    "CR": (b"data: a\rdata: b\r\rdata: c\r\r", [("message", b"a\nb"), ("message", b"c")]),
    "CRLF": (b"data: a\r\ndata: b\r\n\r\n", [("message", b"a\nb")]),
    "mixed line ends": (b"data: a\rdata: b\r\ndata: c\n\r\ndata: d\n\r", [("message", b"a\nb\nc"), ("message", b"d")]),
    "LF CR is two line ends": (b"data: a\n\rdata: b\n\n", [("message", b"a"), ("message", b"b")]),
    "a byte order mark": (BOM + b"data: a\n\n", [("message", b"a")]),
    "a second byte order mark": (BOM + BOM + b"data: a\n\ndata: b\n\n", [("message", b"b")]),
    "a byte order mark in data": (b"data: " + BOM + b"a\n\n", [("message", BOM + b"a")]),
    "NUL in data": (b"data: \0\n\n", [("message", b"\0")]),
    "no UTF-8 in data": (b"data: \xff\xc3\n\n", [("message", b"\xff\xc3")]),
    "an empty body": (b"", []),
    "a byte order mark alone": (BOM, []),
}


@pytest.mark.parametrize("name", RULES)
def test_each_rule_holds_in_one_chunk_and_byte_by_byte(name: str) -> None:
    body, expected = RULES[name]

    assert expected == plain(body)
    assert expected == plain(*bytewise(body))


@pytest.mark.parametrize("name", [name for name, (body, _) in RULES.items() if not body.startswith(BOM)])
def test_each_rule_holds_after_an_event_has_passed(name: str) -> None:
    body, expected = RULES[name]

    assert [("ping", b"{}"), *expected] == plain(b"event: ping\ndata: {}\n\n", body)


@pytest.mark.parametrize(
    "character",
    ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x00", "\ufeff", "\U0001f600", "\u4e2d"],
    ids=ascii,
)
def test_only_cr_and_lf_end_a_line(character: str) -> None:
    text = f'{{"text":"a{character}b"}}'.encode()
    body = b"event: content_block_delta\ndata:" + text + b"\n\ndata: next\n\n"
    expected = [("content_block_delta", text), ("message", b"next")]

    assert expected == plain(body)
    assert expected == plain(*bytewise(body))


def test_a_crlf_cut_in_two_is_one_line_end() -> None:
    assert [("message", b"A\nB")] == plain(b"data: A\r", b"\ndata: B\r\n\r\n")
    assert [("message", b"A\nB")] == plain(b"data: A\r", b"", b"\n", b"data: B\r", b"\n\r", b"\n")


def test_an_event_comes_with_the_cr_that_completes_it() -> None:
    decoder = EventStreamDecoder()

    assert [ServerSentEvent("message", b"a")] == list(decoder.feed(b"data: a\r\n\r"))
    assert [] == list(decoder.feed(b"\n"))
    assert [ServerSentEvent("message", b"b")] == list(decoder.feed(b"data: b\n\n"))


def test_a_byte_order_mark_may_come_in_pieces() -> None:
    assert [("a", b"x")] == plain(BOM[:1], BOM[1:], b"event: a\ndata: x\n\n")
    assert [("a", b"x")] == plain(BOM[:1], b"", BOM[1:2], BOM[2:] + b"event: a\ndata: x\n\n")


def test_the_start_of_a_byte_order_mark_that_is_none_is_text() -> None:
    assert [("message", b"b")] == plain(BOM[:2], b"data: a\n\ndata: b\n\n")


def test_the_id_stays_until_it_changes_and_goes_with_every_event() -> None:
    body = b"data: a\n\nid: 7\ndata: b\n\ndata: c\n\nid: 8\0\ndata: d\n\nid\ndata: e\n\n"

    assert ["", "7", "7", "7", ""] == [event.id for event in decode(body)]


def test_an_id_without_data_counts_for_the_next_event() -> None:
    assert [ServerSentEvent("message", b"a", id="9")] == decode(b"id: 9\n\ndata: a\n\n")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("3000", 3000),
        ("0", 0),
        ("007", 7),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("1e3", None),
        ("\u0663", None),
        (" 5", None),
        ("9" * 5000, None),
    ],
)
def test_retry_takes_digits_only(value: str, expected: int | None) -> None:
    assert [expected] == [event.retry for event in decode(f"retry: {value}\ndata: a\n\n".encode())]


def test_retry_and_id_also_go_with_events_that_come_whole() -> None:
    events = decode(b"retry: 5\nid: x\n\n", b"event: ping\ndata: {}\n\n")

    assert [ServerSentEvent("ping", b"{}", id="x", retry=5)] == events


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", None),
        (b"data: a\n\n", None),
        (b"data: a\n\n: bye", None),
        (b"data: a\n\nid: 1\n", None),
        (BOM, None),
        (BOM[:2], Leftover(event="", data=b"", line=BOM[:2])),
        (b"event: a\n", Leftover(event="a", data=b"", line=b"")),
        (b"event: a\ndata: b\ndata: c\ndat", Leftover(event="a", data=b"b\nc", line=b"dat")),
        (b"data:\n", Leftover(event="", data=b"", line=b"")),
        (b"data: {\r\n", Leftover(event="", data=b"{", line=b"")),
    ],
)
def test_what_the_end_of_the_body_cuts_off_is_reported(body: bytes, expected: Leftover | None) -> None:
    decoder = EventStreamDecoder()
    for byte in bytewise(body):
        decoder.feed(byte)

    assert expected == decoder.finish()


# --- any stream, cut anywhere -----------------------------------------------------------------------------------

LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
PIECES = st.one_of(
    LINE_ENDS,
    st.sampled_from(
        [
            b"data: ",
            b"data:",
            b"data",
            b"event: content_block_delta",
            b"event: x",
            b"id: 1",
            b"id",
            b"retry: 10",
            b":",
            b"\n\n",
            b"\r\n\r\n",
            BOM,
            BOM[:1],
            b"{}",
            b"event: ping\ndata: {}\n\n",
            b"event: content_block_stop\ndata: {}\r\n\r\n",
            "\u2028\u00e9\U0001f600".encode(),
            b"\xff",
            b"\0",
        ]
    ),
    st.binary(max_size=3),
)
BODIES = st.lists(PIECES, max_size=24).map(b"".join)
CUTS = st.lists(st.integers(min_value=0, max_value=1000), max_size=12)


@pytest.mark.slow
@given(BODIES, CUTS)
@example(b"event: ping\ndata: {}\n\nevent: ping\ndata: {}\n\n", [22])
@example(b"event: ping\ndata: \r\n\n", [0])
def test_any_cut_gives_the_same_events_and_leftover(body: bytes, places: list[int]) -> None:
    whole, pieces, bytes_ = EventStreamDecoder(), EventStreamDecoder(), EventStreamDecoder()

    expected = list(whole.feed(body))
    assert expected == [event for chunk in cut(body, places) for event in pieces.feed(chunk)]
    assert expected == [event for chunk in bytewise(body) for event in bytes_.feed(chunk)]
    assert whole.finish() == pieces.finish() == bytes_.finish()


@pytest.mark.slow
@given(st.lists(BODIES, min_size=1, max_size=6))
@example([b"\n", b"event: ping\ndata: {}\n\n"])
@example([b"\n", b"event: ping\ndata: \n\n"])
@example([b"\n", b"event: ping\ndata: a\rdata: b\n\n"])
@example([b"\n", b"event: ping\ndata: a\n\n\n\n"])
@example([b"data: a\n", b"event: ping\ndata: {}\n\n"])
@example([b"\r", b"event: ping\ndata: {}\n\n"])
def test_the_short_way_for_whole_events_equals_the_long_one(chunks: list[bytes]) -> None:
    short, long = EventStreamDecoder(), EventStreamDecoder()

    for chunk in chunks:
        assert list(short.feed(chunk)) == list(long._feed_lines(chunk))
    assert short.finish() == long.finish()


# --- the oracle --------------------------------------------------------------------------------------------------


def oracle(body: bytes) -> list[Plain]:
    """
    httpx-sse over the same bytes; with the differences that are known taken out.

    It emits an event for every blank line once an id was seen (here: an event without data), keeps a byte order mark,
    and obeys the response's charset (here always UTF-8, which replaces what is none).
    """
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    source = EventSource(httpx.Response(200, headers=headers, content=body))
    return [(event.event, event.data.encode()) for event in source.iter_sse() if event.data]


ORACLE_PIECES = st.one_of(
    LINE_ENDS,
    LINE_ENDS,
    st.sampled_from(
        [b"data: a", b"data:b", b"data: \xc3\xa9", b"event: x", b"event: ping", b": c", b"retry: 5", b"foo"]
    ),
    st.sampled_from([b"id: 1", "data: a\u2028".encode(), b"event: ping\ndata: {}\n\n", b"\n\n", b"data:  x: y"]),
)


@pytest.mark.slow
@given(st.lists(ORACLE_PIECES, max_size=24).map(b"".join))
def test_httpx_sse_finds_the_same_events(body: bytes) -> None:
    assert oracle(body) == [(name, data) for name, data in plain(body) if data]


def test_httpx_sse_loses_the_first_field_after_a_byte_order_mark() -> None:
    body = BOM + b"data: a\n\ndata: b\n\n"

    assert [("message", b"b")] == oracle(body)
    assert [("message", b"a"), ("message", b"b")] == plain(body)


def test_httpx_sse_emits_blank_lines_once_an_id_was_seen() -> None:
    body = b"id: 1\ndata: a\n\n\n\n"
    source = EventSource(httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body))

    assert ["a", "", ""] == [event.data for event in source.iter_sse()]
    assert [("message", b"a")] == plain(body)


def test_httpx_sse_obeys_a_wrong_charset() -> None:
    body = "data: \u00e9\n\n".encode()
    headers = {"content-type": "text/event-stream; charset=latin-1"}
    source = EventSource(httpx.Response(200, headers=headers, content=body))

    assert ["\u00c3\u00a9"] == [event.data for event in source.iter_sse()]
    assert [("message", "\u00e9".encode())] == plain(body)


# --- the limit -----------------------------------------------------------------------------------------------------

LIMIT = 1000


def too_large(*chunks: bytes) -> EventTooLarge:
    with pytest.raises(EventTooLarge) as caught:
        decode(*chunks, limit=LIMIT)
    assert LIMIT == caught.value.limit_bytes < caught.value.size_bytes
    return caught.value


def repeated(chunk: bytes, times: int) -> Sequence[bytes]:
    return [chunk] * times


def test_an_event_over_the_limit_is_refused_however_it_comes() -> None:
    body = b"data: " + b"x" * LIMIT + b"\n\n"

    too_large(body)
    too_large(*bytewise(body))
    too_large(b"event: ping\ndata: {}\n\n", b"event: ping\n" + body)
    too_large(b"event: x\n", body)
    too_large(*repeated(b"data: 1234\n", 101))
    too_large(b"".join(repeated(b"data: 1234\n", 101)))
    too_large(*repeated(b"data:\n", 201))
    too_large(*repeated(b"unknown field\n", 100))
    too_large(b"event: " + b"x" * LIMIT)


def test_the_refusal_names_the_limit_and_the_way_out() -> None:
    text = str(too_large(b"x" * 2000))

    assert "larger than 1,000 bytes (at least 2,000)" in text
    assert "max_event_bytes" in text


@pytest.mark.parametrize("prefix", [b"", b"event: ping\n"])
def test_an_event_of_just_the_limit_passes(prefix: bytes) -> None:
    body = prefix + b"data: " + b"x" * (LIMIT - 6 - len(prefix.strip())) + b"\n\n"

    assert 1 == len(decode(body, limit=LIMIT))
    assert 1 == len(decode(*bytewise(body), limit=LIMIT))
    assert 3 == len(decode(body, body, body, limit=LIMIT))
    assert 100 == len(decode(body * 100, limit=LIMIT))


def test_comments_and_other_events_do_not_count() -> None:
    comment = b": " + b"x" * 5000 + b"\n"
    body = b"data: a\n" + comment + b"data: b\n" + comment + b"\n"

    assert [ServerSentEvent("message", b"a\nb")] == decode(body, limit=LIMIT)
    assert [ServerSentEvent("message", b"a\nb")] == decode(*bytewise(body), limit=LIMIT)


@pytest.mark.slow
@given(BODIES, CUTS, st.integers(min_value=0, max_value=60))
def test_the_limit_does_not_depend_on_the_cuts(body: bytes, places: list[int], limit: int) -> None:
    def outcome(chunks: Iterable[bytes]) -> list[ServerSentEvent] | None:
        try:
            return decode(*chunks, limit=limit)
        except EventTooLarge:
            return None

    assert outcome([body]) == outcome(cut(body, places)) == outcome(bytewise(body))


def peak_of(chunks: Iterable[bytes], limit: int) -> int:
    """The most bytes in use while the chunks are fed, until the decoder refuses."""
    decoder = EventStreamDecoder(max_event_bytes=limit)
    tracemalloc.start()
    try:
        for chunk in chunks:
            decoder.feed(chunk)
    except EventTooLarge:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.slow
@pytest.mark.parametrize(
    "chunk", [b"data: ab\n", b"data:\n", b"abc", b": xx", b": xx\n", b"event: ping\ndata: {}\n\n"], ids=repr
)
def test_memory_stays_near_the_limit_whatever_comes(chunk: bytes) -> None:
    limit = 200_000

    assert peak_of(itertools.repeat(chunk, 200_000), limit) < 3 * limit
