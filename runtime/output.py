"""
Writing to a file descriptor that somebody else reads, without ever letting that reader hold up the event loop.
"""

from __future__ import annotations

import os
import select
from typing import Final

import trio

__all__ = ["Output"]

ATOMIC_BYTES: Final = 4_096
"""A pipe that is ready for writing takes this much at once (PIPE_BUF on Linux)."""


class Output:
    """One descriptor. Nothing is buffered here, so that a line is out when `write` returns."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    async def write(self, data: bytes) -> None:
        """
        Write all of ``data``, in one piece where the system lets us. Waits for a slow reader in a thread.

        Cancelled: part of it may still be written; use this output no more.

        Raises:
            OSError: nobody reads any more, the disk is full, ...
        """
        if len(data) <= ATOMIC_BYTES and self._ready(0.0):
            self._write_all(data)
        else:
            # A reader that has stopped reading must not keep the process from ending, so the thread may be left.
            await trio.to_thread.run_sync(self._write_all, data, abandon_on_cancel=True)

    def offer(self, data: bytes, *, patience: float = 0.0) -> bool:
        """Write if the reader takes it within ``patience`` seconds and is still there; whether that was so."""
        try:
            if not self._ready(patience):
                return False
            self._write_all(data[:ATOMIC_BYTES])
        except OSError:
            return False
        return True

    def _ready(self, patience: float) -> bool:
        # An error counts as ready: the write then says which one it is.
        return bool(self._poll.poll(patience * 1000))

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.fd, view) :]
            except BlockingIOError:
                # Whoever shares this descriptor with us has made it non-blocking.
                self._poll.poll()
