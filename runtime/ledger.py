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
    _below: list[Ledger] = attrs.field(factory=list)
    """Those of subagents at work, which count here as they go."""

    def attach(self, child: Ledger) -> None:
        """Count what ``child`` books, and all below it, from now on here as well; until `absorb`."""
        self._below.append(child)

    def absorb(self, child: Ledger) -> None:
        """``child`` books no more: what it has become part of this ledger's own sums. Does nothing if not attached."""
        if not any(each is child for each in self._below):
            return
        self._below = [each for each in self._below if each is not child]
        for sums in (self._settled, self._models):
            for model, entry in child.by_model.items():
                sums[model] = _joined(sums[model], entry) if model in sums else entry

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
        """
        All of it by model, for the journal: what `carry` takes. Without that of subagents at work, whose ends will be
        recorded by themselves.
        """
        return {
            name: {"usage": entry.usage.to_wire(), "costUSD": entry.cost_usd, "requests": entry.requests}
            for name, entry in self._models.items()
        }

    def carry(self, totals: JsonObject) -> None:
        """Begin with what earlier ledgers' `totals` say. To be called before anything is recorded."""
        for name, each in totals.items():
            if not isinstance(each, dict):
                continue
            usage, cost, requests = each.get("usage"), each.get("costUSD"), each.get("requests")
            info = self.catalogue.find(name)
            entry = ModelUsage(
                usage=Usage().updated(usage if isinstance(usage, dict) else None),
                cost_usd=float(cost) if isinstance(cost, int | float) else None,
                requests=requests if isinstance(requests, int) else 0,
                context_window=info.context_window if info else None,
                max_output_tokens=info.max_output_tokens if info else None,
            )
            known = self._settled.get(name)
            self._settled[name] = entry if known is None else _joined(known, entry)
        self._models = dict(self._settled)

    @property
    def usage(self) -> Usage:
        """The sum over all responses."""
        return sum((entry.usage for entry in self.by_model.values()), Usage())

    @property
    def by_model(self) -> Mapping[str, ModelUsage]:
        models = dict(self._models)
        for child in self._below:
            for model, entry in child.by_model.items():
                models[model] = _joined(models[model], entry) if model in models else entry
        return models

    @property
    def cost_usd(self) -> float | None:
        """USD; 0 before the first response, None once one's cost is unknown."""
        total: float | None = 0.0
        for entry in self.by_model.values():
            total = _sum(total, entry.cost_usd)
        return total


def _joined(a: ModelUsage, b: ModelUsage) -> ModelUsage:
    return attrs.evolve(
        a, usage=a.usage + b.usage, cost_usd=_sum(a.cost_usd, b.cost_usd), requests=a.requests + b.requests
    )


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b
