"""
The atrio command in a process that dies at one of its journal's writes, for crash tests.

    python dying_journal.py NUMBER before|half|after WORDS...

It is killed, as by ``kill -9``, before the write of that number (from 1), when half of its bytes are written, or
right after it. WORDS are the command's.
"""

from __future__ import annotations

import os
import signal
import sys

from atrio.actors import recorder, reopen
from atrio.runtime import cli
from atrio.runtime.journal import JournalFile


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingJournal(JournalFile):
    """Dies as the command line says."""

    number = int(sys.argv[1])
    how = sys.argv[2]
    writes = 0

    def append(self, lines: bytes) -> None:
        DyingJournal.writes += 1
        if DyingJournal.writes != self.number:
            super().append(lines)
            return
        if self.how == "half":
            os.write(self.fileno, lines[: max(1, len(lines) // 2)])
        elif self.how == "after":
            super().append(lines)
        _die()


if __name__ == "__main__":
    for module in (recorder, reopen):
        vars(module)["JournalFile"] = DyingJournal
    sys.exit(cli.main(sys.argv[3:]))
