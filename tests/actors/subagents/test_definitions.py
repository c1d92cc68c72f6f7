"""Kinds of subagents: from JSON, from files, and what they say no to."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.subagents.definitions import SubagentDefinition, find_subagents, parse_subagents
from atrio.runtime.errors import ConfigError
from atrio.tools.permissions import PermissionMode

KEYS = st.sampled_from(("description", "prompt", "tools", "disallowedTools", "model", "maxTurns", "permissionMode"))


def write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def test_json_has_the_fields_of_the_flag() -> None:
    value = {
        "reviewer": {
            "description": "reviews",
            "prompt": "You review.",
            "tools": ["Read", "Grep"],
            "disallowedTools": "Bash(git push *)",
            "model": "haiku",
            "maxTurns": 5,
            "permissionMode": "plan",
            "background": True,
        }
    }
    assert parse_subagents(json.dumps(value)) == (
        SubagentDefinition(
            name="reviewer",
            description="reviews",
            prompt="You review.",
            tools=("Read", "Grep"),
            disallowed_tools=("Bash(git push *)",),
            model="haiku",
            max_turns=5,
            permission_mode=PermissionMode.PLAN,
            background=True,
        ),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "no valid JSON"),
        ("[]", "no JSON object"),
        ('{"a": 1}', "no JSON object"),
        ('{"a": {"prompt": "x"}}', "no description"),
        ('{"a": {"description": "x", "tools": [1]}}', "tools is no list"),
        ('{"a": {"description": "x", "maxTurns": 0}}', "maxTurns is 0"),
        ('{"a": {"description": "x", "permissionMode": "all"}}', "is not known"),
        ('{"a": {"description": "x", "prompt": 3}}', "prompt is no text"),
        ('{"a": {"description": "x", "max_turns": 3}}', "'max_turns' is not known"),
        ('{"a:b": {"description": "x"}}', "no name"),
        ('{"a": {"description": "x", "tools": ["(("]}}', "this is no rule"),
    ],
)
def test_wrong_json_is_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_subagents(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@given(st.text(max_size=60) | st.dictionaries(st.text(max_size=5), VALUES, max_size=3).map(json.dumps))
def test_any_text_is_definitions_or_a_config_error(text: str) -> None:
    with suppress(ConfigError):
        assert isinstance(parse_subagents(text), tuple)


def test_files_of_the_project_win_over_the_users(tmp_path: Path) -> None:
    cwd, home, user = tmp_path / "p", tmp_path / "h", tmp_path / "u"
    cwd.mkdir()
    front = "---\nname: {}\ndescription: {}\ntools: Read, Grep\nmaxTurns: 7\n---\n\nDo it.\n"
    write(cwd / ".claude" / "agents", "a.md", front.format("one", "of the project"))
    write(user / ".claude" / "agents", "b.md", front.format("one", "of the user"))
    write(home / "agents", "c.md", front.format("two", "of atrio"))
    write(cwd / ".claude" / "agents", "README.md", "# Nothing\n")
    write(cwd / ".atrio" / "agents", "bad.md", "---\nname: three\n---\ntext")
    found, warnings = find_subagents(cwd, home, user)
    assert [("one", "of the project"), ("two", "of atrio")] == [(each.name, each.description) for each in found]
    assert ("Read", "Grep") == found[0].tools
    assert (7, "Do it.") == (found[0].max_turns, found[0].prompt)
    [warning] = warnings
    assert "bad.md: skipped" in warning
    assert "description is empty" in warning


def test_a_kind_has_the_tools_that_it_names() -> None:
    kind = SubagentDefinition(
        name="a", description="b", tools=("Read", "mcp__web"), disallowed_tools=("Bash(rm *)", "mcp__web__post")
    )
    offered = [name for name in ("Read", "Bash", "mcp__web__get", "mcp__web__post") if kind.offers(name)]
    assert ["Read", "mcp__web__get"] == offered
    assert SubagentDefinition(name="a", description="b", disallowed_tools=("Bash(rm *)",)).offers("Bash")
