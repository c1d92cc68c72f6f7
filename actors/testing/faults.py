"""What can go wrong with a response: faults, and the plan that says which request meets which. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus

import attrs

from atrio.runtime.messages import JsonObject

from .replies import ERROR_TYPES, Ending, Frame, Reply, error_reply
from .wire import event

__all__ = ["Fault", "FaultPlan"]

GARBAGE = b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": \n\n'
"""An event whose data is cut JSON."""

PAGE = (
    b"<!doctype html><html><head><title>Sign in</title></head><body><h1>Welcome to the hotel's Wi-Fi</h1></body></html>"
)
"""What a captive portal or a proxy answers."""


@attrs.frozen
class Fault:
    """
    One thing that goes wrong: a pure change of the reply that the request would have got.

    The class methods make the usual ones; ``Fault("what happens", change)`` makes any other. Byte and frame
    counts are those of the body; frame 0 is message_start, 1 the ping, then come the blocks.
    """

    name: str
    change: Callable[[Reply], Reply] = attrs.field(eq=False, repr=False)

    @classmethod
    def status(
        cls,
        status: int,
        *,
        retry_after: float | str | None = None,
        type: str | None = None,
        message: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Fault:
        """An error status with the API's error body. ``retry_after``: seconds, or the header's text (a date)."""
        extra = tuple((headers or {}).items())
        if retry_after is not None:
            extra += (("retry-after", retry_after if isinstance(retry_after, str) else f"{retry_after:g}"),)
        words = message if message is not None else _phrase(status)
        return cls(f"status {status}", lambda reply: error_reply(status, words, type=type, headers=extra))

    @classmethod
    def cut(cls, after_bytes: int = 0) -> Fault:
        """The connection closes after so many bytes of the body (all of it at most), without a proper end."""
        return cls(f"cut after {after_bytes} bytes", lambda reply: _shortened(reply, after_bytes, Ending.CUT))

    @classmethod
    def stall(cls, after_bytes: int = 0) -> Fault:
        """After so many bytes of the body nothing comes any more, and the connection stays open."""
        return cls(f"stall after {after_bytes} bytes", lambda reply: _shortened(reply, after_bytes, Ending.STALL))

    @classmethod
    def error_event(
        cls, after_frames: int = 2, *, type: str = "overloaded_error", message: str = "Overloaded"
    ) -> Fault:
        """An error event within the 200, and then the body's end. Without streaming: the status of that error."""

        def change(reply: Reply) -> Reply:
            if not reply.streaming:
                status = next((status for status, kind in ERROR_TYPES.items() if kind == type), 500)
                return error_reply(status, message, type=type)
            kept = reply.frames[:after_frames]
            error = Frame(_end(kept), event("error", {"error": {"type": type, "message": message}}))
            return attrs.evolve(reply, frames=(*kept, error), spoiled=len(kept) < len(reply.frames))

        return cls(f"{type} after {after_frames} frames", change)

    @classmethod
    def garbage(cls, after_frames: int = 2, *, data: bytes = GARBAGE) -> Fault:
        """Bytes that make no sense among the frames; the rest comes as it should."""

        def change(reply: Reply) -> Reply:
            before, rest = reply.frames[:after_frames], reply.frames[after_frames:]
            return attrs.evolve(reply, frames=(*before, Frame(_end(before), data), *rest), spoiled=bool(rest))

        return cls(f"garbage after {after_frames} frames", change)

    @classmethod
    def slow(cls, delay: float = 0.0, *, pace: float = 0.0) -> Fault:
        """So many seconds more before the first byte, and more between any two frames; nothing is lost."""

        def change(reply: Reply) -> Reply:
            frames = tuple(Frame(frame.at + pace * number, frame.data) for number, frame in enumerate(reply.frames))
            return attrs.evolve(reply, delay=reply.delay + delay, frames=frames)

        return cls(f"slow by {delay:g} s", change)

    @classmethod
    def refuse(cls) -> Fault:
        """
        The connection fails before anything is answered.

        In memory that is `httpx.ConnectError`. A real server has accepted by the time it knows the request, so on
        loopback the connection is reset: `httpx.ReadError`.
        """
        return cls("refused", lambda reply: Reply(refused=True, spoiled=True))

    @classmethod
    def html(cls, status: int = 200, *, body: bytes = PAGE) -> Fault:
        """A web page instead of an answer."""
        headers = (("content-type", "text/html; charset=utf-8"),)
        page = Reply(status=status, headers=headers, frames=(Frame(0.0, body),), spoiled=True)
        return cls(f"a page with status {status}", lambda reply: page)

    @classmethod
    def drop_frames(cls, numbers: Collection[int]) -> Fault:
        """These frames never arrive; negative numbers count from the end."""

        def change(reply: Reply) -> Reply:
            gone = _positions(numbers, reply)
            frames = tuple(frame for number, frame in enumerate(reply.frames) if number not in gone)
            return attrs.evolve(reply, frames=frames, spoiled=True)

        return cls(f"frames {sorted(numbers)} dropped", change)

    @classmethod
    def duplicate_frames(cls, numbers: Collection[int]) -> Fault:
        """These frames arrive twice; negative numbers count from the end."""

        def change(reply: Reply) -> Reply:
            twice = _positions(numbers, reply)
            frames = [[frame] * (2 if number in twice else 1) for number, frame in enumerate(reply.frames)]
            return attrs.evolve(reply, frames=tuple(frame for pair in frames for frame in pair))

        return cls(f"frames {sorted(numbers)} doubled", change)


Choice = Callable[[int, JsonObject], Fault | None]


def _numbered(plan: Mapping[int, Fault] | Choice) -> Mapping[int, Fault] | Choice:
    if isinstance(plan, Mapping) and (wrong := [number for number in plan if number < 1]):
        raise ValueError(f"requests are counted from 1; the fault plan has {wrong}")
    return plan


@attrs.frozen
class FaultPlan:
    """
    Which request meets which fault.

    ``plan`` maps the request's number (1 is the first that the model gets, retries count) to a fault, or is
    called with that number and the request's body. Raises ValueError for a number below 1.
    """

    plan: Mapping[int, Fault] | Choice = attrs.field(factory=dict, converter=_numbered)

    def for_request(self, number: int, request: JsonObject) -> Fault | None:
        if isinstance(self.plan, Mapping):
            return self.plan.get(number)
        return self.plan(number, request)


def _phrase(status: int) -> str:
    if status == 529:
        return "Overloaded"
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"


def _end(frames: tuple[Frame, ...]) -> float:
    return frames[-1].at if frames else 0.0


def _positions(numbers: Collection[int], reply: Reply) -> set[int]:
    return {number if number >= 0 else len(reply.frames) + number for number in numbers}


def _shortened(reply: Reply, size: int, ending: Ending) -> Reply:
    kept: list[Frame] = []
    left = size
    for frame in reply.frames:
        if left <= 0:
            break
        kept.append(Frame(frame.at, frame.data[:left]))
        left -= len(frame.data)
    whole = size >= len(reply.body)
    return attrs.evolve(reply, frames=tuple(kept), ending=ending, spoiled=reply.spoiled or not whole)
