"""How long a server wants us to wait, as its headers say it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = ["asked_wait"]

_UNIX_DIGITS: Final = 10
"""Fewer are no moment of our time."""


def asked_wait(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """
    The seconds until the server wants to hear from us again; None where it doesn't say, or says what is no wait.

    Args:
        headers: with lower-case names.
        now: Unix time.
    """
    return _retry_after(headers, now) or _reset_after(status, headers, now)


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds, from milliseconds, seconds or a date; what is none of these, or in the past, says nothing."""
    wait = _number(headers.get("retry-after-ms"))
    if wait is not None:
        return wait / 1000
    text = headers.get("retry-after", "").strip()
    if len(text) >= _UNIX_DIGITS and text.isdecimal():
        return _until(text, now)
    wait = _number(text)
    if wait is None and text:
        try:
            moment = parsedate_to_datetime(text)
        except (TypeError, ValueError, OverflowError):
            return None
        wait = _seconds_until(moment, now)
    return wait


def _reset_after(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """A rate limit without ``retry-after``: until the exhausted allowances are full again."""
    if status != 429:
        return None
    waits: list[float] = []
    for name, text in headers.items():
        if name.startswith("anthropic-ratelimit-") and name.endswith("-reset"):
            wait = _until(text.strip(), now) if _is_exhausted(name.removesuffix("-reset"), headers) else None
            if wait is not None:
                waits.append(wait)
    return max(waits, default=None)


def _is_exhausted(allowance: str, headers: Mapping[str, str]) -> bool:
    """Each allowance tells what remains of it, or a status; the longest of several may have plenty left."""
    remaining = headers.get(f"{allowance}-remaining")
    if remaining is not None:
        return remaining.strip() == "0"
    return headers.get(f"{allowance}-status", "rejected").strip() == "rejected"


def _until(text: str, now: float) -> float | None:
    """Seconds until a moment, which is Unix time or in ISO form."""
    seconds = _number(text) if len(text) >= _UNIX_DIGITS else None
    if seconds is not None:
        return seconds - now if seconds > now else None
    try:
        return _seconds_until(datetime.fromisoformat(text), now)
    except ValueError:
        return None


def _seconds_until(moment: datetime, now: float) -> float | None:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    wait = moment.timestamp() - now
    return wait if wait > 0 else None


def _number(text: str | None) -> float | None:
    if text is None or not re.fullmatch(r"\s*[0-9]{1,12}(\.[0-9]{1,9})?\s*", text):
        return None
    return float(text) or None
