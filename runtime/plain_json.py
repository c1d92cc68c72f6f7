"""
JSON for any value whatsoever: the fast encoder first, a copy that it can't refuse otherwise. Pure.

What is recorded comes from tools and models: half surrogate pairs, numbers of any size, cycles, objects of any class.
None of it may keep a record from being written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from .wirejson import mend

__all__ = ["json_line"]

_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
# The encoder refuses 255 levels; a line has a few of its own around what it is given.
_MAX_DEPTH = 200
_TOO_DEEP = "[nested too deeply to be recorded]"
# Python refuses to write integers of more than 4,300 digits.
_MAX_BITS = 10_000


def json_line(value: Mapping[str, Any]) -> bytes:
    """
    The value as one line, with its newline. Never fails.

    What JSON has no form for is kept as text, what is nested too deeply is left out, half surrogate pairs are replaced.
    """
    try:
        return orjson.dumps(value, default=_form, option=_OPTIONS)
    except TypeError:
        return orjson.dumps(_plain(value, ()), option=_OPTIONS)


def _form(value: object) -> Any:
    """The encoder's hook: what stands for a value that it doesn't know."""
    fields = getattr(type(value), "__attrs_attrs__", None)
    if fields is not None:
        return {field.name: getattr(value, field.name, None) for field in fields}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return list(value)
    return str(value)


def _plain(value: object, inside: tuple[int, ...]) -> Any:
    """``inside``: the identities of the containers around it, to notice a cycle."""
    match value:
        case None | bool():
            return value
        case float():
            return float(value)
        case str():
            return mend(value)
        case int():
            return _number(value)
        case Mapping() | list() | tuple() | set() | frozenset():
            if len(inside) >= _MAX_DEPTH or id(value) in inside:
                return _TOO_DEEP
            inside = (*inside, id(value))
            if isinstance(value, Mapping):
                return {_key(key): _plain(item, inside) for key, item in value.items()}
            return [_plain(item, inside) for item in value]
        case _ if hasattr(type(value), "__attrs_attrs__"):
            return _plain(_form(value), inside)
        case _:
            return _other(value)


def _key(key: object) -> str:
    return mend(key) if isinstance(key, str) else str(_other(key))


def _number(value: int) -> int | str:
    if -(2**63) <= value < 2**64:
        return value
    return str(value) if value.bit_length() <= _MAX_BITS else f"a number of {value.bit_length():,} bits"


def _other(value: object) -> Any:
    """Whatever else: as the encoder writes it. It turns each failure of a foreign ``__str__`` into a TypeError."""
    try:
        return orjson.loads(orjson.dumps(value, default=_form, option=_OPTIONS))
    except TypeError:
        return object.__repr__(value)
