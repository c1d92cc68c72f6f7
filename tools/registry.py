"""Sets of tools: looking one up by the name that a model gives, and choosing from the built-in ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from atrio.runtime.errors import ConfigError, UnknownTool
from atrio.runtime.messages import JsonObject
from atrio.runtime.tool import Tool

from .shapes import close_names

if TYPE_CHECKING:
    from .background import BackgroundShells

__all__ = ["Toolbox", "default_tools", "require_name", "select_tools"]

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""What the API takes as a tool's name. One bad name would make every request fail."""

_ALL: Final = "default"


def require_name(name: str, where: str) -> str:
    """The same name. Raises `ConfigError` if the API does not take it; ``where`` says whose it is."""
    if not NAME_PATTERN.fullmatch(name):
        shown = repr(name if len(name) <= 140 else f"{name[:137]}...")
        raise ConfigError(where, f"{shown} can't be a tool's name", "use up to 128 of A-Z, a-z, 0-9, _ and -")
    return name


class Toolbox:
    """
    The tools of an agent, in the order given. They stay the same during a run, so that its requests can hit the
    prompt cache; `replace` is for the time between runs.

    Raises `ConfigError` for a name that the API doesn't take or that two tools share.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.replace(tools)

    def replace(self, tools: Iterable[Tool]) -> None:
        """Other tools from now on. Raises `ConfigError`; then nothing has changed."""
        listed = tuple(tools)
        by_name: dict[str, Tool] = {}
        for tool in listed:
            for name in (tool.name, *tool.aliases):
                require_name(name, f"tool {type(tool).__name__}")
                if name in by_name:
                    raise ConfigError(
                        f"tool {name}", "two tools have this name or alias", "rename one, or leave it out"
                    )
                by_name[name] = tool
        self._tools, self._by_name = listed, by_name
        self._definitions = tuple(tool.definition() for tool in listed)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def find(self, name: str) -> Tool:
        """The tool of this name or alias. Raises `UnknownTool` with the names that may have been meant."""
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownTool(name, close_names(name, self.names())) from None

    def names(self) -> list[str]:
        """The tools' names, without aliases."""
        return [tool.name for tool in self._tools]

    def definitions(self) -> Sequence[JsonObject]:
        """The tools as the API takes them; always the same objects, not to be changed."""
        return self._definitions


def default_tools(background: BackgroundShells | None = None) -> tuple[Tool, ...]:
    """
    New instances of the built-in tools that need nothing else: Read, Write, Edit, NotebookEdit, Glob, Grep, Bash,
    WebFetch, TodoWrite.

    With ``background``, which must run for as long as the tools are used, Bash can leave commands running there, and
    BashOutput and KillShell come behind it.
    """
    # Here and not above: a program with tools of its own only need not load these.
    from .edit import Edit
    from .glob import Glob
    from .grep import Grep
    from .notebook import NotebookEdit
    from .read import Read
    from .shell import Bash
    from .todo import TodoWrite
    from .web import WebFetch
    from .write import Write

    files: tuple[Tool, ...] = (Read(), Write(), Edit(), NotebookEdit(), Glob(), Grep())
    shells: tuple[Tool, ...] = (Bash(background),)
    if background is not None:
        from .background_tools import BashOutput, KillShell

        shells = (*shells, BashOutput(background), KillShell(background))
    return (*files, *shells, WebFetch(), TodoWrite())


def select_tools(names: Sequence[str], tools: Iterable[Tool] | None = None) -> tuple[Tool, ...]:
    """
    The tools with these names, in the order of ``tools`` (default: `default_tools`).

    ``"default"`` among the names means all, and empty names mean nothing, so that ``[""]`` is no tool at all. Raises
    `ConfigError` for a name that is not there.
    """
    offered = Toolbox(default_tools() if tools is None else tools)
    wanted = [name.strip() for name in names if name.strip()]
    chosen: set[str] = set()
    for name in wanted:
        if name == _ALL:
            chosen.update(offered.names())
        elif name in offered:
            chosen.add(offered.find(name).name)
        else:
            close = close_names(name, offered.names())
            remedy = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(offered.names())}"
            raise ConfigError(f"tool {name[:140]!r}", "there is no such tool", remedy)
    return tuple(tool for tool in offered if tool.name in chosen)
