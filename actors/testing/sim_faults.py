"""What goes wrong between the simulated model and its client: faults drawn from a source of randomness. Pure."""

from __future__ import annotations

from random import Random

import attrs

from .faults import Fault
from .replies import Ending, Frame, Reply
from .wire import event

__all__ = ["HARMLESS", "draw_fault", "draw_faults"]

HARMLESS = ("slow by", "pings")
"""Beginnings of the names of faults after which the response is still whole."""

TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"
OVERFLOW = "input length and `max_tokens` exceed context limit: {} + 8000 > 200000, decrease input length"
BAD_IMAGE = "messages.0.content.0: image exceeds 5 MB maximum: 9 MB"

STATUSES = (400, 401, 402, 403, 404, 408, 409, 413, 418, 422, 429, 429, 500, 502, 503, 504, 529, 529, 529, 599)
WAITS = (None, None, None, 0, 1, 7.5, 60, 299, 3600, 86_400, "soon", "-5", "1e400")
ERROR_TYPES = ("overloaded_error", "api_error", "rate_limit_error", "invalid_request_error", "who_knows")


def draw_faults(rng: Random) -> dict[int, Fault]:
    """Faults by the number of the request: none, a few, many, or an outage that lasts for a while."""
    match rng.choice(("none", "few", "few", "many", "outage", "storm")):
        case "few":
            return {rng.randrange(1, 10): draw_fault(rng) for _ in range(rng.randrange(1, 4))}
        case "many":
            return {number: draw_fault(rng) for number in range(1, 40) if rng.random() < 0.5}
        case "outage":
            begin, fault = rng.randrange(1, 6), draw_fault(rng)
            return {number: fault for number in range(begin, begin + rng.randrange(2, 20))}
        case "storm":
            return {number: draw_fault(rng) for number in range(1, rng.randrange(2, 30))}
        case _:
            return {}


def draw_fault(rng: Random) -> Fault:
    """One fault of any kind."""
    match rng.randrange(15):
        case 0 | 1:
            return Fault.cut(rng.choice((0, 1, rng.randrange(3000), rng.randrange(600))))
        case 2:
            return Fault.stall(rng.choice((0, 1, rng.randrange(3000), rng.randrange(600))))
        case 3:
            return Fault.slow(rng.choice((0.0, 5.0, 100.0, 400.0)), pace=rng.choice((0.0, 1.0, 44.0, 89.0, 91.0)))
        case 4 | 5 | 6:
            return _status(rng)
        case 7:
            return _message(rng)
        case 8:
            return Fault.error_event(rng.randrange(12), type=rng.choice(ERROR_TYPES), message="simulated")
        case 9:
            return _garbage(rng)
        case 10:
            return Fault.refuse()
        case 11:
            return Fault.html(rng.choice((200, 200, 403, 502)))
        case 12:
            return Fault.drop_frames({rng.randrange(-4, 10) for _ in range(rng.randrange(1, 3))})
        case 13:
            return Fault.duplicate_frames({rng.randrange(-4, 10) for _ in range(rng.randrange(1, 3))})
        case _:
            return rng.choice((_pings(rng), _flipped(rng), _early_end(rng)))


def _status(rng: Random) -> Fault:
    wait = rng.choice(WAITS)
    headers = {"x-should-retry": rng.choice(("true", "false"))} if rng.random() < 0.15 else None
    return Fault.status(rng.choice(STATUSES), retry_after=wait, headers=headers)


def _message(rng: Random) -> Fault:
    words = rng.choice((TOO_LONG, BAD_IMAGE, OVERFLOW.format(194_000), OVERFLOW.format(199_500)))
    return Fault.status(400, type="invalid_request_error", message=words)


def _garbage(rng: Random) -> Fault:
    data = rng.choice(
        (
            b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": \n\n',
            b"\xff\xfe\x00 not text\n\n",
            b"data: [DONE]\n\n",
            b"data: null\n\n",
            b'event: who_knows\ndata: {"type": "who_knows"}\n\n',
            b": a comment\n\n\n\n\n",
            b'event: content_block_stop\ndata: {"type": "content_block_stop", "index": 77}\n\n',
        )
    )
    return Fault.garbage(rng.randrange(10), data=data)


def _pings(rng: Random) -> Fault:
    """Signs of life between the frames, and silence in the matter for a time."""
    count, pace = rng.randrange(1, 40), rng.choice((1.0, 10.0))

    def change(reply: Reply) -> Reply:
        if not reply.streaming or len(reply.frames) < 3:
            return reply
        before, rest = reply.frames[:3], reply.frames[3:]
        at = before[-1].at
        pings = tuple(Frame(at + pace * n, event("ping", {})) for n in range(1, count + 1))
        later = tuple(Frame(frame.at + pace * count, frame.data) for frame in rest)
        return attrs.evolve(reply, frames=(*before, *pings, *later))

    return Fault(f"pings, {count} of them, {pace:g} s apart", change)


def _flipped(rng: Random) -> Fault:
    """One byte is not what was sent."""
    place, mask = rng.randrange(2000), rng.randrange(1, 256)

    def change(reply: Reply) -> Reply:
        left = place
        frames = list(reply.frames)
        for number, frame in enumerate(frames):
            if b"thinking" in frame.data or b"signature" in frame.data:
                # What the model has signed is refused when it comes back changed, and nobody could have known.
                return reply
            if left < len(frame.data):
                data = bytearray(frame.data)
                data[left] ^= mask
                frames[number] = Frame(frame.at, bytes(data))
                return attrs.evolve(reply, frames=tuple(frames))
            left -= len(frame.data)
        return reply

    return Fault(f"byte {place} flipped by {mask}", change)


def _early_end(rng: Random) -> Fault:
    """The body ends properly, but too soon."""
    count = rng.randrange(8)

    def change(reply: Reply) -> Reply:
        frames = reply.frames[:count]
        return attrs.evolve(reply, frames=frames, ending=Ending.COMPLETE, spoiled=len(frames) < len(reply.frames))

    return Fault(f"only {count} frames", change)
