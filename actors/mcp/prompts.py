"""Prompts of servers: slash commands whose text the server writes."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final, Literal

import attrs
import trio

from atrio.runtime.errors import ToolRejected

from .content import Part, map_content
from .link import GetPrompt, Link, McpFailed
from .values import PromptInfo

__all__ = ["PromptMessage", "get_prompt", "prompt_arguments"]

PROMPT_LIMIT: Final = 60.0
"""Seconds that a server may take to write one."""


@attrs.frozen(kw_only=True)
class PromptMessage:
    """One message of a prompt. ``parts`` may hold blobs, to be kept by `atrio.actors.mcp.content.keep_blobs`."""

    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]


def prompt_arguments(prompt: PromptInfo, line: str) -> dict[str, str]:
    """
    The arguments in what stands behind a slash command: words in the order in which the prompt declares them.

    The last one takes all that is left. Raises `ToolRejected`, naming them, if one that must be given is missing.
    """
    names = [name for name, _, _ in prompt.arguments]
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    if names and len(words) > len(names):
        words = [*words[: len(names) - 1], " ".join(words[len(names) - 1 :])]
    values = dict(zip(names, words, strict=False))
    missing = [name for name, _, required in prompt.arguments if required and name not in values]
    if missing:
        usage = " ".join(f"<{name}>" if required else f"[{name}]" for name, _, required in prompt.arguments)
        raise ToolRejected(f"/{prompt.command} needs {', '.join(missing)}; write /{prompt.command} {usage}")
    return values


async def get_prompt(link: Link, name: str, arguments: Mapping[str, str]) -> tuple[PromptMessage, ...]:
    """
    The messages of a prompt. Nothing is changed if cancelled.

    Raises:
        McpFailed: the server doesn't give it.
    """
    with trio.move_on_after(PROMPT_LIMIT):
        answer = await link.ask(GetPrompt(name=name, arguments=dict(arguments)))
        return tuple(
            PromptMessage(
                role="assistant" if message.get("role") == "assistant" else "user",
                parts=map_content((message.get("content"),)),
            )
            for message in answer.get("messages") or ()
        )
    raise McpFailed(link.name, f"the prompt {name} did not come within {PROMPT_LIMIT:g} s")
