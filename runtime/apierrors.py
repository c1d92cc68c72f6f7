"""
What an API's error object means: from its type, status and text to a `ModelFailure`. Pure.

The same objects come as HTTP error bodies and as ``error`` events inside a stream that began with status 200, so
both are read here. Texts are looked at only where the API says something in no other way (a prompt that is too
long, an overflow's numbers).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .model import FailureKind, ModelFailure

__all__ = ["error_object", "failure_from_error", "kind_of_status"]

_KINDS: Mapping[str, FailureKind] = {
    "invalid_request_error": FailureKind.INVALID_REQUEST,
    "authentication_error": FailureKind.AUTHENTICATION,
    "billing_error": FailureKind.BILLING,
    "permission_error": FailureKind.PERMISSION,
    "not_found_error": FailureKind.NOT_FOUND,
    "request_too_large": FailureKind.REQUEST_TOO_LARGE,
    "rate_limit_error": FailureKind.RATE_LIMIT,
    "timeout_error": FailureKind.TIMEOUT,
    "api_error": FailureKind.SERVER_ERROR,
    "overloaded_error": FailureKind.OVERLOADED,
    # what compatible servers say
    "server_error": FailureKind.SERVER_ERROR,
    "internal_server_error": FailureKind.SERVER_ERROR,
    "service_unavailable": FailureKind.OVERLOADED,
    "overloaded": FailureKind.OVERLOADED,
    "rate_limit_exceeded": FailureKind.RATE_LIMIT,
    "insufficient_quota": FailureKind.BILLING,
    "invalid_api_key": FailureKind.AUTHENTICATION,
    "context_length_exceeded": FailureKind.PROMPT_TOO_LONG,
    "model_not_found": FailureKind.NOT_FOUND,
}

_STATUS: Mapping[int, FailureKind] = {
    400: FailureKind.INVALID_REQUEST,
    401: FailureKind.AUTHENTICATION,
    402: FailureKind.BILLING,
    403: FailureKind.PERMISSION,
    404: FailureKind.NOT_FOUND,
    408: FailureKind.TIMEOUT,
    409: FailureKind.SERVER_ERROR,
    413: FailureKind.REQUEST_TOO_LARGE,
    422: FailureKind.INVALID_REQUEST,
    429: FailureKind.RATE_LIMIT,
    503: FailureKind.OVERLOADED,
    529: FailureKind.OVERLOADED,
}

_GENERAL = (FailureKind.INVALID_REQUEST, FailureKind.SERVER_ERROR)
"""What servers say when nothing better comes to them."""

_RETRYABLE = frozenset(
    (
        FailureKind.RATE_LIMIT,
        FailureKind.OVERLOADED,
        FailureKind.SERVER_ERROR,
        FailureKind.TIMEOUT,
        FailureKind.UNKNOWN,
    )
)

_TOO_LONG = re.compile(r"prompt is too long(?::\s*([0-9]{1,12})\s*tokens?\s*>\s*([0-9]{1,12}))?", re.IGNORECASE)
_OTHER_TOO_LONG = re.compile(r"maximum context length|context (?:length|window)|too many tokens", re.IGNORECASE)
_OVERFLOW = re.compile(
    r"input length and `?max_tokens`? exceed context limit:\s*"
    r"(?P<input>[0-9]{1,12})\s*\+\s*(?P<output>[0-9]{1,12})\s*>\s*(?P<window>[0-9]{1,12})",
    re.IGNORECASE,
)
_OTHER_OVERFLOW = re.compile(
    r"maximum context length is (?P<window>[0-9]{1,12}) tokens.{0,80}?"
    r"\((?P<input>[0-9]{1,12}) in the messages,.{0,40}?(?P<output>[0-9]{1,12}) in the completion",
    re.IGNORECASE,
)
"""As OpenAI's own API and the servers modelled on it say it."""
_MEDIA = re.compile(
    r"image exceeds|image dimensions|could not process (?:image|pdf)|pdf (?:pages|too)|maximum of \d+ pdf|"
    r"too many images|media[_ ]type|image.{0,40}(?:too large|size limit)",
    re.IGNORECASE,
)
_SPEND_LIMIT = re.compile(
    r"credit balance|spend(?:ing)? limit|usage limits?\b|insufficient.quota|exceeded your current quota", re.IGNORECASE
)
"""Not any quota: some providers call their limits for each minute so."""

