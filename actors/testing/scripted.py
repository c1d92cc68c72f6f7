"""The scripted model: a server's brain without a wire. It picks the turn, checks and records the request."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import attrs
import orjson

from atrio.runtime.messages import JsonObject

from .faults import Choice, Fault, FaultPlan
from .pairing import blocks_of
from .replies import Frame, Reply, error_reply
from .turns import TextPart, ThinkingPart, Turn
from .validation import violations_of
from .wire import Answer, message_body, signature_of, stream_frames

if TYPE_CHECKING:
    from .transport import ScriptedTransport

__all__ = ["BODY_LIMIT", "RecordedRequest", "ScriptedModel"]

BODY_LIMIT = 32 * 1024 * 1024
"""Bytes of a request; the real API takes no more either."""

PATH = "/v1/messages"

Headers = tuple[tuple[str, str], ...]
EVENT_STREAM: Headers = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))
JSON: Headers = (("content-type", "application/json"),)

Pick = Callable[[JsonObject], Turn]


@attrs.frozen(kw_only=True)
class RecordedRequest:
    """
    One request as it came in.

    ``number`` counts from 1; ``body`` is empty where it was no JSON object; ``headers`` have lower-case names;
    ``at`` is Trio's time; ``fault`` is what it met.
    """

    number: int
    body: JsonObject
    headers: Mapping[str, str]
    at: float
    fault: Fault | None = None

    @property
    def messages(self) -> list[JsonObject]:
        messages = self.body.get("messages")
        return messages if isinstance(messages, list) else []

    @property
    def streaming(self) -> bool:
        return self.body.get("stream") is True


@attrs.frozen
class _Attempt:
    """A response of the present turn that wasn't delivered completely, as far as is known."""

    turn: Turn
    tool_ids: frozenset[str]
    length: int
    """Messages of the request."""


