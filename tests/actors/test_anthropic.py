"""The Anthropic provider: addresses and keys, requests as bytes, what HTTP errors mean."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.providers.anthropic import DEFAULT_BASE_URL, AnthropicProvider
from atrio.actors.testing import violations_of
from atrio.runtime.config import Config
from atrio.runtime.errors import ConfigError
from atrio.runtime.history import wire_messages
from atrio.runtime.messages import (
    AssistantMessage,
    JsonObject,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from atrio.runtime.model import FailureKind, ModelFailure, ModelRequest

NOW = 1_750_000_000.0
MARK = {"type": "ephemeral"}
PROVIDER = AnthropicProvider(api_key="sk-test")
REQUEST = ModelRequest(model="m", messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}])


def config(**fields: Any) -> Config:
    return attrs.evolve(Config(), **fields)


def body_of(request: ModelRequest, provider: AnthropicProvider = PROVIDER, *, stream: bool = True) -> JsonObject:
    body: JsonObject = orjson.loads(provider.http_request(request, stream=stream).body)
    return body


# --- addresses and keys -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "url"),
    [
        (DEFAULT_BASE_URL, "https://api.anthropic.com/v1/messages"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1/messages"),
        ("http://x/", "http://x/v1/messages"),
        ("http://x//", "http://x/v1/messages"),
        ("http://x/v1", "http://x/v1/messages"),
        ("http://x/v1/", "http://x/v1/messages"),
        ("http://x/v1/messages", "http://x/v1/messages"),
        ("http://x/api/anthropic", "http://x/api/anthropic/v1/messages"),
        ("http://x/api/v1", "http://x/api/v1/messages"),
        ("http://x/v10", "http://x/v10/v1/messages"),
        ("http://[::1]:80", "http://[::1]:80/v1/messages"),
    ],
)
def test_the_address_is_joined_to_any_base(base: str, url: str) -> None:
    assert url == AnthropicProvider(base_url=base).url
    assert url == AnthropicProvider.from_config(config(base_url=base)).url


@pytest.mark.parametrize(
    "base",
    [
        "x",
        "localhost:8000",
        "ftp://x",
        "http://",
        "http:///v1",
        " http://x",
        "http://x\n",
        "http://exa mple",
        "http://x:abc",
        "http://x:99999",
        "http://[::1",
        "http://x?key=1",
        "http://x/#v1",
        "http://\u2603.com",
        "http://xn--zzzz--",
        "http://user:secret@x",
    ],
)
def test_an_address_that_is_none_is_refused_in_one_sentence(base: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AnthropicProvider.from_config(config(base_url=base, api_key="k"))

    text = str(caught.value)
    assert text.startswith("ANTHROPIC_BASE_URL: ")
    assert "\n" not in text
    assert "secret" not in text


@pytest.mark.parametrize("base", [None, ""])
def test_a_missing_key_for_the_public_api_names_the_ways_out(base: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        AnthropicProvider.from_config(config(base_url=base))

    assert "ANTHROPIC_API_KEY" in str(caught.value)
    assert "atrio demo" in str(caught.value)


@pytest.mark.parametrize("field", ["api_key", "auth_token"])
@pytest.mark.parametrize("key", ["sk ant", "sk\n", "s\u00e9", "\u201csk\u201d", " "])
def test_a_key_that_no_header_takes_is_refused_without_being_shown(field: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AnthropicProvider.from_config(config(**{field: key}))

    assert key.strip() == "" or key.strip() not in str(caught.value)


@pytest.mark.parametrize("key", [None, ""])
def test_a_server_of_ones_own_needs_no_key(key: str | None) -> None:
    provider = AnthropicProvider.from_config(config(base_url="http://x", api_key=key))

    assert {"x-api-key", "authorization"}.isdisjoint(provider.http_request(REQUEST, stream=True).headers)


def test_the_endpoint_tells_keys_apart_and_shows_none() -> None:
    one, other = AnthropicProvider(api_key="sk-one"), AnthropicProvider(auth_token="sk-one")

    assert one.endpoint != other.endpoint
    assert one.endpoint == AnthropicProvider(api_key="sk-one").endpoint
    assert "sk-one" not in one.endpoint + repr(one) + repr(other)


# --- requests -----------------------------------------------------------------------------------------------------


def test_headers() -> None:
    provider = AnthropicProvider(api_key="sk", auth_token="tok", betas=("b1", "b2"))
    headers = dict(provider.http_request(attrs.evolve(REQUEST, betas=("b2", "b3")), stream=True).headers)

    assert headers.pop("user-agent").startswith("atrio")
    assert {
        "accept": "application/json",
        "accept-encoding": "identity",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "b1,b2,b3",
        "authorization": "Bearer tok",
        "content-type": "application/json",
        "x-api-key": "sk",
    } == headers


def test_a_whole_request() -> None:
    request = ModelRequest(
        model="claude-x",
        system=("base", "", "context"),
        tools=[{"name": "A", "input_schema": {"type": "object"}}, {"name": "B", "input_schema": {"type": "object"}}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "A", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
        ],
        max_tokens=100,
        thinking={"type": "adaptive"},
        extra={"metadata": {"user_id": "u"}},
    )
    http = PROVIDER.http_request(request, stream=True)

    assert ("POST", "https://api.anthropic.com/v1/messages") == (http.method, http.url)
    assert (
        b'{"model":"claude-x","max_tokens":100,'
        b'"system":[{"type":"text","text":"base"},'
        b'{"type":"text","text":"context","cache_control":{"type":"ephemeral"}}],'
        b'"tools":[{"name":"A","input_schema":{"type":"object"}},'
        b'{"name":"B","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}],'
        b'"messages":[{"role":"user","content":[{"type":"text","text":"go",'
        b'"cache_control":{"type":"ephemeral"}}]},'
        b'{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"A","input":{}}]},'
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"ok",'
        b'"cache_control":{"type":"ephemeral"}}]}],'
        b'"thinking":{"type":"adaptive"},"metadata":{"user_id":"u"},"stream":true}'
    ) == http.body
    assert [] == violations_of(orjson.loads(http.body))


def test_without_streaming_nothing_is_said_about_it() -> None:
    assert "stream" not in body_of(REQUEST, stream=False)


def test_an_empty_system_prompt_is_left_out() -> None:
    assert "system" not in body_of(attrs.evolve(REQUEST, system=("", " \n")))


def test_content_that_is_plain_text_may_be_marked() -> None:
    body = body_of(attrs.evolve(REQUEST, messages=[{"role": "user", "content": "hi"}]))

    assert [{"type": "text", "text": "hi", "cache_control": MARK}] == body["messages"][0]["content"]


def test_without_caching_nothing_is_marked() -> None:
    request = attrs.evolve(REQUEST, system=("a",), tools=[{"name": "A", "input_schema": {"type": "object"}}])

    assert b"cache_control" not in AnthropicProvider(caching=False).http_request(request, stream=True).body


def marked(text: str) -> JsonObject:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral", "ttl": "1h"}}


def test_marks_that_come_along_never_make_more_than_four() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [marked("x"), marked("y")]}
    request = attrs.evolve(
        REQUEST,
        system=("a", "b"),
        tools=[{"name": n, "input_schema": {"type": "object"}, "cache_control": MARK} for n in "AB"],
        messages=[
            {"role": "user", "content": [marked("a"), marked("b")]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "A", "input": {}}]},
            {"role": "user", "content": [result, marked("c")]},
            {"role": "assistant", "content": [marked("d")]},
            {"role": "user", "content": [marked("e"), marked("f")]},
        ],
    )
    before = orjson.dumps(request.messages)
    body = body_of(request)

    assert [] == violations_of(body)
    assert 4 == orjson.dumps(body).count(b'"cache_control"')
    assert {"type": "ephemeral", "ttl": "1h"} == body["messages"][-1]["content"][-1]["cache_control"]
    assert before == orjson.dumps(request.messages)


def conversation(turns: int) -> list[Message]:
    messages: list[Message] = [UserMessage(uuid="u", content=(TextBlock("go"),))]
    for n in range(turns):
        thought = ThinkingBlock(f"think {n}", f"sig{n}")
        call = ToolUseBlock(f"t{n}", "Read", {"z": n, "a": [1.5, None, "\u2028"]})
        content = (thought, TextBlock(f"step {n}"), call)
        messages.append(AssistantMessage(uuid=f"a{n}", message_id=f"m{n}", model="m", content=content))
        messages.append(UserMessage(uuid=f"r{n}", content=(ToolResultBlock(f"t{n}", f"out {n}"),)))
    return messages


def test_consecutive_requests_share_their_prefix_byte_for_byte() -> None:
    def unmarked(turns: int) -> bytes:
        request = ModelRequest(
            model="m",
            system=("base", "context"),
            tools=[{"name": "A", "input_schema": {"type": "object"}}],
            messages=wire_messages(conversation(turns), model="m"),
        )
        body = PROVIDER.http_request(request, stream=True).body.replace(b',"cache_control":{"type":"ephemeral"}', b"")
        return body.partition(b'],"stream"')[0]

    bodies = [unmarked(turns) for turns in range(21)]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(bodies))
    assert bodies == [unmarked(turns) for turns in range(21)]


def test_the_breakpoint_of_a_request_is_one_of_the_next() -> None:
    def marks(turns: int) -> list[int]:
        messages = wire_messages(conversation(turns), model="m")
        body = body_of(ModelRequest(model="m", messages=messages))
        return [n for n, message in enumerate(body["messages"]) if b"cache_control" in orjson.dumps(message)]

    assert [[0], [0, 2], [2, 4], [4, 6]] == [marks(turns) for turns in range(4)]


DEEP: Any = []
for _ in range(400):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a\ud83d", "a\ufffd"), ("\ud83d\ude00", "\U0001f600"), (2**70, 2**70), ({1: 2}, {"1": 2}), (DEEP, DEEP)],
    ids=["half a character", "two halves", "a large number", "a number as key", "deep nesting"],
)
def test_what_the_fast_encoder_refuses_is_sent_all_the_same(value: object, expected: object) -> None:
    request = attrs.evolve(REQUEST, extra={"metadata": {"x": value, "y": "\ud83d"}})

    sent = json.loads(PROVIDER.http_request(request, stream=True).body.decode())
    assert {"x": expected, "y": "\ufffd"} == sent["metadata"]


# --- failures -----------------------------------------------------------------------------------------------------


def classify(status: int, body: bytes | JsonObject = b"", **headers: str) -> ModelFailure:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return PROVIDER.classify(status, named, body if isinstance(body, bytes) else orjson.dumps(body), now=NOW)


def error(type: str, message: str = "m") -> JsonObject:
    return {"type": "error", "error": {"type": type, "message": message}, "request_id": "req_body"}


@pytest.mark.parametrize(
    ("status", "type", "kind", "retryable"),
    [
        (400, "invalid_request_error", FailureKind.INVALID_REQUEST, False),
        (401, "authentication_error", FailureKind.AUTHENTICATION, False),
        (402, "billing_error", FailureKind.BILLING, False),
        (403, "permission_error", FailureKind.PERMISSION, False),
        (404, "not_found_error", FailureKind.NOT_FOUND, False),
        (408, "timeout_error", FailureKind.TIMEOUT, True),
        (409, "conflict_error", FailureKind.SERVER_ERROR, True),
        (413, "request_too_large", FailureKind.REQUEST_TOO_LARGE, False),
        (429, "rate_limit_error", FailureKind.RATE_LIMIT, True),
        (500, "api_error", FailureKind.SERVER_ERROR, True),
        (504, "timeout_error", FailureKind.TIMEOUT, True),
        (529, "overloaded_error", FailureKind.OVERLOADED, True),
        (200, "overloaded_error", FailureKind.OVERLOADED, True),
    ],
)
def test_errors_of_the_api(status: int, type: str, kind: FailureKind, retryable: bool) -> None:
    expected = ModelFailure(kind=kind, message="m", retryable=retryable, status=status, request_id="req_1")

    assert expected == classify(status, error(type), request_id="req_1")


@pytest.mark.parametrize("status", range(400, 600))
def test_every_error_status_is_classified_and_named_without_a_body(status: int) -> None:
    failure = classify(status)

    assert f"HTTP {status}" in failure.message
    assert failure.retryable is (status >= 500 or status in (408, 409, 429))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            b"<html><head><style>p{}</style><script>x<y</script></head><body><h1>502  Bad\nGateway</h1></body></html>",
            "the model server answered HTTP 502: 502 Bad Gateway",
        ),
        (b"upstream\r\n unavailable", "the model server answered HTTP 502: upstream unavailable"),
        (b"\xff\xfe", "the model server answered HTTP 502: \ufffd\ufffd"),
        (b"", "the model server answered HTTP 502 and no text"),
        (b"[1]", "the model server answered HTTP 502: [1]"),
        (b"x" * 5000, "the model server answered HTTP 502: " + "x" * 300),
        (b'{"message":"no healthy upstream"}', "no healthy upstream"),
    ],
    ids=["html", "text", "no utf-8", "nothing", "a list", "much", "a message"],
)
def test_bodies_that_are_no_error_object_are_quoted_as_text(body: bytes, text: str) -> None:
    assert text == classify(502, body).message


def test_a_404_without_an_error_object_points_at_the_address() -> None:
    failure = classify(404, b"<h1>Not Found</h1>")

    assert FailureKind.NOT_FOUND is failure.kind
    assert (
        "there is no Messages API at https://api.anthropic.com/v1/messages (HTTP 404: Not Found); "
        "check ANTHROPIC_BASE_URL" == failure.message
    )


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_names_the_final_address_and_is_not_retried(status: int) -> None:
    failure = classify(status, location="https://y/v1/messages")

    assert "redirects to https://y/v1/messages" in failure.message
    assert not failure.retryable


def test_a_200_that_is_no_error_is_malformed() -> None:
    assert FailureKind.MALFORMED is classify(200, b"<html>").kind


@pytest.mark.parametrize(("value", "expected"), [("true", True), (" False ", False), ("maybe", None), ("", None)])
@pytest.mark.parametrize(("status", "otherwise"), [(400, False), (500, True), (429, True)])
def test_the_header_about_retries_is_obeyed(value: str, expected: bool | None, status: int, otherwise: bool) -> None:
    failure = classify(status, x_should_retry=value)

    assert (otherwise if expected is None else expected) is failure.retryable


def test_a_spending_limit_is_not_retried_whatever_the_header_says() -> None:
    body = error("invalid_request_error", "Your credit balance is too low to access the API")
    failure = classify(400, body, x_should_retry="true")

    assert (FailureKind.BILLING, False) == (failure.kind, failure.retryable)


def test_an_overflow_keeps_its_numbers() -> None:
    text = "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"
    failure = classify(400, error("invalid_request_error", text))

    assert (FailureKind.CONTEXT_OVERFLOW, 188240, 21333, 200000) == (
        failure.kind,
        failure.input_tokens,
        failure.max_tokens,
        failure.window,
    )


def http_date(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "30"}, 30),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "3600"}, 3600),
        ({"retry-after": http_date(30)}, 30),
        ({"retry-after": f"{NOW + 30:.0f}"}, 30),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "30"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "30"}, 30),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "\u0663"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": http_date(-30)}, None),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 +99999999999999"}, None),
        ({"retry-after-ms": "-1"}, None),
    ],
    ids=str,
)
def test_what_the_server_says_about_waiting(headers: Mapping[str, str], wait: float | None) -> None:
    for status in (429, 503, 529):
        assert wait == PROVIDER.classify(status, headers, b"", now=NOW).retry_after


def limit(name: str, **fields: str) -> dict[str, str]:
    return {f"anthropic-ratelimit-{name}-{field}": value for field, value in fields.items()}


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        (limit("requests", remaining="0", reset=iso(20)), 20),
        (limit("requests", remaining="0", reset=iso(20)) | limit("tokens", remaining="0", reset=iso(40)), 40),
        (limit("requests", remaining="0", reset=iso(20)) | limit("tokens", remaining="9", reset=iso(40)), 20),
        (limit("requests", remaining="3", reset=iso(20)), None),
        (limit("requests", reset=iso(20)), 20),
        (limit("requests", remaining="0", reset=iso(-20)), None),
        (limit("requests", remaining="0", reset="later"), None),
        (limit("requests", remaining="0", reset="2025-06-15T15:06:60"), None),
        (limit("requests", remaining="0", reset=""), None),
        (limit("unified", status="rejected", reset=f"{NOW + 50:.0f}"), 50),
        (
            limit("unified-5h", status="rejected", reset=f"{NOW + 50:.0f}")
            | limit("unified-7d", status="allowed", reset=f"{NOW + 500_000:.0f}"),
            50,
        ),
        (limit("requests", remaining="0", reset=iso(20)) | {"retry-after": "5"}, 5),
    ],
    ids=str,
)
def test_a_rate_limit_without_a_wait_lasts_until_its_reset(headers: Mapping[str, str], wait: float | None) -> None:
    assert wait == PROVIDER.classify(429, headers, b"", now=NOW).retry_after


def test_resets_say_nothing_about_other_failures() -> None:
    headers = limit("requests", remaining="0", reset=iso(20))

    assert PROVIDER.classify(529, headers, b"", now=NOW).retry_after is None


HEADER_TEXT = st.text(max_size=30) | st.from_regex(r"[A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{1,6} [\d:]{0,9} ?[+-]?\w*")


@pytest.mark.slow
@given(st.integers(100, 999), HEADER_TEXT, HEADER_TEXT, st.binary(max_size=40))
def test_no_answer_raises_and_every_wait_is_ahead(status: int, wait: str, reset: str, body: bytes) -> None:
    headers = {"retry-after": wait, "retry-after-ms": reset, "anthropic-ratelimit-tokens-reset": reset}
    failure = PROVIDER.classify(status, headers, body, now=NOW)

    assert failure.message
    assert failure.retry_after is None or failure.retry_after > 0
