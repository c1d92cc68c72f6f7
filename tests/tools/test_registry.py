"""Tools are found by name, offered in a stable order, and chosen by a list of names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from atrio.runtime.errors import ConfigError, UnknownTool
from atrio.runtime.tool import Tool, ToolContext, ToolOutput
from atrio.tools.background import BackgroundShells
from atrio.tools.registry import Toolbox, default_tools, select_tools


class Named(Tool):
    description = "A tool."

    def __init__(self, name: str, *aliases: str) -> None:
        self.name = name
        self.aliases = aliases
        self.input_schema = {"type": "object", "properties": {}}

    def parse(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        return raw

    async def run(self, input: object, ctx: ToolContext) -> ToolOutput:
        return ToolOutput("")


READ, GREP, TASK = Named("Read"), Named("Grep"), Named("Agent", "Task")
BOX = Toolbox([READ, GREP, TASK])


def test_tools_are_found_by_name_and_alias() -> None:
    assert READ is BOX.find("Read")
    assert TASK is BOX.find("Task")
    assert "Task" in BOX
    assert "Bash" not in BOX


@pytest.mark.parametrize(("name", "close"), [("gerp", ("Grep",)), ("read", ("Read",)), ("", ()), ("x" * 10_000, ())])
def test_an_unknown_name_lists_close_ones(name: str, close: tuple[str, ...]) -> None:
    with pytest.raises(UnknownTool) as caught:
        BOX.find(name)
    assert close == tuple(caught.value.close)
    assert len(str(caught.value)) < 200


def test_order_is_as_given_and_definitions_are_built_once() -> None:
    assert ["Read", "Grep", "Agent"] == BOX.names()
    assert [READ, GREP, TASK] == list(BOX)
    assert 3 == len(BOX)
    assert [READ.definition(), GREP.definition(), TASK.definition()] == list(BOX.definitions())
    assert BOX.definitions() is BOX.definitions()


def test_an_empty_toolbox_is_fine() -> None:
    assert 0 == len(Toolbox(()))
    assert [] == list(Toolbox(()).definitions())


@pytest.mark.parametrize(
    "tools", [[READ, Named("Read")], [TASK, Named("Task")], [Named("A", "B"), Named("C", "B")], [Named("A", "A")]]
)
def test_a_name_used_twice_is_refused(tools: list[Tool]) -> None:
    with pytest.raises(ConfigError, match="two tools"):
        Toolbox(tools)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 129, "a\n"])
def test_an_illegal_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="can't be a tool's name"):
        Toolbox([Named(name)])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["default"], ["Read", "Grep", "Agent"]),
        ([], []),
        ([""], []),
        (["Grep", " Read "], ["Read", "Grep"]),
        (["Task"], ["Agent"]),
        (["Grep", "default"], ["Read", "Grep", "Agent"]),
    ],
)
def test_tools_are_selected_in_their_own_order(names: list[str], expected: list[str]) -> None:
    assert expected == [tool.name for tool in select_tools(names, BOX)]


def test_selecting_an_unknown_tool_names_close_ones_or_all() -> None:
    with pytest.raises(ConfigError, match="did you mean Grep"):
        select_tools(["grpe"], BOX)
    with pytest.raises(ConfigError, match="there are Read, Grep, Agent"):
        select_tools(["Frobnicate"], BOX)


def test_the_built_in_tools() -> None:
    tools = default_tools()
    names = ["Read", "Write", "Edit", "NotebookEdit", "Glob", "Grep", "Bash", "WebFetch", "TodoWrite"]
    assert names == Toolbox(tools).names()
    assert ["Bash"] == [tool.name for tool in select_tools(["Bash"])]


def test_the_built_in_tools_with_commands_in_the_background() -> None:
    names = Toolbox(default_tools(BackgroundShells())).names()
    assert ["Grep", "Bash", "BashOutput", "KillShell", "WebFetch", "TodoWrite"] == names[5:]
