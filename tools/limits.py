"""How much one command in the sandbox may use. Pure."""

from __future__ import annotations

from typing import Final

import attrs

__all__ = ["Limits"]

GIBIBYTE: Final = 1024**3


def _positive(instance: object, attribute: attrs.Attribute[int], value: int | None) -> None:
    if value is not None and value < 1:
        raise ValueError(f"{attribute.name} must be at least 1, not {value}")


@attrs.frozen(kw_only=True)
class Limits:
    """
    Bounds far above honest work, so that a command that runs away ends before the machine does. None: no bound.

    Each process has its own share of memory and time. ``processes`` counts threads too, and binds every user but
    root, whom the kernel doesn't count.
    """

    memory_bytes: int | None = attrs.field(default=8 * GIBIBYTE, validator=_positive)
    """Private writable memory: what is only reserved, as some runtimes do by the terabyte, is not counted."""
    processes: int | None = attrs.field(default=2048, validator=_positive)
    """On top of those that the user has already."""
    file_bytes: int | None = attrs.field(default=8 * GIBIBYTE, validator=_positive)
    """Of each file that is written."""
    cpu_seconds: int | None = attrs.field(default=3600, validator=_positive)
    """Of processor time: more than ten minutes of waiting can be, on a machine of many cores."""

    def resources(self) -> dict[str, int]:
        """By the names of the module `resource`. There are no core dumps, which hold all that a process knew."""
        named = {
            "RLIMIT_DATA": self.memory_bytes,
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_CPU": self.cpu_seconds,
        }
        return {"RLIMIT_CORE": 0, **{name: value for name, value in named.items() if value is not None}}
