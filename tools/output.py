"""
Collects a command's output within bounds: head and tail in memory, the whole in a file once it gets long.

Bytes are decoded as UTF-8 with replacement, wherever they are cut; terminal escape sequences and NULs are dropped.
"""

from __future__ import annotations

import codecs
import os
import re
from pathlib import Path
from typing import Final

import attrs
import trio

__all__ = ["FILE_LIMIT_BYTES", "VISIBLE_CHARS", "OutputCollector", "TextCleaner"]

VISIBLE_CHARS: Final = 30_000
"""What a model gets to see of one output, and what is kept in memory of it."""

FILE_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Nobody reads more of an output; a flood shall not fill the disk."""

FLUSH_CHARS: Final = 256 * 1024
"""So much goes to the file at a time, as each time costs a hop to a thread."""

ESCAPE_LIMIT_CHARS: Final = 4_200
"""The longest escape sequence that is recognised when it is cut in two."""

_ESCAPES: Final = re.compile(
    r"\x1b(?:"
    r"\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor
    r"|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"  # titles, links
    r"|[ -/]{1,8}[0-~]"  # character sets
    r"|[78=>cDEHMNOZ])"
)
_CUT_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|\][^\x07\x1b]{0,4096}\x1b?|[ -/]{0,8})\Z",
)


@attrs.define(eq=False)
class TextCleaner:
    """Makes plain text of bytes that come in pieces."""

    _decoder: codecs.IncrementalDecoder = attrs.field(
        init=False, factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    _carry: str = attrs.field(init=False, default="")
    """The beginning of an escape sequence, whose end is yet to come."""

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """The text that is certain by now; with ``final`` all of it."""
        text = self._carry + self._decoder.decode(data, final)
        self._carry = ""
        if "\x1b" in text:
            text = _ESCAPES.sub("", text)
            cut = None if final else _CUT_ESCAPE.search(text, max(0, len(text) - ESCAPE_LIMIT_CHARS))
            if cut is not None:
                text, self._carry = text[: cut.start()], cut[0]
        return text.replace("\0", "")


@attrs.define(eq=False, kw_only=True)
class OutputCollector:
    """
    One command's output.

    ``path`` is written only when the output is longer than ``visible_chars``; its folder is made then. Trouble
    with the file is told in the text and never fails the command. No descriptor stays open between two writes.
    """

    path: Path
    visible_chars: int = VISIBLE_CHARS
    file_limit_bytes: int = FILE_LIMIT_BYTES
    total_chars: int = attrs.field(init=False, default=0)
    file_error: str | None = attrs.field(init=False, default=None)
    file_full: bool = attrs.field(init=False, default=False)
    _limiter: trio.CapacityLimiter = attrs.field(init=False, factory=lambda: trio.CapacityLimiter(1))
    _cleaner: TextCleaner = attrs.field(init=False, factory=TextCleaner)
    _head: list[str] = attrs.field(init=False, factory=list)
    _tail: str = attrs.field(init=False, default="")
    _pending: list[str] = attrs.field(init=False, factory=list)
    _pending_chars: int = attrs.field(init=False, default=0)
    _written_bytes: int = attrs.field(init=False, default=0)

    @property
    def is_long(self) -> bool:
        """There is more than the model gets to see."""
        return self.total_chars > self.visible_chars

    @property
    def saved_to(self) -> Path | None:
        """The file, where there is one."""
        return self.path if self._written_bytes and self.file_error is None else None

    async def add(self, data: bytes) -> None:
        """Take the next bytes. Cancelled: they are in the visible text, and maybe not in the file."""
        self._keep(self._cleaner.feed(data))
        if self._pending_chars >= FLUSH_CHARS:
            await self._flush()

    async def finish(self) -> None:
        """Nothing more will come: complete the text and the file. Cancelled: the file may lack its end."""
        self._keep(self._cleaner.feed(b"", final=True))
        if self._pending:
            await self._flush()

    def text(self) -> str:
        """What the model sees: all of it, or head and tail and where the rest is."""
        if not self.is_long:
            return "".join(self._head)
        head, tail = self._head[0], self._tail
        cut = head.rfind("\n") + 1
        if cut > len(head) // 2:
            head = head[:cut]
        cut = tail.find("\n") + 1
        if 0 < cut < len(tail) // 2:
            tail = tail[cut:]
        left_out = self.total_chars - len(head) - len(tail)
        head = head if head.endswith("\n") else f"{head}\n"
        return f"{head}[... {left_out:,} characters left out; {self._whereabouts()}]\n{tail}"

    def last_lines(self, count: int, max_chars: int) -> str:
        """The last complete or begun lines, for showing progress."""
        text = self._tail if self.is_long else "".join(self._head)
        return "\n".join(text[-max_chars:].rstrip().splitlines()[-count:])

    def _whereabouts(self) -> str:
        if self.file_error is not None:
            return f"the full output could not be saved to {self.path}: {self.file_error}"
        if self.file_full:
            return f"the first {self.file_limit_bytes:,} bytes of the output are in {self.path}"
        return f"full output in {self.path}"

    def _keep(self, text: str) -> None:
        if not text:
            return
        was_long = self.is_long
        self.total_chars += len(text)
        half = self.visible_chars // 2
        if not self.is_long:
            self._head.append(text)
            return
        if not was_long:
            text = "".join([*self._head, text])
            self._head = [text[:half]]
        self._tail = (self._tail + text)[-half:]
        if not self.file_full and self.file_error is None:
            self._pending.append(text)
            self._pending_chars += len(text)

    async def _flush(self) -> None:
        data = "".join(self._pending).encode("utf-8", "replace")
        self._pending.clear()
        self._pending_chars = 0
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