_LONGEST_MESSAGE = 2_000
_NO_REASON = "the server gave no reason"


def kind_of_status(status: int) -> FailureKind:
    """What an HTTP status alone says."""
    known = _STATUS.get(status)
    if known is not None:
        return known
    if status >= 500:
        return FailureKind.SERVER_ERROR
    return FailureKind.INVALID_REQUEST if 400 <= status < 500 else FailureKind.UNKNOWN


def error_object(data: object) -> tuple[str, str] | None:
    """
    The (type, message) of an error object, in any of the shapes that servers use; None if it is none.

    ``{"type": "error", "error": {...}}``, ``{"error": {...}}``, ``{"error": "text"}``, ``{"detail": ...}``,
    ``{"message": "text", "type": ...}``. The type may be a status in digits.
    """
    if not isinstance(data, Mapping):
        return None
    error: Any = data.get("error")
    if isinstance(error, str):
        return "", error or _NO_REASON
    if isinstance(error, Mapping):
        code = _code(error)
        message = error.get("message")
        return code, message if isinstance(message, str) and message else code or _NO_REASON
    if "content" in data:
        return None
    if data.get("type") == "error" or isinstance(data.get("message"), str):
        return _code(data), str(data.get("message") or _NO_REASON)
    return ("", str(data["detail"])) if "detail" in data else None


def _code(error: Mapping[str, Any]) -> str:
    """The type or code that means something, else the first there is."""
    words = [error.get("type"), error.get("code")]
    codes = [str(word) for word in words if isinstance(word, str | int) and not isinstance(word, bool)]
    return next((code for code in codes if code in _KINDS), codes[0] if codes else "")


def failure_from_error(
    type: str,
    message: str,
    *,
    status: int | None = None,
    retry_after: float | None = None,
    request_id: str | None = None,
    should_retry: bool | None = None,
) -> ModelFailure:
    """
    The failure that an error object describes.

    Args:
        status: the HTTP status; None inside a stream.
        should_retry: what the server itself says about retrying (``x-should-retry``), if it does.
    """
    message = message[:_LONGEST_MESSAGE]
    kind = _kind(type, status)
    if "overloaded_error" in message:
        kind = FailureKind.OVERLOADED
    numbers: dict[str, int] = {}
    if kind in (FailureKind.INVALID_REQUEST, FailureKind.REQUEST_TOO_LARGE, FailureKind.PROMPT_TOO_LONG):
        kind, numbers = _by_text(kind, message)
    retryable = kind in _RETRYABLE
    if kind in (FailureKind.RATE_LIMIT, FailureKind.INVALID_REQUEST) and _SPEND_LIMIT.search(message):
        # A spending limit is lifted by a person, not by waiting.
        kind, retryable = FailureKind.BILLING, False
    if should_retry is not None and kind is not FailureKind.BILLING:
        retryable = should_retry
    return ModelFailure(
        kind=kind,
        message=message,
        retryable=retryable,
        status=status,
        retry_after=retry_after,
        request_id=request_id,
        **numbers,
    )


def _kind(type: str, status: int | None) -> FailureKind:
    """A specific type says more than the status; a general one less; a status of success nothing."""
    kind = _KINDS.get(type)
    if status is not None and (kind is None or (status >= 400 and kind in _GENERAL)):
        return kind_of_status(status)
    if kind is None and re.fullmatch(r"[45][0-9]{2}", type):
        return kind_of_status(int(type))
    return kind or FailureKind.SERVER_ERROR


def _by_text(kind: FailureKind, message: str) -> tuple[FailureKind, dict[str, int]]:
    overflow = _OVERFLOW.search(message) or _OTHER_OVERFLOW.search(message)
    if overflow is not None:
        needed, output, window = (int(overflow[name]) for name in ("input", "output", "window"))
        return FailureKind.CONTEXT_OVERFLOW, {"input_tokens": needed, "max_tokens": output, "window": window}
    too_long = _TOO_LONG.search(message)
    if too_long is not None:
        if too_long.group(1) is None:
            return FailureKind.PROMPT_TOO_LONG, {}
        return FailureKind.PROMPT_TOO_LONG, {"input_tokens": int(too_long[1]), "window": int(too_long[2])}
    if _OTHER_TOO_LONG.search(message):
        return FailureKind.PROMPT_TOO_LONG, {}
    if _MEDIA.search(message):
        return FailureKind.MEDIA, {}
    return kind, {}
