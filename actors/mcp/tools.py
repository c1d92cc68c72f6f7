"""
The tools of MCP servers as tools of a session: ``mcp__server__tool``.

What a tool says of itself (that it only reads, that it may be repeated) is believed as far as it does no harm: plan
mode, concurrency, repetition after a crash. Whether a call needs approval is not the server's to say; only tools of a
server that the user trusts may read without.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import trio

from atrio.runtime.errors import InvalidToolInput, ToolTimedOut
from atrio.runtime.messages import JsonObject, TextBlock
from atrio.runtime.tool import Tool, ToolContext, ToolOutput
from atrio.runtime.wirejson import without_surrogates

from .content import Shown, keep_blobs, map_content, structured_text
from .link import CallTool, Link, TakeProgress
from .values import ToolInfo

__all__ = ["CALL_LIMIT", "McpTool", "as_content", "tool_name", "tools_of"]

CALL_LIMIT: Final = 600.0
"""Seconds that a call may go on without a sign of progress."""

MAX_NAME_CHARS: Final = 128
_HASH_CHARS: Final = 8

Permission = Literal["allow", "read", "edit", "ask"]


def tool_name(server: str, tool: str) -> str:
    """The name under which a server's tool is offered, which the API takes whatever the server calls it."""
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", tool)
    name = f"mcp__{server}__{clean}"
    if len(name) <= MAX_NAME_CHARS:
        return name
    mark = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:_HASH_CHARS]
    return f"{name[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{mark}"


def tools_of(link: Link, *, trusted: bool) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools that a server offers now, and what there is to say of those that were left out."""
    tools: dict[str, Tool] = {}
    notices: list[str] = []
    for info in link.catalogue.tools:
        tool = McpTool(link, info, trusted=trusted)
        if tool.name in tools:
            notices.append(f"MCP server {link.name}: a second tool {tool.name} was left out")
        tools.setdefault(tool.name, tool)
    return tuple(tools.values()), tuple(notices)


class McpTool(Tool):
    """
    One tool of one server. It stays usable over restarts of the server; a call while it is down waits or fails.

    Args:
        trusted: the user vouches for the server, so that what only reads needs no approval.
    """

    def __init__(self, link: Link, info: ToolInfo, *, trusted: bool = False) -> None:
        self.link = link
        self.info = info
        self.name = tool_name(link.name, info.name)
        self.description = info.description or f"The tool {info.name} of the MCP server {link.name}."
        self.input_schema: JsonObject = info.schema
        self.read_only = info.read_only
        self.idempotent = info.idempotent
        self.destructive = info.destructive
        self.permission: Permission = "read" if trusted and info.read_only else "ask"

    def parse(self, raw: Mapping[str, Any]) -> JsonObject:
        """Only what is missing is named here: the server judges the rest, in its own words."""
        required = self.input_schema.get("required") or ()
        problems = [f"the required parameter {name!r} is missing" for name in required if name not in raw]
        if problems:
            raise InvalidToolInput(self.name, problems)
        arguments: JsonObject = without_surrogates(dict(raw))
        return arguments

    async def run(self, input: JsonObject, ctx: ToolContext) -> ToolOutput:
        """
        Call it. Raises `McpFailed` and `ToolTimedOut`.

        If cancelled, the server is told to stop; whether it does is up to it.
        """
        limit = self.link.config.call_limit or CALL_LIMIT
        with trio.move_on_after(limit) as patience:
            answer = await self.link.ask(CallTool(name=self.info.name, arguments=input), _teller(ctx, patience, limit))
            return await _output(answer, ctx)
        raise ToolTimedOut(self.name, limit)


def _teller(ctx: ToolContext, patience: trio.CancelScope, limit: float) -> TakeProgress:
    """Passes progress on. Whoever reports progress is alive, and gets its time again."""

    def take(done: float, total: float | None, message: str | None) -> None:
        patience.deadline = trio.current_time() + limit
        count = f"{done:g}/{total:g}" if total else f"{done:g}"
        text = f"{message} ({count})" if message else count
        ctx.progress(text, {"progress": done, "total": total, "message": message})

    return take


async def _output(answer: JsonObject, ctx: ToolContext) -> ToolOutput:
    structured = answer.get("structuredContent")
    parts = map_content(answer.get("content") or ())
    if not parts and structured is not None:
        parts = (TextBlock(structured_text(structured)),)
    shown = await keep_blobs(parts, ctx.results_dir, ctx.call_id)
    return ToolOutput(as_content(shown), is_error=bool(answer.get("isError")), details=structured)


def as_content(parts: Iterable[Shown]) -> str | tuple[Shown, ...]:
    """Content as a result takes it: texts alone as one text."""
    listed = tuple(parts)
    texts = [part.text for part in listed if isinstance(part, TextBlock)]
    return "\n".join(texts) if len(texts) == len(listed) else listed
