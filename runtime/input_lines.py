"""
The lines that a host writes to stdin (``--input-format stream-json``), and the answers to its requests. Pure.

One JSON object a line: ``user`` lines are prompts; ``control_request`` lines ask for something at once, and each is
answered by one ``control_response`` line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, get_args

import attrs

from .messages import Block, DocumentBlock, ImageBlock, JsonObject, RawBlock, TextBlock, block_from_wire
from .records import Priority
from .wirejson import Unparsable, mend, parse_object, without_surrogates

__all__ = ["Control", "InputLine", "LineSplitter", "Prompt", "control_done", "control_failed", "read_line"]
__all__ += ["replay_line"]

LINE_LIMIT_BYTES: Final = 64_000_000
"""One line, with its images. Above that it is passed over, and said to be."""

_PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
_SILENT: Final = frozenset(("keep_alive", "control_response", "control_cancel_request"))
"""Kinds of lines that hosts send and that ask for nothing here."""


@attrs.frozen(kw_only=True)
class Prompt:
    """
    A user's message. With a ``priority`` it goes into the run in progress, if there is one; without, it waits for a
    run of its own. ``query`` False: it only joins the history.
    """

    blocks: tuple[Block, ...]
    message: JsonObject
    uuid: str | None = None
    priority: Priority | None = None
    query: bool = True


@attrs.frozen(kw_only=True)
class Control:
    """A request of the host, to be answered under its id."""

    request_id: str
    subtype: str
    request: JsonObject


InputLine: TypeAlias = Prompt | Control


def read_line(line: bytes) -> InputLine | None:
    """
    What a line says; None if that is nothing.

    Raises:
        ValueError: it is none of the lines that are understood; the text says why.
    """
    if not line.strip():
        return None
    value = _parse(line)
    match value:
        case {"type": "user", "message": {"content": content} as message} if message.get("role", "user") == "user":
            priority = value.get("priority")
            uuid = value.get("uuid")
            return Prompt(
                blocks=_blocks(content),
                message={**message, "role": "user"},
                uuid=uuid if isinstance(uuid, str) and uuid else None,
                priority=next((each for each in _PRIORITIES if each == priority), None),
                query=value.get("shouldQuery") is not False,
            )
        case {"type": "control_request", "request_id": str(id), "request": {"subtype": str(subtype)} as request}:
            return Control(request_id=id, subtype=subtype, request=request)
        case {"type": str(kind)} if kind in _SILENT:
            return None
        case {"type": "user"}:
            raise ValueError('a user line holds {"message": {"role": "user", "content": ...}}')
        case {"type": "control_request"}:
            raise ValueError('a control_request line holds a request_id and {"request": {"subtype": ...}}')
        case _:
            raise ValueError(f"lines of type {value.get('type')!r} are not understood; user and control_request are")


def _parse(line: bytes) -> JsonObject:
    try:
        value, torn = parse_object(line)
    except (Unparsable, RecursionError) as error:
        raise ValueError(f"it is no JSON object: {error}") from None
    cleaned = without_surrogates(value) if torn else value
    assert isinstance(cleaned, dict)
    return cleaned


def _blocks(content: object) -> tuple[Block, ...]:
    if isinstance(content, str):
        return (TextBlock(mend(content)),)
    if not isinstance(content, list) or not content:
        raise ValueError("a user line's content is a text or a list of content blocks")
    return tuple(map(_block, content))


def _block(part: object) -> Block:
    if isinstance(part, str):
        return TextBlock(mend(part))
    block = block_from_wire(part) if isinstance(part, Mapping) else None
    match block:
        case TextBlock():
            return attrs.evolve(block, text=mend(block.text))
        case ImageBlock() | DocumentBlock():
            return block
        case RawBlock() if block.type not in ("text", "image", "document", "tool_use", "tool_result", ""):
            return block
        case _:
            raise ValueError("a user line's content holds a block that a user can't say; text, image and document go")


def control_done(request_id: str, response: JsonObject | None = None) -> JsonObject:
    """The answer: it was done."""
    return {
        "type": "control_response",
        "response": {"subtype": "success", "request_id": request_id, "response": response or {}},
    }


def control_failed(request_id: str, error: str) -> JsonObject:
    """The answer: it was not done, and why."""
    return {"type": "control_response", "response": {"subtype": "error", "request_id": request_id, "error": error}}


@attrs.define(eq=False)
class LineSplitter:
    """Bytes in, lines out (without their ends). Of a line that is too long, None comes out."""

    limit_bytes: int = LINE_LIMIT_BYTES
    _held: list[bytes] = attrs.field(factory=list)
    _size: int = 0

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that end within ``data``."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._hold(piece)
            yield self._take()
        self._hold(rest)

    def end(self) -> Iterator[bytes | None]:
        """What comes behind the last line's end."""
        if self._size:
            yield self._take()

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self.limit_bytes:
            self._held.clear()
        elif piece:
            self._held.append(piece)

    def _take(self) -> bytes | None:
        line = b"".join(self._held) if self._size <= self.limit_bytes else None
        self._held.clear()
        self._size = 0
        return line


def replay_line(prompt: Prompt, *, session_id: str, uuid: str) -> dict[str, Any]:
    """The user's line once more, on the way out."""
    return {
        "type": "user",
        "message": prompt.message,
        "parent_tool_use_id": None,
        "session_id": session_id,
        "uuid": prompt.uuid or uuid,
        "isReplay": True,
    }
