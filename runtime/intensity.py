"""
How many restarts a supervisor tolerates: a sliding window over the times of past restarts. Pure.

The window holds at most ``max_restarts + 1`` times, so a supervisor that runs for months keeps no history.
"""

from __future__ import annotations

import math

import attrs

from .errors import ConfigError

__all__ = ["RestartWindow"]


@attrs.frozen
class RestartWindow:
    """
    The restarts of the last ``period`` seconds, and whether they were too many.

    Args:
        max_restarts: this many restarts within the period are still tolerated; 0 tolerates none.
        period: seconds. A restart exactly ``period`` ago still counts.
        times: clock readings of the restarts, oldest first.
    """

    max_restarts: int
    period: float
    times: tuple[float, ...] = ()

    def __attrs_post_init__(self) -> None:
        if self.max_restarts < 0:
            raise ConfigError("max_restarts", f"{self.max_restarts} is negative", "use 0 to tolerate no restart")
        if not self.period > 0 or math.isinf(self.period):
            raise ConfigError("period", f"{self.period} is not a positive number of seconds")

    def record(self, now: float) -> RestartWindow:
        """The window after one more restart at ``now``; what is older than the period falls out."""
        recent = tuple(time for time in self.times if now - time <= self.period)
        return attrs.evolve(self, times=(*recent, now)[-(self.max_restarts + 1) :])

    @property
    def exceeded(self) -> bool:
        """True when the last recorded restart was one too many."""
        return len(self.times) > self.max_restarts
