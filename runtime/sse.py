"""Server-sent events, decoded from bytes as they come (WHATWG rules), without I/O."""

from __future__ import annotations

import attrs

__all__ = ["ServerSentEvent"]


@attrs.frozen
class ServerSentEvent:
    """One dispatched event. ``data`` is the UTF-8 bytes of all data lines, joined by LF."""

    event: str
    data: bytes
    id: str = ""
    retry: int | None = None
