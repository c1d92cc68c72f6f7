"""
What models cost and how large they are: a data file with its date, and the arithmetic. Pure.

A model that the file doesn't know has no price: its cost is None, never 0.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import attrs
import orjson

from .messages import Usage

__all__ = ["Catalogue", "ModelInfo", "Prices"]


_VARIANT = re.compile(r"\[[^\]]*\]$")
_PROVIDER = re.compile(r"^(?:.*/)?(?:(?:global\.)?anthropic\.)?")
_VERSION = re.compile(r"(?:[-@]\d{8}|[-@]latest|@default)?(?:-v\d+(?::\d+)?)?$")


@attrs.frozen(kw_only=True)
class Prices:
    """USD for one million tokens."""

    input: float
    output: float
    cache_write: float
    cache_write_1h: float
    cache_read: float


@attrs.frozen(kw_only=True)
class ModelInfo:
    """One model of the catalogue. ``long_context`` holds from so many input tokens on."""

    prices: Prices
    context_window: int
    max_output_tokens: int
    long_context: tuple[int, Prices] | None = None

    def cost(self, usage: Usage) -> float:
        """USD for one response."""
        prices = self.prices
        input = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
        if self.long_context is not None and input > self.long_context[0]:
            prices = self.long_context[1]
        long_lived = min(_one_hour_tokens(usage), usage.cache_creation_input_tokens)
        total = (
            usage.input_tokens * prices.input
            + usage.output_tokens * prices.output
            + usage.cache_read_input_tokens * prices.cache_read
            + (usage.cache_creation_input_tokens - long_lived) * prices.cache_write
            + long_lived * prices.cache_write_1h
        )
        return total / 1_000_000


def _one_hour_tokens(usage: Usage) -> int:
    parts = usage.extra.get("cache_creation")
    count = parts.get("ephemeral_1h_input_tokens") if isinstance(parts, Mapping) else None
    return count if isinstance(count, int) and count > 0 else 0


@attrs.frozen(kw_only=True)
class Catalogue:
    """The models that are known, as of a date (ISO)."""

    as_of: str
    models: Mapping[str, ModelInfo]
    aliases: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def load(cls) -> Catalogue:
        """The catalogue that comes with atrio."""
        return _load()

    def find(self, model: str) -> ModelInfo | None:
        """
        By name; a date or version at its end, a provider before it and a variant in brackets make no difference to
        the price. (A cloud region before it does: such a name is not known.)
        """
        name = _PROVIDER.sub("", _VARIANT.sub("", model))
        for candidate in (name, _VERSION.sub("", name)):
            known = self.models.get(self.aliases.get(candidate, candidate))
            if known is not None:
                return known
        return None


@functools.cache
def _load() -> Catalogue:
    data = orjson.loads((files("atrio.runtime") / "prices.json").read_bytes())
    return Catalogue(
        as_of=data["as_of"],
        models={name: _model(entry) for name, entry in data["models"].items()},
        aliases=data["aliases"],
    )


def _model(entry: Mapping[str, Any]) -> ModelInfo:
    long = entry.get("long_context")
    return ModelInfo(
        prices=_prices(entry),
        context_window=entry["context_window"],
        max_output_tokens=entry["max_output_tokens"],
        long_context=(long["above_input_tokens"], _prices(long)) if long else None,
    )


def _prices(entry: Mapping[str, Any]) -> Prices:
    return Prices(**{field.name: float(entry[field.name]) for field in attrs.fields(Prices)})
