"""
The output of a command that nobody waits for: what is new since the last look in memory, the whole in a file.

Both are bounded, whatever the command writes and however rarely anybody looks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import attrs
import trio

from .output import FILE_LIMIT_BYTES, VISIBLE_CHARS, TextCleaner

__all__ = ["BackgroundOutput", "Fresh"]

FLUSH_CHARS: Final = 256 * 1024
"""So much goes to the file at a time, as each time costs a hop to a thread; a look writes the rest."""


@attrs.frozen(kw_only=True)
class Fresh:
    """What came since the last look: its beginning, how many characters follow that aren't kept here, its end."""

    head: str
    left_out: int = 0
    tail: str = ""

    @property
    def empty(self) -> bool:
        return not self.head


@attrs.define(eq=False, kw_only=True)
class BackgroundOutput:
    """
    Takes bytes, gives text. ``path`` is made with the first output; its folder, too.

    Trouble with the file is in ``file_error`` and never fails the command.
    """

    path: Path
    visible_chars: int = VISIBLE_CHARS
    file_limit_bytes: int = FILE_LIMIT_BYTES
    total_chars: int = attrs.field(init=False, default=0)
    file_error: str | None = attrs.field(init=False, default=None)
    file_full: bool = attrs.field(init=False, default=False)
    _limiter: trio.CapacityLimiter = attrs.field(init=False, factory=lambda: trio.CapacityLimiter(1))
    _lock: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    """The command's own task and whoever looks may write at the same time; the order must stay."""
    _cleaner: TextCleaner = attrs.field(init=False, factory=TextCleaner)
    _head: list[str] = attrs.field(init=False, factory=list)
    _head_chars: int = attrs.field(init=False, default=0)
    _tail: str = attrs.field(init=False, default="")
    _left_out: int = attrs.field(init=False, default=0)
    _pending: list[str] = attrs.field(init=False, factory=list)
    _pending_chars: int = attrs.field(init=False, default=0)
    _written_bytes: int = attrs.field(init=False, default=0)

    async def add(self, data: bytes) -> None:
        """Take the next bytes. Cancelled: they are in the visible text, and maybe not in the file."""
        self._keep(self._cleaner.feed(data))
        if self._pending_chars >= FLUSH_CHARS:
            await self.flush()

    async def finish(self) -> None:
        """Nothing more will come: complete the text and the file. Cancelled: the file may lack its end."""
        self._keep(self._cleaner.feed(b"", final=True))
        await self.flush()

    def take(self) -> Fresh:
        """What is new; the next call gives what comes from now on."""
        fresh = Fresh(head="".join(self._head), left_out=self._left_out, tail=self._tail)
        self._head, self._head_chars, self._tail, self._left_out = [], 0, "", 0
        return fresh

    def whereabouts(self) -> str:
        """Where all of the output is, in words."""
        if self.file_error is not None:
            return f"the full output could not be saved to {self.path}: {self.file_error}"
        if self.file_full:
            return f"the first {self.file_limit_bytes:,} bytes of the output are in {self.path}"
        return f"full output in {self.path}"

    def _keep(self, text: str) -> None:
        if not text:
            return
        self.total_chars += len(text)
        if not self.file_full and self.file_error is None:
            self._pending.append(text)
            self._pending_chars += len(text)
        half = self.visible_chars // 2
        room = half - self._head_chars
        if room > 0:
            self._head.append(text[:room])
            self._head_chars += len(text[:room])
            text = text[room:]
        tail = self._tail + text
        self._left_out += max(0, len(tail) - half)
        self._tail = tail[-half:]

    async def flush(self) -> None:
        """Write to the file what came. Cancelled: it is written all the same."""
        async with self._lock:
            if not self._pending:
                return
            data = "".join(self._pending).encode("utf-8", "replace")
            self._pending, self._pending_chars = [], 0
            room = self.file_limit_bytes - self._written_bytes
            if len(data) > room:
                self.file_full = True
                data = data[:room].decode("utf-8", "ignore").encode()
                data += f"\n[... cut here: this file is limited to {self.file_limit_bytes:,} bytes]\n".encode()
            begin = not self._written_bytes
            self._written_bytes += len(data)
            self.file_error = await trio.to_thread.run_sync(_write, self.path, data, begin, limiter=self._limiter)


def _write(path: Path, data: bytes, begin: bool) -> str | None:
    """Why it failed, if it did."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if begin else os.O_APPEND)
    try:
        if begin:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        return error.strerror or str(error)
    return None
