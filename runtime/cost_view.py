"""What a session has used and cost so far, as a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .result import ModelUsage

__all__ = ["render_costs"]

_HEADS = ("requests", "input", "cache write", "cache read", "output", "USD")


def render_costs(models: Mapping[str, ModelUsage], total_usd: float | None) -> str:
    """One row for each model, and the sum. A price that isn't known is said to be, never shown as 0."""
    if not models:
        return "Nothing has been used so far."
    width = max(5, *map(len, models))
    rows = [f"{'model':<{width}}" + "".join(f"{head:>12}" for head in _HEADS)]
    for name, used in sorted(models.items()):
        usage = used.usage
        counts = (
            used.requests,
            usage.input_tokens,
            usage.cache_creation_input_tokens,
            usage.cache_read_input_tokens,
            usage.output_tokens,
        )
        rows.append(f"{name:<{width}}" + "".join(f"{count:>12,}" for count in counts) + f"{_usd(used.cost_usd):>12}")
    rows.append(f"{'total':<{width}}" + " " * 12 * (len(_HEADS) - 1) + f"{_usd(total_usd):>12}")
    return "\n".join(rows)


def _usd(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:.4f}"
