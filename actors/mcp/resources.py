"""Two tools for the resources of all servers: one lists them, one reads one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from atrio.runtime.errors import ToolRejected
from atrio.runtime.messages import JsonObject, TextBlock
from atrio.runtime.tool import Tool, ToolContext, ToolOutput
from atrio.runtime.wirejson import mend
from atrio.tools.schema import json_schema, structure

from .content import Part, keep_blobs, map_resource
from .link import Link, ListResources, McpFailed, ReadResource
from .tools import CALL_LIMIT, as_content
from .values import ResourceInfo

__all__ = ["ListMcpResources", "ReadMcpResource", "list_resources", "read_resource"]

LIST_LIMIT: Final = 60.0
"""Seconds for one server's list."""

READ_LIMIT: Final = CALL_LIMIT


@attrs.frozen(kw_only=True)
class _ListInput:
    """
    Args:
        server: Only the resources of this server.
    """

    server: str | None = None


@attrs.frozen(kw_only=True)
class _ReadInput:
    """
    Args:
        server: The server's name.
        uri: The resource's URI, as it is listed.
    """

    server: str
    uri: str


async def list_resources(link: Link) -> tuple[ResourceInfo, ...]:
    """
    What a server has to read, resources first and then patterns of them. Nothing is changed if cancelled.

    Raises:
        McpFailed: it can't be listed.
    """
    answer: JsonObject | None = None
    with trio.move_on_after(LIST_LIMIT):
        answer = await link.ask(ListResources())
    if answer is None:
        raise McpFailed(link.name, f"its resources did not come within {LIST_LIMIT:g} s")
    found = [_info(link.name, item, "uri") for item in answer["resources"]]
    found += [_info(link.name, item, "uriTemplate") for item in answer["templates"]]
    return tuple(found)


async def read_resource(link: Link, uri: str) -> tuple[Part, ...]:
    """
    The contents of one resource. Nothing is changed if cancelled.

    Raises:
        McpFailed: it can't be read.
    """
    answer: JsonObject | None = None
    with trio.move_on_after(READ_LIMIT):
        answer = await link.ask(ReadResource(uri=uri))
    if answer is None:
        raise McpFailed(link.name, f"the resource {uri} did not come within {READ_LIMIT:g} s")
    return tuple(part for item in answer.get("contents") or () for part in map_resource(item))


def _info(server: str, item: Mapping[str, Any], key: str) -> ResourceInfo:
    return ResourceInfo(
        server=server,
        uri=mend(str(item.get(key) or "")),
        name=mend(str(item.get("name") or "")),
        description=mend(str(item.get("description") or "")),
        mime_type=mend(str(item.get("mimeType") or "")),
        template=key == "uriTemplate",
    )


class _ResourceTool(Tool):
    """What both have in common. ``links`` gives the servers that have resources now."""

    read_only = True
    idempotent = True

    def __init__(self, links: Callable[[], Sequence[Link]]) -> None:
        self._links = links

    def _link(self, name: str) -> Link:
        links = self._links()
        for link in links:
            if link.name == name:
                return link
        names = ", ".join(link.name for link in links)
        raise ToolRejected(f"No MCP server {name[:80]!r} has resources. There are: {names or 'none'}.")


class ListMcpResources(_ResourceTool):
    """Lists the resources of one server, or of all. A server that fails is named in the text."""

    name = "ListMcpResources"
    aliases: tuple[str, ...] = ("ListMcpResourcesTool",)
    description = "List the resources that MCP servers offer, with their URIs: all of them, or those of one server."
    input_schema = json_schema(_ListInput)

    def parse(self, raw: Mapping[str, Any]) -> _ListInput:
        return structure(_ListInput, raw, tool=self.name)

    def specifier(self, input: _ListInput) -> str | None:
        return input.server

    async def run(self, input: _ListInput, ctx: ToolContext) -> ToolOutput:
        """List them, all servers at once. Nothing is changed if cancelled."""
        links = self._links() if input.server is None else (self._link(input.server),)
        lists: dict[str, list[str]] = {}

        async def fill(link: Link) -> None:
            try:
                lists[link.name] = [_line(info) for info in await list_resources(link)]
            except McpFailed as failure:
                lists[link.name] = [f"(failed: {failure.problem})"]

        async with trio.open_nursery() as nursery:
            for link in links:
                nursery.start_soon(fill, link)
        texts = [f"Server {link.name}:\n" + "\n".join(lists[link.name] or ["(no resources)"]) for link in links]
        return ToolOutput("\n\n".join(texts) or "No MCP server has resources.")


def _line(info: ResourceInfo) -> str:
    about = ": ".join(text for text in (info.name, info.description) if text and text != info.uri)
    kind = f" [{info.mime_type}]" if info.mime_type else ""
    return f"- {'pattern ' if info.template else ''}{info.uri}{kind}{f' ({about})' if about else ''}"


class ReadMcpResource(_ResourceTool):
    """Reads one resource. What isn't text or an image is saved to a file."""

    name = "ReadMcpResource"
    aliases: tuple[str, ...] = ("ReadMcpResourceTool",)
    description = "Read one resource of an MCP server by its URI."
    input_schema = json_schema(_ReadInput)

    def parse(self, raw: Mapping[str, Any]) -> _ReadInput:
        return structure(_ReadInput, raw, tool=self.name)

    def specifier(self, input: _ReadInput) -> str | None:
        return f"{input.server}:{input.uri}"

    async def run(self, input: _ReadInput, ctx: ToolContext) -> ToolOutput:
        """Read it. Nothing is changed if cancelled."""
        parts = await read_resource(self._link(input.server), input.uri)
        shown = await keep_blobs(parts or (TextBlock("(the resource is empty)"),), ctx.results_dir, ctx.call_id)
        return ToolOutput(as_content(shown))
