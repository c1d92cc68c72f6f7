"""
Server-sent events, decoded from bytes as they come (WHATWG rules), without I/O.

httpx-sse frames lines rightly but loses the first field after a byte order mark, emits an event for every blank line
once an ``id`` was seen, obeys a wrong charset and knows no limit; it is the oracle of the tests. Bytes stay bytes
here: events are UTF-8 by definition and JSON parsers take bytes, so a character cut by the network is whole again
before anybody decodes it, and U+2028 and its kin can't split a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from .errors import EventTooLarge

if TYPE_CHECKING:
    from attrs import frozen as _frozen
else:
    # Frozen for type checkers alone: the guard at run time doubles what an object costs that is made for each token.
    _frozen = attrs.define(unsafe_hash=True)

__all__ = ["MAX_EVENT_BYTES", "EventStreamDecoder", "Leftover", "ServerSentEvent"]

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""The default limit for one event. A model's largest events are images in server-tool results, a few megabytes."""

_BOM = b"\xef\xbb\xbf"
_CR = 0x0D


@_frozen
class ServerSentEvent:
    """One dispatched event. ``data`` is the UTF-8 bytes of all data lines, joined by LF."""

    event: str
    data: bytes
    id: str = ""
    retry: int | None = None
    """Milliseconds to wait before reconnecting, as last told by the server."""


@attrs.frozen(kw_only=True)
class Leftover:
    """What was dropped at the end of the body: an event that its blank line never completed."""

    event: str
    data: bytes
    line: bytes
    """The last line, which had no end."""


@attrs.define(eq=False)
class EventStreamDecoder:
    """
    Feed it the body's chunks, cut anywhere; it returns the events that each one completed.

    Args:
        max_event_bytes: an event whose lines (without their ends; comments don't count) hold more than this raises
            `EventTooLarge`; the decoder is of no use afterwards. No more than about twice this is ever kept.
    """

    max_event_bytes: int = MAX_EVENT_BYTES
    _started: bool = False
    _head: bytes = b""
    """The first bytes, while they may still be a byte order mark."""
    _skip_lf: bool = False
    """The last chunk ended in CR: an LF at the start of the next belongs to the same line end."""
    _idle: bool = False
    """Between two events, with nothing kept: what a whole event in one chunk may rely on."""
    _partial: bytearray = attrs.field(factory=bytearray)
    """The line that has no end yet. Of a comment, only the colon."""
    _held: int = 0
    """Bytes in the lines of the event in progress, ends left out, ``_partial`` not counted."""
    _event: bytes = b""
    _data: bytes | bytearray | None = None
    """None until the first data line: an event without any is not dispatched, one with an empty line is."""
    _id: str = ""
    _retry: int | None = None

    def feed(self, chunk: bytes) -> Sequence[ServerSentEvent]:
        """
        The events that ``chunk`` completes.

        Raises:
            EventTooLarge: the event in progress is over the limit. Events before it in the same chunk are lost.
        """
        if self._idle and chunk.endswith(b"\n\n"):
            # What nearly every chunk of a model's stream is: `event: x`, `data: {...}`, a blank line, all in one.
            head, _, rest = chunk.partition(b"\ndata: ")
            if (
                head in _HEADS
                and rest.find(b"\n") == len(rest) - 2
                and _CR not in rest
                and len(chunk) <= self.max_event_bytes
            ):
                return (ServerSentEvent(_HEADS[head], rest[:-2], self._id, self._retry),)
        events = self._feed_lines(chunk)
        self._idle = self._started and not (self._skip_lf or self._partial or self._event) and self._data is None
        return events

    def finish(self) -> Leftover | None:
        """The body has ended. What is incomplete is dropped, as the rules say, and returned for the report."""
        line = b"" if self._partial.startswith(b":") else bytes(self._partial) or self._head
        if not line and self._data is None and not self._event:
            return None
        return Leftover(event=self._event.decode("utf-8", "replace"), data=bytes(self._data or b""), line=line)

    def _feed_lines(self, chunk: bytes) -> Sequence[ServerSentEvent]:
        if not self._started:
            chunk = self._after_bom(chunk)
        if self._skip_lf and chunk:
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if _CR in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._partial:
            lines[0] = bytes(self._partial) + lines[0]
            self._partial.clear()
        events = self._take_lines(lines) if lines else ()
        if rest:
            self._carry(rest)
        return events

    def _after_bom(self, chunk: bytes) -> bytes:
        """Wait for three bytes, and drop them if they are a byte order mark."""
        head = self._head + chunk
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        self._started, self._head = True, b""
        return head.removeprefix(_BOM)

    def _carry(self, part: bytes) -> None:
        self._partial += part
        if self._partial.startswith(b":"):
            # However long a comment is, nothing of it is needed.
            del self._partial[1:]
        else:
            self._measure(self._held + len(self._partial))

    def _measure(self, size: int) -> None:
        if size > self.max_event_bytes:
            raise EventTooLarge(size, self.max_event_bytes)

    def _take_lines(self, lines: Sequence[bytes]) -> Sequence[ServerSentEvent]:
        events: list[ServerSentEvent] = []
        for line in lines:
            if not line:
                if self._data is not None:
                    name = _NAMES.get(self._event) or self._event.decode("utf-8", "replace")
                    events.append(ServerSentEvent(name, bytes(self._data), self._id, self._retry))
                    self._data = None
                self._event = b""
                self._held = 0
                continue
            if line.startswith(b":"):
                continue
            self._held += len(line)
            self._measure(self._held)
            if line.startswith(b"data: "):
                self._add_data(line[6:])
            elif line.startswith(b"event: "):
                self._event = line[7:]
            else:
                self._field(line)
        return events

    def _add_data(self, value: bytes) -> None:
        if self._data is None:
            self._data = value
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(self._data)
        self._data += b"\n"
        self._data += value

    def _field(self, line: bytes) -> None:
        """Any field, in any form; one that the rules don't know is passed over."""
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add_data(value)
        elif name == b"event":
            self._event = value
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) <= _RETRY_DIGITS:
            self._retry = int(value)


_RETRY_DIGITS = 18
"""More are no time to wait, and thousands of them no number to Python."""

_KNOWN = (
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "ping",
    "error",
)

_NAMES = {name.encode(): name for name in _KNOWN} | {b"": "message"}
"""Names that come all the time, so that each is decoded once. An event without a name is a ``message``."""

_HEADS = {b"event: " + name.encode(): name for name in _KNOWN}
