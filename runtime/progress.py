"""
Noticing that a run goes in circles: the same calls with the same results, turn after turn. Pure.

A turn is known by a digest of its calls and their results, so polling whose result changes is progress. Circles
of one turn (A A A) and of two (A B A B) are found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import attrs

from .messages import ToolResultBlock, ToolUseBlock, block_to_wire

__all__ = ["Circles", "fingerprint"]

LONGEST_CIRCLE = 2


def fingerprint(calls: Iterable[tuple[ToolUseBlock, ToolResultBlock | None]]) -> str:
    """What a turn did and what came of it, whatever the ids."""
    digest = hashlib.sha256()
    for call, result in calls:
        content = block_to_wire(result)["content"] if result is not None else None
        fact = (call.name, call.input, call.invalid_json, content, result is not None and result.is_error)
        digest.update(json.dumps(fact, sort_keys=True, default=repr).encode("utf-8", "replace"))
    return digest.hexdigest()


@attrs.frozen(kw_only=True)
class Circles:
    """The latest turns, and for how many of them the run has gone in a circle."""

    recent: tuple[str, ...] = ()
    repeats: int = 0
    """How often in a row a turn was one that had been seen at the same place of the circle before."""

    def after(self, turn: str) -> Circles:
        known = turn in self.recent
        return Circles(recent=(*self.recent, turn)[-LONGEST_CIRCLE:], repeats=self.repeats + 1 if known else 0)
