"""What goes over the wire in answer to one request, whoever carries it: memory or a socket."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import attrs
import orjson

__all__ = ["Ending", "Frame", "Reply", "error_body", "error_reply"]

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Ending(StrEnum):
    """How the body ends, after its last frame."""

    COMPLETE = "complete"
    CUT = "cut"
    """The connection closes within the body."""
    STALL = "stall"
    """Nothing more is ever sent; the connection stays open."""


@attrs.frozen
class Frame:
    """Bytes that are sent together, ``at`` seconds after the response's first byte."""

    at: float
    data: bytes


def _nothing() -> None:
    return None


@attrs.frozen(kw_only=True)
class Reply:
    """
    One HTTP response.

    ``delay`` seconds pass before the status line. ``refused``: no response at all, the connection fails.
    ``spoiled``: even when every frame was sent, the turn doesn't count as delivered.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    frames: tuple[Frame, ...] = ()
    delay: float = 0.0
    ending: Ending = Ending.COMPLETE
    streaming: bool = False
    refused: bool = False
    spoiled: bool = False
    on_delivered: Callable[[], None] = attrs.field(default=_nothing, eq=False, repr=False)

    def delivered(self) -> None:
        """The carrier says this just before it hands over the last frame: the client may act on that at once."""
        if not self.spoiled:
            self.on_delivered()

    @property
    def body(self) -> bytes:
        return b"".join(frame.data for frame in self.frames)


def error_body(type: str, message: str) -> bytes:
    """The API's shape of an error."""
    return orjson.dumps({"type": "error", "error": {"type": type, "message": message}})


def error_reply(
    status: int, message: str, *, type: str | None = None, headers: tuple[tuple[str, str], ...] = ()
) -> Reply:
    """An error status with the API's body; ``type`` None: the one that belongs to the status."""
    kind = type or ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return Reply(
        status=status,
        headers=(("content-type", "application/json"), *headers),
        frames=(Frame(0.0, error_body(kind, message)),),
        spoiled=True,
    )
