"""What a server offers and answers, as values of our own: nothing else here depends on the SDK's classes. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from atrio.runtime.messages import JsonObject

__all__ = ["Catalogue", "Failure", "PromptInfo", "ResourceInfo", "ServerStatus", "ToolInfo"]


class ServerStatus(enum.StrEnum):
    """A server's state, in the words of the ``system/init`` event."""

    PENDING = "pending"
    CONNECTED = "connected"
    FAILED = "failed"
    NEEDS_AUTH = "needs-auth"


@attrs.frozen(kw_only=True)
class ToolInfo:
    """A tool as its server lists it. The hints are the server's own claims."""

    name: str
    description: str = ""
    schema: JsonObject = attrs.field(factory=dict)
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False


@attrs.frozen(kw_only=True)
class ResourceInfo:
    """A resource, or with ``template`` a pattern of resources, as its server lists it."""

    server: str
    uri: str
    name: str = ""
    description: str = ""
    mime_type: str = ""
    template: bool = False


@attrs.frozen(kw_only=True)
class PromptInfo:
    """A prompt as its server lists it. ``arguments``: name, description, and whether it must be given."""

    server: str
    name: str
    description: str = ""
    arguments: Sequence[tuple[str, str, bool]] = ()

    @property
    def command(self) -> str:
        """The slash command that stands for it, without the slash."""
        return f"mcp__{self.server}__{self.name}"


@attrs.frozen(kw_only=True)
class Catalogue:
    """All that a server offers, and what was left out of it."""

    tools: tuple[ToolInfo, ...] = ()
    prompts: tuple[PromptInfo, ...] = ()
    has_resources: bool = False
    instructions: str = ""
    notices: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Failure:
    """Why a request came to nothing, in a sentence for the model. ``data`` is what the server added."""

    text: str
    data: Mapping[str, Any] | None = None
