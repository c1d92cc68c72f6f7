"""What ``.mcp.json`` may say, and what is said of mistakes in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.mcp.config import (
    HttpServer,
    Servers,
    StdioServer,
    expand,
    load_mcp_options,
    parse_mcp_servers,
    read_mcp_file,
    safe_server_name,
)
from atrio.runtime.errors import ConfigError

ENVIRON = {"TOKEN": "t0k", "EMPTY": "", "HOST": "localhost"}


def parse(servers: object) -> Servers:
    return parse_mcp_servers(json.dumps({"mcpServers": servers}), ENVIRON, source="x/.mcp.json")


def problem(entry: object, name: str = "s") -> str:
    found = parse({name: entry})
    assert () == found.configs
    assert 1 == len(found.problems)
    return str(found.problems[0])


def test_a_stdio_server_is_read_with_its_variables_filled_in() -> None:
    entry = {"command": "${RUNNER:-npx}", "args": ["-y", "${HOST}", 8], "env": {"KEY": "${TOKEN}"}, "timeout": 1500}
    expected = StdioServer(name="git", command="npx", args=("-y", "localhost", "8"), env={"KEY": "t0k"}, call_limit=1.5)
    assert Servers(configs=(expected,)) == parse({"git": entry})


@pytest.mark.parametrize("kind", [{"type": "http"}, {"type": "streamable-http"}, {}])
def test_an_http_server_is_read_with_its_variables_filled_in(kind: dict[str, str]) -> None:
    entry = {**kind, "url": "http://${HOST}:1/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    expected = HttpServer(name="web", url="http://localhost:1/mcp", headers={"Authorization": "Bearer t0k"})
    assert Servers(configs=(expected,)) == parse({"web": entry})


def test_secrets_are_not_in_a_configurations_text() -> None:
    (config,) = parse({"web": {"url": "http://u:pw@h/p?key=1", "headers": {"A": "${TOKEN}"}}}).configs
    assert "t0k" not in repr(config)
    assert "pw" not in repr(config)
    assert "http://h/p" == config.target


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"command": "${NOPE}"}, "command needs the environment variable NOPE, which is not set"),
        ({"command": "x", "args": ["${A} ${B}"]}, "args[0] needs the environment variable A, B"),
        ({"url": "http://h", "headers": {"K": "${NOPE}"}}, "headers.K needs the environment variable NOPE"),
        ({"command": ""}, "command is empty"),
        ({"command": ["x"]}, "command must be a text"),
        ({"command": "x", "args": "y"}, "args must be a list of texts"),
        ({"command": "x", "env": {"A=B": "1"}}, "which can't name a variable"),
        ({"command": "x", "env": []}, "env must be an object of texts"),
        ({"command": "x", "timeout": -1}, "timeout must be a positive number"),
        ({"command": "x", "timeout": True}, "timeout must be a positive number"),
        ({"url": "ftp://h"}, "url is no http or https address"),
        ({"url": "http://h:99999"}, "url is no http or https address"),
        ({"url": "http://h", "headers": {"A": "b\nC: d"}}, "is no header or has a line break"),
        ({"url": "http://h", "oauth": {}}, "oauth is not supported"),
        ({"type": "sse", "url": "http://h"}, 'type "sse" is not supported; use stdio or http'),
        ({}, "it has neither command nor url"),
        (7, "the entry must be an object, it is 7"),
    ],
)
def test_a_problem_names_file_server_and_key(entry: object, said: str) -> None:
    text = problem(entry)
    assert text.startswith("MCP file x/.mcp.json: server 's': ")
    assert said in text


def test_one_bad_entry_leaves_the_others() -> None:
    found = parse({"bad": {}, "good": {"command": "x"}})
    assert ["good"] == [config.name for config in found.configs]
    assert 1 == len(found.problems)


def test_two_names_that_count_as_one_are_a_problem_of_the_second() -> None:
    found = parse({"a b": {"command": "x"}, "a_b": {"command": "y"}})
    assert ["x"] == [config.command for config in found.configs if isinstance(config, StdioServer)]
    assert "which another server has" in str(found.problems[0])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is no valid JSON at line 1, column 2"),
        ("[]", "it has no object mcpServers"),
        ('{"mcpServers": 1}', "it has no object mcpServers"),
        ("[" * 100_000, "it is no valid JSON"),
    ],
)
def test_a_file_that_is_none_is_refused_as_a_whole(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_mcp_servers(text, {}, source="f")
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", " ", "{}", '{"other": 1}'])
def test_a_file_without_servers_has_none(text: str) -> None:
    assert Servers() == parse_mcp_servers(text, {}, source="f")


def test_a_missing_file_is_an_error_unless_it_is_optional(tmp_path: Path) -> None:
    assert Servers() == read_mcp_file(tmp_path / "no.json", {}, optional=True)
    with pytest.raises(ConfigError, match="does not exist"):
        read_mcp_file(tmp_path / "no.json", {})


def test_options_are_files_or_json_and_later_ones_win(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('\ufeff{"mcpServers": {"a": {"command": "1"}, "b": {"command": "2"}}}')
    found = load_mcp_options(["a.json", '{"mcpServers": {"a": {"command": "3"}}}'], {}, tmp_path)
    assert (StdioServer(name="b", command="2"), StdioServer(name="a", command="3")) == found.configs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${TOKEN}", ("t0k", ())),
        ("${EMPTY}", ("", ())),
        ("${EMPTY:-x}", ("x", ())),
        ("${NO:-}", ("", ())),
        ("${NO}-${NO}", ("${NO}-${NO}", ("NO",))),
        ("$TOKEN ${} ${1X}", ("$TOKEN ${} ${1X}", ())),
    ],
)
def test_variables_are_expanded(text: str, expected: tuple[str, tuple[str, ...]]) -> None:
    assert expected == expand(text, ENVIRON)


def test_an_expanded_value_is_not_expanded_again() -> None:
    assert ("${B}", ()) == expand("${A}", {"A": "${B}", "B": "secret"})


@given(st.text())
def test_a_safe_name_can_be_told_from_what_follows_it(name: str) -> None:
    safe = safe_server_name(name)
    assert "__" not in safe
    assert safe == safe.strip("_")
    assert safe == safe_server_name(safe)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.text(max_size=6),
        st.dictionaries(st.sampled_from(["type", "command", "args", "env", "url", "headers", "timeout"]), json_values),
        max_size=3,
    )
)
def test_whatever_entries_hold_each_is_a_server_or_a_problem(entries: dict[str, object]) -> None:
    found = parse(entries)
    assert len(entries) == len(found.configs) + len(found.problems)
