"""
JSON from the wire: the fast parser first, a forgiving one for what real servers get wrong. Pure.

Two things make the fast parser refuse what can be understood: bytes that are not UTF-8, and escapes that are half
of a surrogate pair (a server cut a character in two).
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from .messages import JsonObject

__all__ = ["Unparsable", "mend", "parse_object", "without_surrogates"]


class Unparsable(ValueError):
    """The bytes are no JSON object, however leniently they are read."""


def parse_object(data: bytes) -> tuple[JsonObject, bool]:
    """
    The object, and whether its texts may hold half surrogate pairs.

    Raises:
        Unparsable: it is no JSON object.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return _parse_leniently(data), True
    if type(value) is not dict:
        raise Unparsable(f"a JSON {type(value).__name__} where an object is due: {_excerpt(data)}")
    return value, False


def _parse_leniently(data: bytes) -> JsonObject:
    try:
        value = json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise Unparsable(f"{error}: {_excerpt(data)}") from None
    if type(value) is not dict:
        raise Unparsable(f"a JSON {type(value).__name__} where an object is due: {_excerpt(data)}")
    return value


def mend(text: str) -> str:
    """The text with surrogate pairs joined, and what is left of half ones replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def without_surrogates(value: Any) -> Any:
    """A copy of a JSON value that can be encoded: `mend` on each of its texts."""
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, list):
        return [without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {mend(key): without_surrogates(item) for key, item in value.items()}
    return value


def _excerpt(data: bytes) -> str:
    text = data[:120].decode("utf-8", "replace")
    return repr(text if len(data) <= 120 else f"{text}...")
