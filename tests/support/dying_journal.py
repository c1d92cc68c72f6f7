"""A journal that kills its process, as by ``kill -9``, at one of its writes: for crash tests."""

from __future__ import annotations

import os
import signal
from typing import Literal

from atrio.actors import recorder, reopen
from atrio.runtime.journal import JournalFile

__all__ = ["How", "die_at"]

How = Literal["before", "half", "after"]


def die_at(number: int, how: How) -> None:
    """Let this process die at the journal write of that number, from 1; ``half``: with half of its bytes written."""
    writes = 0

    class DyingJournal(JournalFile):
        def append(self, lines: bytes) -> None:
            nonlocal writes
            writes += 1
            if writes != number:
                super().append(lines)
                return
            if how == "half":
                os.write(self.fileno, lines[: max(1, len(lines) // 2)])
            elif how == "after":
                super().append(lines)
            os.kill(os.getpid(), signal.SIGKILL)

    for module in (recorder, reopen):
        vars(module)["JournalFile"] = DyingJournal
