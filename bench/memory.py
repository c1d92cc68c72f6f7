"""How much memory this process has and had, from the kernel's own books (Linux)."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["peak_kib", "resident_kib"]


def resident_kib() -> int:
    """KiB in memory now."""
    return _field("VmRSS")


def peak_kib() -> int:
    """
    The most KiB that were in memory at once.

    Not `resource.getrusage`: its figure survives ``exec``, so a child process starts with its parent's peak.
    """
    return _field("VmHWM")


def _field(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/self/status has no {name}; the benches measure memory on Linux only")
    return int(found[1])
