"""Which of some described things a text is about, by the words they share. Pure: the choice that needs no model."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

__all__ = ["best_matches", "words_of"]

_WORD: Final = re.compile(r"[^\W_]{3,}")
_EVERYDAY: Final = frozenset(
    re.findall(
        r"\w+",
        "about after all and any are can for from get has have how into its just like make more new not now one our "
        "out please should some than that the them then there these they this use used using want was what when where "
        "which will with work would you your",
    )
)

ENOUGH: Final = 2
"""A single shared word is chance, unless it is part of the thing's name."""

MAX_TEXT: Final = 20_000


def words_of(text: str) -> set[str]:
    """The words of a text that carry meaning, without plural endings, in lower case."""
    found = (word.lower() for word in _WORD.findall(text[:MAX_TEXT]))
    return {_stem(word) for word in found if word not in _EVERYDAY}


def _stem(word: str) -> str:
    return word.removesuffix("s") if len(word) > 4 and not word.endswith("ss") else word


def best_matches(text: str, things: Sequence[tuple[str, str]], limit: int) -> list[int]:
    """
    The positions of the things (name, description) that fit the text, the best first, at most ``limit``.

    A word counts the more the fewer things have it. The same input gives the same answer.
    """
    wanted = words_of(text)
    described = [words_of(f"{name} {description}") for name, description in things]
    spread = Counter(word for words in described for word in words)
    scored: list[tuple[float, int]] = []
    for position, (name, _) in enumerate(things):
        shared = wanted & described[position]
        if len(shared) >= ENOUGH or shared & words_of(name):
            score = math.fsum(math.log(1 + len(things) / spread[word]) for word in shared)
            scored.append((-score, position))
    return [position for _, position in sorted(scored)[:limit]]
