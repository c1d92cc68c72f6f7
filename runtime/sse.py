"""
Server-sent events, decoded from bytes as they come (WHATWG rules), without I/O.

httpx-sse frames lines rightly but loses the first field after a byte order mark, emits an event for every blank line
once an ``id`` was seen, obeys a wrong charset and knows no limit; it is the oracle of the tests. Bytes stay bytes
here: events are UTF-8 by definition and JSON parsers take bytes, so a character cut by the network is whole again
before anybody decodes it, and U+2028 and its kin can't split a line.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from .errors import EventTooLarge

__all__ = ["MAX_EVENT_BYTES", "EventStreamDecoder", "Leftover", "ServerSentEvent"]

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""The default limit for one event. A model's largest events are images in server-tool results, a few megabytes."""

_BOM = b"\xef\xbb\xbf"


@attrs.frozen
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
        max_event_bytes: an event that grows over it raises `EventTooLarge`; the decoder is of no use afterwards.
    """

    max_event_bytes: int = MAX_EVENT_BYTES
    _started: bool = False
    _head: bytes = b""
    """The first bytes, while they may still be a byte order mark."""
    _skip_lf: bool = False
    """The last chunk ended in CR: an LF at the start of the next belongs to the same line end."""
    _partial: list[bytes] = attrs.field(factory=list)
    _carried: int = 0
    """Bytes of the event in progress that came with earlier chunks."""
    _event: bytes = b""
    _data: list[bytes] = attrs.field(factory=list)
    _id: str = ""
    _retry: int | None = None

    def feed(self, chunk: bytes) -> Sequence[ServerSentEvent]:
        """
        The events that ``chunk`` completes.

        Raises:
            EventTooLarge: the event in progress is over the limit.
        """
        if not self._started:
            chunk = self._after_bom(chunk)
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._skip_lf = chunk[-1:] == b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        if self._partial:
            if len(lines) == 1:
                return self._carry(chunk)
            self._partial.append(lines[0])
            lines[0] = b"".join(self._partial)
            self._partial.clear()
        rest = lines.pop()
        events = self._take_lines(lines) if self._carried + len(chunk) <= self.max_event_bytes else self._measure(lines)
        self._carried = sum(map(len, self._data))
        if rest:
            self._carry(rest)
        return events

    def finish(self) -> Leftover | None:
        """The body has ended. What is incomplete is dropped, as the rules say, and returned for the report."""
        line = b"".join(self._partial) or self._head
        if not line and not self._data and not self._event:
            return None
        return Leftover(event=self._event.decode("utf-8", "replace"), data=b"\n".join(self._data), line=line)

    def _after_bom(self, chunk: bytes) -> bytes:
        """Wait for three bytes, and drop them if they are a byte order mark."""
        head = self._head + chunk
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        self._started, self._head = True, b""
        return head.removeprefix(_BOM)

    def _carry(self, part: bytes) -> Sequence[ServerSentEvent]:
        self._partial.append(part)
        self._carried += len(part)
        if self._carried > self.max_event_bytes:
            raise EventTooLarge(self._carried, self.max_event_bytes)
        return ()

    def _measure(self, lines: Sequence[bytes]) -> Sequence[ServerSentEvent]:
        """Like `_take_lines`, in small steps: somewhere in here an event may be too large."""
        events: list[ServerSentEvent] = []
        size = sum(map(len, self._data))
        for line in lines:
            size = size + len(line) if line else 0
            if size > self.max_event_bytes and line[:1] != b":":
                raise EventTooLarge(size, self.max_event_bytes)
            events += self._take_lines((line,))
        return events

    def _take_lines(self, lines: Sequence[bytes]) -> Sequence[ServerSentEvent]:
        events: list[ServerSentEvent] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    body = data[0] if len(data) == 1 else b"\n".join(data)
                    name = _NAMES.get(self._event)
                    if name is None:
                        name = self._event.decode("utf-8", "replace")
                    events.append(ServerSentEvent(name, body, self._id, self._retry))
                    data.clear()
                self._event = b""
            elif line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
            elif line.startswith(b"event:"):
                self._event = line[7:] if line.startswith(b" ", 6) else line[6:]
            else:
                self._rare_field(line)
        return events

    def _rare_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self._retry = int(value[:18])


_NAMES = {
    name.encode(): name
    for name in (
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    )
} | {b"": "message"}
"""Names that come all the time, so that each is decoded once. An event without a name is a ``message``."""