class ScriptedModel:
    """
    A model that says what its script says, in memory (`transport`) or on loopback (`serve`).

    ``by="order"``: the n-th delivered response is the n-th turn. A turn counts as delivered when all of it was
    sent, or when a later request brings back a call's result or a text of it; until then each request gets it
    again, with new ids. Requests that overlap get the same turn: for those, ``by`` is a function from the
    request's body to the turn. Behind its last turn the script answers 400, or says that turn again
    (``repeat_last``).

    ``strict`` answers 400 to a request that the real API would refuse; either way ``violations`` says why.
    ``validate=False`` looks at nothing, for benches: the check costs about 10 us a message. ``faults`` breaks
    responses (see `FaultPlan`).
    """

    def __init__(
        self,
        turns: Iterable[Turn] = (),
        *,
        by: Literal["order"] | Pick = "order",
        model: str = "scripted-1",
        repeat_last: bool = False,
        strict: bool = True,
        validate: bool = True,
        faults: FaultPlan | Mapping[int, Fault] | Choice | None = None,
    ) -> None:
        self.turns = tuple(turns)
        self.model = model
        self.requests: list[RecordedRequest] = []
        self.violations: list[str] = []
        self.position = 0
        """Turns delivered so far (by order)."""
        self._by = by
        self._repeat_last = repeat_last
        self._strict = strict
        self._validate = validate
        self._faults = faults if isinstance(faults, FaultPlan) else FaultPlan(faults or {})
        self._attempts: list[_Attempt] = []
        self._calls = 0
        self._signatures: dict[str, str] = {}

    # --- carriers ---------------------------------------------------------------------------------

    def transport(self) -> ScriptedTransport:
        """An httpx transport that asks this model, without sockets: it works on any Trio clock."""
        from .transport import ScriptedTransport  # the two know each other

        return ScriptedTransport(self)

    @asynccontextmanager
    async def serve(self, *, port: int = 0) -> AsyncIterator[str]:
        """
        Serve on loopback within the block; gives the base URL. Port 0: a free one.

        At the block's end, or when it is cancelled, the port and all connections are closed.
        """
        from .server import serving  # sockets and h11 only for those who want them

        async with serving(self, port=port) as url:
            yield url

    # --- one request ------------------------------------------------------------------------------

    def respond(self, method: str, path: str, headers: Mapping[str, str], body: bytes, *, at: float = 0.0) -> Reply:
        """
        The reply to one HTTP request; its carrier performs it. ``at`` is recorded.

        Raises what a ``by`` or fault function raises, and ValueError for a turn whose times can't be kept.
        """
        if method != "POST" or not path.endswith(PATH):
            return error_reply(404, f"there is no {method} {path} here; a scripted model has POST {PATH} alone")
        if len(body) > BODY_LIMIT:
            return error_reply(413, "Request exceeds the maximum size")
        parsed = _parse(body)
        request = parsed if isinstance(parsed, dict) else {}
        number = len(self.requests) + 1
        fault = self._faults.for_request(number, request)
        self.requests.append(RecordedRequest(number=number, body=request, headers=headers, at=at, fault=fault))
        # A body that is no object has no messages to look at: that one is always judged.
        found = violations_of(parsed, genuine=self._genuine) if self._validate or not request else []
        self.violations += (f"request {number}: {problem}" for problem in found)
        if found and (self._strict or not request):
            reply = error_reply(400, "\n".join(found))
        else:
            reply = self._answer(number, request, body)
        reply = attrs.evolve(reply, headers=(*reply.headers, ("request-id", f"req_{number:04d}")))
        return reply if fault is None else fault.change(reply)

    def _answer(self, number: int, request: JsonObject, body: bytes) -> Reply:
        turn = self._pick(request)
        if turn is None:
            return error_reply(400, self._exhausted())
        answer = Answer(
            turn=turn,
            model=self.model,
            # Different in each response, and in each scripted model that a resumed conversation meets.
            message_id=f"msg_{zlib.crc32(body):08x}_{number:04d}",
            tool_ids=self._tool_ids(turn, body),
            input_tokens=max(1, len(body) // 4),
        )
        self._signatures |= {
            part.signature: part.thinking
            for part in turn.blocks
            if isinstance(part, ThinkingPart) and part.signature is not None
        }
        self._note(answer, request)
        return _reply(answer, streaming=request.get("stream") is True, delivered=self._mark(self.position))

    def _pick(self, request: JsonObject) -> Turn | None:
        if self._by != "order":
            return self._by(request)
        if any(_came_back(attempt, request) for attempt in self._attempts):
            self._advance()
        if self.position < len(self.turns):
            return self.turns[self.position]
        return self.turns[-1] if self._repeat_last and self.turns else None

    def _exhausted(self) -> str:
        return (
            f"the script has {len(self.turns)} turns and all were delivered, but the agent asks for one more: "
            "add a Turn, or set repeat_last=True"
        )

    def _tool_ids(self, turn: Turn, body: bytes) -> tuple[str, ...]:
        return tuple(part.id if part.id is not None else self._new_id(body) for part in turn.tools)

    def _new_id(self, body: bytes) -> str:
        """The next id that the conversation doesn't have yet: it may have begun with another scripted model."""
        while True:
            self._calls += 1
            id = f"toolu_{self._calls:04d}"
            if f'"{id}"'.encode() not in body:
                return id

    # --- what was delivered -----------------------------------------------------------------------

    def _note(self, answer: Answer, request: JsonObject) -> None:
        if self._by == "order":
            self._attempts.append(_Attempt(answer.turn, frozenset(answer.tool_ids), len(request.get("messages", ()))))

    def _mark(self, position: int) -> Callable[[], None]:
        def delivered() -> None:
            if position == self.position:
                self._advance()

        return delivered

    def _advance(self) -> None:
        self.position += 1
        self._attempts.clear()

    def _genuine(self, thinking: str, signature: str) -> bool:
        return self._signatures.get(signature) == thinking or signature == signature_of(thinking)


def _parse(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _reply(answer: Answer, *, streaming: bool, delivered: Callable[[], None]) -> Reply:
    frames = stream_frames(answer)
    delay = answer.turn.delay
    if streaming:
        headers = EVENT_STREAM
    else:
        # Nothing is said before all is written.
        delay += frames[-1].at if frames else 0.0
        headers = JSON
        frames = (Frame(0.0, message_body(answer)),)
    return Reply(headers=headers, frames=frames, delay=delay, streaming=streaming, on_delivered=delivered)


def _came_back(attempt: _Attempt, request: JsonObject) -> bool:
    """The client has kept something of that response: a call, or a text that stands where the response would."""
    messages = request.get("messages", ())
    texts = {part.text for part in attempt.turn.blocks if isinstance(part, TextPart) and part.text}
    for number, message in enumerate(messages):
        for block in blocks_of(message):
            kind = block.get("type")
            if kind == "tool_result" and block.get("tool_use_id") in attempt.tool_ids:
                return True
            kept = number >= attempt.length and message.get("role") == "assistant"
            if kept and kind == "text" and block.get("text") in texts:
                return True
    return False
