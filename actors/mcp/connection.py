"""
What is said to a server over the SDK's client: what it offers, and what it answers. As plain values on this side.

The SDK's errors end here. What may go wrong in a server is open-ended, and so are the errors that come of it, so the
answers to requests are taken at this border whatever they are, as the answers of tools are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, assert_never

import mcp_types
from mcp import Client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from atrio.runtime.groups import collapse
from atrio.runtime.messages import JsonObject
from atrio.runtime.wirejson import mend

from .link import CallTool, GetPrompt, ListResources, ReadResource, Reconnect, TakeProgress, Wish
from .values import Catalogue, Failure, PromptInfo, ToolInfo

__all__ = ["SESSION_ENDED", "describe", "innermost", "perform", "read_catalogue"]

MAX_PAGES: Final = 50
MAX_ITEMS: Final = 1_000

DESCRIPTION_CHARS: Final = 2_048
"""Of a tool, and of a server's instructions: they are in every request."""

ERROR_CHARS: Final = 2_000

SESSION_ENDED: Final = "Session terminated"
"""The SDK's words for an HTTP server that no longer knows the session, after which only a new one helps."""

T = TypeVar("T")


async def read_catalogue(client: Client, server: str) -> Catalogue:
    """
    All that the server offers.

    Raises whatever the SDK does if the tools can't be listed; prompts that can't are a notice. If cancelled, nothing
    has changed.
    """
    offers = client.server_capabilities
    notices: list[str] = []
    tools: list[mcp_types.Tool] = []
    prompts: list[mcp_types.Prompt] = []
    if offers.tools is not None:
        tools = await _all_pages(client.list_tools, lambda page: (page.tools, page.next_cursor))
    if offers.prompts is not None:
        try:
            prompts = await _all_pages(client.list_prompts, lambda page: (page.prompts, page.next_cursor))
        except (MCPError, ValidationError) as error:
            notices.append(f"its prompts can't be listed: {describe(error)}")
    return Catalogue(
        tools=tuple(sorted((_tool(tool) for tool in tools), key=lambda tool: tool.name)),
        prompts=tuple(sorted((_prompt(server, prompt) for prompt in prompts), key=lambda prompt: prompt.name)),
        has_resources=offers.resources is not None,
        instructions=clip(client.instructions or "", DESCRIPTION_CHARS),
        notices=tuple(notices),
    )


async def perform(client: Client, wish: Wish, progress: TakeProgress | None) -> JsonObject | Failure:
    """
    What the server answers. An error of any kind is a `Failure`, but for a lost connection, which is the caller's.

    If cancelled, the server is told so.
    """
    try:
        match wish:
            case CallTool():
                return _wire(
                    await client.call_tool(
                        wish.name, wish.arguments, progress_callback=_passing(progress) if progress else None
                    )
                )
            case ReadResource():
                return _wire(await client.read_resource(wish.uri))
            case ListResources():
                return await _list_resources(client)
            case GetPrompt():
                return _wire(await client.get_prompt(wish.name, wish.arguments))
            case Reconnect():
                return {}
            case _:
                assert_never(wish)
    except Exception as error:
        return Failure(text=describe(error))


async def _list_resources(client: Client) -> JsonObject:
    resources = await _all_pages(client.list_resources, lambda page: (page.resources, page.next_cursor))
    try:
        templates = await _all_pages(
            client.list_resource_templates, lambda page: (page.resource_templates, page.next_cursor)
        )
    except MCPError:
        templates = []  # many servers don't know the method
    return {"resources": [_wire(item) for item in resources], "templates": [_wire(item) for item in templates]}


async def _all_pages(
    fetch: Callable[..., Awaitable[Any]], split: Callable[[Any], tuple[list[T], str | None]]
) -> list[T]:
    """All items of a list that comes in pages, within bounds: a cursor may lead in a circle."""
    items: list[T] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        found, cursor = split(await fetch(cursor=cursor))
        items.extend(found)
        if cursor is None or cursor in seen or len(items) >= MAX_ITEMS:
            break
        seen.add(cursor)
    return items[:MAX_ITEMS]


def _passing(take_progress: TakeProgress) -> ProgressFnT:
    async def take(progress: float, total: float | None, message: str | None) -> None:
        take_progress(progress, total, message)

    return take


def _wire(result: BaseModel) -> JsonObject:
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def _tool(tool: mcp_types.Tool) -> ToolInfo:
    hints = tool.annotations
    read_only = hints is not None and hints.read_only_hint is True
    return ToolInfo(
        name=tool.name,
        description=clip(tool.description or tool.title or "", DESCRIPTION_CHARS),
        schema=tool.input_schema,
        read_only=read_only,
        destructive=not read_only and (hints is None or hints.destructive_hint is not False),
        idempotent=read_only or (hints is not None and hints.idempotent_hint is True),
    )


def _prompt(server: str, prompt: mcp_types.Prompt) -> PromptInfo:
    arguments = tuple(
        (mend(item.name), mend(item.description or ""), bool(item.required)) for item in prompt.arguments or ()
    )
    description = clip(prompt.description or prompt.title or "", DESCRIPTION_CHARS)
    return PromptInfo(server=server, name=mend(prompt.name), description=description, arguments=arguments)


def clip(text: str, limit: int) -> str:
    """The text as it can be sent, cut where it is longer than ``limit`` characters."""
    text = mend(text).strip()
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def innermost(error: BaseException) -> BaseException:
    """The error inside groups; of several the first, as the others tend to follow from it."""
    error = collapse(error)
    while isinstance(error, BaseExceptionGroup):
        error = collapse(error.exceptions[0])
    return error


def describe(error: BaseException) -> str:
    """An error as people and models read it: the one inside groups, in few words."""
    error = innermost(error)
    match error:
        case MCPError():
            text = error.message
        case ValidationError():
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            text = f"its answer is not what the protocol says: {where}: {first['msg']}"
        case _:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return clip(text, ERROR_CHARS) or type(error).__name__
