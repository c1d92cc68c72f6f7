"""
Mends lists of tools before the SDK sees them: it refuses a whole list for one entry that is wrong.

What is wrong with an entry costs that entry, or only the part of it that is wrong. Declared output schemas are left
out: the model reads an answer whether or not it fits them, and a wrong one would turn good answers into errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, TypeAlias

import attrs
import mcp_types
import trio
from mcp.client._transport import ReadStream
from mcp.shared.message import SessionMessage

from atrio.runtime.messages import JsonObject

from .schema_folding import Unusable, fold_schema

__all__ = ["MAX_TOOLS", "Incoming", "MendedStream", "mend_listing", "mend_tools"]

MAX_TOOLS: Final = 500
"""Of one list. More is a fault: no model chooses among so many, and each costs tokens in every request."""

MAX_NAME_CHARS: Final = 200

Incoming: TypeAlias = SessionMessage | Exception

_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


async def mend_listing(message: Incoming, note: Callable[[str], None]) -> None:
    """Mend the message in place if it is a list of tools; ``note`` hears what was left out."""
    answer = message.message if isinstance(message, SessionMessage) else None
    if isinstance(answer, mcp_types.JSONRPCResponse):
        tools = answer.result.get("tools")
        if isinstance(tools, list):
            # Checking a hundred schemas takes a hundred milliseconds.
            mended, notes = await trio.to_thread.run_sync(mend_tools, tools)
            answer.result["tools"] = mended
            for text in notes:
                note(text)


def mend_tools(tools: list[object]) -> tuple[list[JsonObject], list[str]]:
    """The entries that can be used, with only those parts that are what they should be; and what was changed."""
    mended: list[JsonObject] = []
    notes: list[str] = []
    for place, tool in enumerate(tools[:MAX_TOOLS]):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(tool, dict) or not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
            notes.append(f"tool {place} of its list was left out: it has no name, or one that is far too long")
            continue
        try:
            folded = fold_schema(tool.get("inputSchema"))
        except Unusable as reason:
            notes.append(f"the tool {name!r} was left out: {reason}")
            continue
        if folded.changes:
            notes.append(f"the tool {name!r} was changed: {'; '.join(folded.changes)}")
        mended.append(_mend(name, folded.schema, tool))
    if len(tools) > MAX_TOOLS:
        notes.append(f"{len(tools) - MAX_TOOLS} tools were left out: {MAX_TOOLS} are the most")
    return mended, notes


def _mend(name: str, schema: JsonObject, tool: Mapping[str, Any]) -> JsonObject:
    new: JsonObject = {"name": name, "inputSchema": schema}
    for key in ("title", "description"):
        if isinstance(tool.get(key), str):
            new[key] = tool[key]
    annotations = tool.get("annotations")
    if isinstance(annotations, dict):
        new["annotations"] = {key: annotations[key] for key in _HINTS if isinstance(annotations.get(key), bool)}
    return new


@attrs.define(eq=False)
class MendedStream:
    """A stream of the SDK's with `mend_listing` on each message."""

    inner: ReadStream[Incoming]
    note: Callable[[str], None]

    @property
    def last_context(self) -> object:
        """The SDK looks for this one."""
        return getattr(self.inner, "last_context", None)

    async def receive(self) -> Incoming:
        """The next message. If cancelled, none was taken, or it is lost with the connection."""
        message = await self.inner.receive()
        await mend_listing(message, self.note)
        return message

    def __aiter__(self) -> MendedStream:
        return self

    async def __anext__(self) -> Incoming:
        message = await self.inner.__anext__()
        await mend_listing(message, self.note)
        return message

    async def aclose(self) -> None:
        """Close it."""
        await self.inner.aclose()

    async def __aenter__(self) -> MendedStream:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self.inner.__aexit__(kind, error, trace)  # noqa: ASYNC102  # the stream in memory only closes
