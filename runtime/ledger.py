"""Usage and cost, summed over responses. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from .messages import JsonObject, Usage
from .prices import Catalogue
from .result import ModelUsage

__all__ = ["Ledger"]

RECENT = 1024
"""Responses whose repetition is noticed. A run of days must not keep every one of them."""


@attrs.define(eq=False)
class Ledger:
    """
    Each response counts once, by its message id: a later record of the same one replaces the earlier (unless a
    thousand others came between).

    A cost is None as soon as one response's price or usage is unknown: a sum that leaves something out is wrong.
    """

    catalogue: Catalogue
    _responses: dict[str, tuple[str, Usage, float | None]] = attrs.field(factory=dict)
    """The latest ones."""
    _settled: dict[str, ModelUsage] = attrs.field(factory=dict)
    """Sums of all that came before those."""
    _models: dict[str, ModelUsage] = attrs.field(factory=dict)
    """Sums of all."""

    def record(self, message_id: str, model: str, usage: Usage) -> float | None:
        """Book a response; returns its cost in USD, None if unknown."""
        info = self.catalogue.find(model)
        cost = info.cost(usage) if info is not None and usage.reported else None
        known = message_id in self._responses
        self._responses[message_id] = (model, usage, cost)
        if known:
            self._models = dict(self._settled)
            for entry in self._responses.values():
                self._add(self._models, *entry)
        else:
            self._add(self._models, model, usage, cost)
        if len(self._responses) > RECENT:
            self._add(self._settled, *self._responses.pop(next(iter(self._responses))))
        return cost

    def _add(self, sums: dict[str, ModelUsage], model: str, usage: Usage, cost: float | None) -> None:
        info = self.catalogue.find(model)
        so_far = sums.get(model) or ModelUsage(
            context_window=info.context_window if info else None,
            max_output_tokens=info.max_output_tokens if info else None,
        )
        sums[model] = attrs.evolve(
            so_far, usage=so_far.usage + usage, cost_usd=_sum(so_far.cost_usd, cost), requests=so_far.requests + 1
        )

    def totals(self) -> JsonObject:
        """All of it by model, for the journal: what `carry` takes."""
        return {
            name: {"usage": entry.usage.to_wire(), "costUSD": entry.cost_usd, "requests": entry.requests}
            for name, entry in self._models.items()
        }

    def carry(self, totals: JsonObject) -> None:
        """Begin with what an earlier ledger's `totals` say. To be called before anything is recorded."""
        for name, each in totals.items():
            if not isinstance(each, dict):
                continue
            usage, cost, requests = each.get("usage"), each.get("costUSD"), each.get("requests")
            info = self.catalogue.find(name)
            self._settled[name] = ModelUsage(
                usage=Usage().updated(usage if isinstance(usage, dict) else None),
                cost_usd=float(cost) if isinstance(cost, int | float) else None,
                requests=requests if isinstance(requests, int) else 0,
                context_window=info.context_window if info else None,
                max_output_tokens=info.max_output_tokens if info else None,
            )
        self._models = dict(self._settled)

    @property
    def usage(self) -> Usage:
        """The sum over all responses."""
        return sum((entry.usage for entry in self._models.values()), Usage())

    @property
    def by_model(self) -> Mapping[str, ModelUsage]:
        return dict(self._models)

    @property
    def cost_usd(self) -> float | None:
        """USD; 0 before the first response, None once one's cost is unknown."""
        total: float | None = 0.0
        for entry in self._models.values():
            total = _sum(total, entry.cost_usd)
        return total


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b
