"""
Which form of journal lines this atrio writes, and how older ones are read. Pure.

Each line says its ``schema``. A change that older readers would misread raises `SCHEMA` by one and adds a step to
`STEPS`, which makes a line of the form before into one of the next; what is merely new needs neither, since unknown
members are passed over. Lines without a ``schema`` are of the first form, or another program's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from .messages import JsonObject

__all__ = ["SCHEMA", "STEPS", "NewerSchema", "Step", "upgraded"]

Step: TypeAlias = Callable[[JsonObject], JsonObject]

SCHEMA: Final = 1

STEPS: Final[Mapping[int, Step]] = {}
"""By the form that a step begins with. There has been one form so far."""


class NewerSchema(Exception):
    """A line that this version can't read without loss."""

    def __init__(self, found: object) -> None:
        super().__init__(
            f"it is of a later form ({str(found)[:40]}; this atrio reads up to {SCHEMA}); go on with the atrio that "
            "wrote it, or a later one"
        )


def upgraded(line: JsonObject, *, schema: int = SCHEMA, steps: Mapping[int, Step] = STEPS) -> JsonObject:
    """
    The line in the form ``schema``.

    Raises:
        NewerSchema: it is of a later one.
    """
    found: Any = line.get("schema", 1)
    if found == schema:
        return line
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= schema:
        raise NewerSchema(found)
    for number in range(found, schema):
        line = {**steps[number](line), "schema": number + 1}
    return line
