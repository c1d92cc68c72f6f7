"""What an API's error objects mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.apierrors import error_object, failure_from_error, kind_of_status
from atrio.runtime.model import FailureKind, ModelFailure

K = FailureKind
RETRIED = {K.RATE_LIMIT, K.OVERLOADED, K.SERVER_ERROR, K.TIMEOUT, K.UNKNOWN}


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        ("invalid_request_error", K.INVALID_REQUEST),
        ("authentication_error", K.AUTHENTICATION),
        ("billing_error", K.BILLING),
        ("permission_error", K.PERMISSION),
        ("not_found_error", K.NOT_FOUND),
        ("request_too_large", K.REQUEST_TOO_LARGE),
        ("rate_limit_error", K.RATE_LIMIT),
        ("timeout_error", K.TIMEOUT),
        ("api_error", K.SERVER_ERROR),
        ("overloaded_error", K.OVERLOADED),
        ("insufficient_quota", K.BILLING),
        ("invalid_api_key", K.AUTHENTICATION),
        ("context_length_exceeded", K.PROMPT_TOO_LONG),
        ("429", K.RATE_LIMIT),
        ("502", K.SERVER_ERROR),
        ("1234", K.SERVER_ERROR),
        ("BadGateway", K.SERVER_ERROR),
        ("", K.SERVER_ERROR),
    ],
)
def test_types_inside_a_stream(type: str, kind: FailureKind) -> None:
    assert ModelFailure(kind=kind, message="m", retryable=kind in RETRIED) == failure_from_error(type, "m")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, K.INVALID_REQUEST),
        (401, K.AUTHENTICATION),
        (402, K.BILLING),
        (403, K.PERMISSION),
        (404, K.NOT_FOUND),
        (408, K.TIMEOUT),
        (409, K.SERVER_ERROR),
        (413, K.REQUEST_TOO_LARGE),
        (418, K.INVALID_REQUEST),
        (422, K.INVALID_REQUEST),
        (429, K.RATE_LIMIT),
        (500, K.SERVER_ERROR),
        (501, K.SERVER_ERROR),
        (502, K.SERVER_ERROR),
        (503, K.OVERLOADED),
        (504, K.SERVER_ERROR),
        (520, K.SERVER_ERROR),
        (529, K.OVERLOADED),
        (204, K.UNKNOWN),
        (103, K.UNKNOWN),
    ],
)
def test_statuses_alone(status: int, kind: FailureKind) -> None:
    assert kind is kind_of_status(status)
    failure = failure_from_error("", "m", status=status)
    assert ModelFailure(kind=kind, message="m", retryable=kind in RETRIED, status=status) == failure


@pytest.mark.parametrize(
    ("type", "status", "kind"),
    [
        ("overloaded_error", 500, K.OVERLOADED),
        ("rate_limit_error", 400, K.RATE_LIMIT),
        ("invalid_request_error", 413, K.REQUEST_TOO_LARGE),
        ("invalid_request_error", 500, K.SERVER_ERROR),
        ("invalid_request_error", 200, K.INVALID_REQUEST),
        ("api_error", 400, K.INVALID_REQUEST),
        ("api_error", 401, K.AUTHENTICATION),
        ("api_error", 529, K.OVERLOADED),
        ("NewError", 404, K.NOT_FOUND),
    ],
)
def test_a_specific_type_says_more_than_the_status_and_a_general_one_less(
    type: str, status: int, kind: FailureKind
) -> None:
    assert kind is failure_from_error(type, "m", status=status).kind


@pytest.mark.parametrize(
    ("message", "kind", "numbers"),
    [
        ("prompt is too long: 213462 tokens > 200000 maximum", K.PROMPT_TOO_LONG, (213462, None, 200000)),
        ("Prompt is too long", K.PROMPT_TOO_LONG, (None, None, None)),
        (
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length",
            K.CONTEXT_OVERFLOW,
            (188240, 21333, 200000),
        ),
        ("input length and max_tokens exceed context limit: 1 + 2 > 3", K.CONTEXT_OVERFLOW, (1, 2, 3)),
        (
            "This model's maximum context length is 4096 tokens. However, you requested 4500 tokens "
            "(3500 in the messages, 1000 in the completion). Please reduce the length.",
            K.CONTEXT_OVERFLOW,
            (3500, 1000, 4096),
        ),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            K.PROMPT_TOO_LONG,
            (None, None, None),
        ),
        ("prompt is too long: " + "9" * 5000 + " tokens > 1 maximum", K.PROMPT_TOO_LONG, (None, None, None)),
        ("messages.3.content.1.image.source.base64: image exceeds 5 MB maximum", K.MEDIA, (None, None, None)),
        ("messages.0.content.0: Could not process image", K.MEDIA, (None, None, None)),
        ("A maximum of 100 PDF pages may be provided", K.MEDIA, (None, None, None)),
        ("max_tokens: 99999 > 64000, which is the maximum for m", K.INVALID_REQUEST, (None, None, None)),
        ("Your credit balance is too low to access the Anthropic API.", K.BILLING, (None, None, None)),
        ("You have reached your specified API usage limits.", K.BILLING, (None, None, None)),
    ],
)
def test_texts_of_refused_requests(
    message: str, kind: FailureKind, numbers: tuple[int | None, int | None, int | None]
) -> None:
    failure = failure_from_error("invalid_request_error", message, status=400)

    assert (kind, numbers) == (failure.kind, (failure.input_tokens, failure.max_tokens, failure.window))
    assert not failure.retryable


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("This request would exceed the rate limit for your organization of 50,000 tokens per minute", K.RATE_LIMIT),
        ("Quota exceeded for online_prediction_requests_per_base_model", K.RATE_LIMIT),
        ("You exceeded your current quota, please check your plan and billing details", K.BILLING),
        ("Your organization has reached its monthly spend limit", K.BILLING),
        ('upstream said {"type":"overloaded_error"}', K.OVERLOADED),
    ],
)
def test_a_limit_that_waiting_lifts_is_retried_and_a_spending_limit_is_not(message: str, kind: FailureKind) -> None:
    failure = failure_from_error("rate_limit_error", message, status=429, should_retry=True)

    assert (kind, kind is not K.BILLING) == (failure.kind, failure.retryable)


@pytest.mark.parametrize(("said", "expected"), [(True, True), (False, False), (None, True)])
def test_the_server_decides_about_retries(said: bool | None, expected: bool) -> None:
    assert expected is failure_from_error("api_error", "m", status=500, should_retry=said).retryable


def test_a_400_is_retried_only_if_the_server_says_so() -> None:
    assert not failure_from_error("invalid_request_error", "m", status=400).retryable
    assert failure_from_error("invalid_request_error", "m", status=400, should_retry=True).retryable


def test_a_message_is_cut_to_a_readable_length() -> None:
    assert 2000 == len(failure_from_error("", "x" * 10_000_000).message)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"type": "error", "error": {"type": "api_error", "message": "m"}}, ("api_error", "m")),
        ({"error": {"message": "m", "type": None, "code": "invalid_api_key"}}, ("invalid_api_key", "m")),
        ({"error": {"message": "m", "type": "odd", "code": "invalid_api_key"}}, ("invalid_api_key", "m")),
        ({"error": {"message": "m", "type": "odd", "code": "odder"}}, ("odd", "m")),
        ({"error": {"message": "m", "code": 429}}, ("429", "m")),
        ({"error": {"message": "m", "code": True}}, ("", "m")),
        ({"error": {"type": "api_error"}}, ("api_error", "api_error")),
        ({"error": {}}, ("", "the server gave no reason")),
        ({"error": ""}, ("", "the server gave no reason")),
        ({"error": "m"}, ("", "m")),
        ({"type": "error"}, ("error", "the server gave no reason")),
        ({"type": "rate_limit_error", "message": "m"}, ("rate_limit_error", "m")),
        ({"message": "Too many requests"}, ("", "Too many requests")),
        ({"detail": "Not Found"}, ("", "Not Found")),
        ({"detail": [{"msg": "x"}]}, ("", "[{'msg': 'x'}]")),
        ({"type": "message", "content": [], "detail": "x"}, None),
        ({"error": None}, None),
        ({}, None),
        ([], None),
        ("error", None),
        (None, None),
    ],
    ids=repr,
)
def test_shapes_of_error_objects(data: object, expected: tuple[str, str] | None) -> None:
    assert expected == error_object(data)


@given(
    st.text(max_size=8) | st.sampled_from(["invalid_request_error", "api_error"]),
    st.text(max_size=8) | st.sampled_from(["prompt is too long: 1 tokens > ", "quota"]),
    st.none() | st.integers(0, 999),
    st.none() | st.booleans(),
)
def test_no_error_object_raises(type: str, message: str, status: int | None, said: bool | None) -> None:
    failure = failure_from_error(type, message, status=status, should_retry=said)

    assert status == failure.status
