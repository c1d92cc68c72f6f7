"""
JSON from the wire: the fast parser first, a forgiving one for what real servers get wrong. Pure.

Things that make the fast parser refuse what can be understood: bytes that are not UTF-8, escapes that are half of a
surrogate pair (a server cut a character in two), raw line ends in strings, NaN. And things it reads but never writes
again: deep nesting. What comes out of here can be sent back, whatever came in.
"""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

from .messages import JsonObject

__all__ = ["MAX_NESTING", "Unparsable", "mend", "parse_object", "without_surrogates"]

MAX_NESTING: Final = 200
"""Levels of objects and lists. orjson writes no more than 254, and requests and journals put some around a value."""


class Unparsable(ValueError):
    """The bytes are no JSON object, however leniently they are read."""


def parse_object(data: bytes) -> tuple[JsonObject, bool]:
    """
    The object, and whether its texts may hold half surrogate pairs.

    Raises:
        Unparsable: it is no JSON object, or is nested deeper than `MAX_NESTING`.
    """
    torn = False
    value: object
    try:
        value = orjson.loads(data)
        if type(value) is dict and len(data) <= 2 * MAX_NESTING:
            return value, False
    except orjson.JSONDecodeError:
        value = _parse_leniently(data)
        torn = True
    if type(value) is not dict:
        raise Unparsable(f"a JSON {type(value).__name__} where an object is due: {_excerpt(data)}")
    if data.count(b"[") + data.count(b"{") > MAX_NESTING and _is_deep(value):
        raise Unparsable(f"nested deeper than {MAX_NESTING} levels: {_excerpt(data)}")
    return value, torn


def _parse_leniently(data: bytes) -> object:
    try:
        return json.loads(
            data.decode("utf-8", "replace"), strict=False, parse_int=_int, parse_constant=lambda _name: None
        )
    except (ValueError, RecursionError) as error:
        raise Unparsable(f"{error}: {_excerpt(data)}") from None


def _int(digits: str) -> int | float:
    """As orjson reads it: what has no room in 64 bits is a float, since nobody could write it again."""
    number = int(digits) if len(digits) <= 20 else float(digits)
    return number if -(2**63) <= number < 2**64 else float(digits)


def _is_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def mend(text: str) -> str:
    """The text with surrogate pairs joined, and what is left of half ones replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def without_surrogates(value: Any) -> Any:
    """A copy of a JSON value that can be encoded: `mend` on each of its texts."""
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, list | tuple):
        return [without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {mend(key) if isinstance(key, str) else key: without_surrogates(item) for key, item in value.items()}
    return value


def _excerpt(data: bytes) -> str:
    text = data[:120].decode("utf-8", "replace")
    return repr(text if len(data) <= 120 else f"{text}...")
