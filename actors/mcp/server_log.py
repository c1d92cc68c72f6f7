"""
Where a server's stderr goes: a file of bounded size, and its last lines in memory for error texts.

A log that can't be written is no reason to stop a server: it is done without, and says so once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs
import trio

from atrio.runtime.wirejson import mend

__all__ = ["MAX_LOG_BYTES", "ServerLog"]

MAX_LOG_BYTES: Final = 1024 * 1024
"""Of one file. When it is full it becomes ``name.log.1``, so that twice as much is kept at most."""

TAIL_BYTES: Final = 2_000
MAX_NOTES: Final = 50
NOTE_CHARS: Final = 400


@attrs.define(eq=False)
class ServerLog:
    """The log of one server, over all its restarts. ``path`` None keeps only the tail."""

    path: Path | None = None
    notes: list[str] = attrs.field(init=False, factory=list)
    """What was odd about its output, the first `MAX_NOTES` of it."""
    _tail: bytes = attrs.field(init=False, default=b"")
    _size: int | None = attrs.field(init=False, default=None)
    _broken: bool = attrs.field(init=False, default=False)

    async def write(self, chunk: bytes) -> None:
        """Keep what the server wrote. If cancelled, it may not be in the file, but is in the tail."""
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        if self.path is not None and not self._broken:
            try:
                await trio.to_thread.run_sync(self._append, self.path, chunk)
            except OSError as error:
                self._broken = True
                self.note(f"its log {self.path} can't be written: {error.strerror}")

    def note(self, text: str) -> None:
        """Note something odd, once, as long as there is room."""
        text = mend(text if len(text) <= NOTE_CHARS else f"{text[: NOTE_CHARS - 3]}...")
        if len(self.notes) < MAX_NOTES and text not in self.notes:
            self.notes.append(text)

    def begin(self) -> None:
        """Forget the tail: a new process begins."""
        self._tail = b""

    @property
    def tail(self) -> str:
        """The last that the server wrote to stderr."""
        return self._tail.decode("utf-8", "replace").strip()

    def _append(self, path: Path, chunk: bytes) -> None:
        if self._size is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._size = path.stat().st_size if path.exists() else 0
        if self._size + len(chunk) > MAX_LOG_BYTES and self._size:
            path.replace(path.with_name(f"{path.name}.1"))
            self._size = 0
        with path.open("ab") as file:
            file.write(chunk)
        self._size += len(chunk)
