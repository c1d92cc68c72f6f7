"""Hooks of settings files: what they say, what is wrong with them, what is left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.hooking.config import CommandHandler, HookConfig, HookGroup, HttpHandler, Matcher, parse_hooks
from atrio.actors.hooking.payloads import HookName
from atrio.runtime.errors import ConfigError
from atrio.tools.rules import Rule


def one(handler: object, event: str = "PreToolUse") -> HookConfig:
    return parse_hooks({event: [{"hooks": [handler]}]})


def test_a_command_and_an_address_are_read_with_all_they_have() -> None:
    handlers = [
        {"type": "command", "command": "./check", "timeout": 10, "if": "Bash(git *)", "unknown": 1},
        {
            "type": "http",
            "url": "http://127.0.0.1:8000/hook",
            "headers": {"Authorization": "Bearer $TOKEN"},
            "allowedEnvVars": ["TOKEN"],
            "timeout": 0.5,
        },
        {"type": "command", "command": "log", "async": True},
        {"type": "command", "command": "watch", "asyncRewake": True},
    ]
    expected = HookGroup(
        matcher=Matcher("Bash|Edit"),
        handlers=(
            CommandHandler(command="./check", timeout=10.0, condition=Rule("Bash", "git *")),
            HttpHandler(
                url="http://127.0.0.1:8000/hook",
                headers=(("Authorization", "Bearer $TOKEN"),),
                variables=("TOKEN",),
                timeout=0.5,
            ),
            CommandHandler(command="log", background=True),
            CommandHandler(command="watch", background=True, rewake=True),
        ),
    )
    config = parse_hooks({"PreToolUse": [{"matcher": "Bash|Edit", "hooks": handlers}]})
    assert HookConfig(groups={HookName.PRE_TOOL_USE: (expected,)}) == config


def test_nothing_is_no_hooks() -> None:
    assert HookConfig() == parse_hooks({})
    assert not parse_hooks({"Stop": []}).has(HookName.STOP)
    assert not parse_hooks({"Stop": [{"hooks": []}]}).has(HookName.STOP)
    assert one({"type": "command", "command": "x"}, "Stop").has(HookName.STOP)


@pytest.mark.parametrize(
    ("text", "subject", "matches"),
    [
        ("", "Bash", True),
        ("*", "Bash", True),
        ("Bash", "Bash", True),
        ("Bash", "BashOutput", False),
        ("Bash", "bash", False),
        ("Edit|Write", "Write", True),
        ("Edit, Write", "Write", True),
        ("Edit|Write", "MultiEdit", False),
        ("mcp__files", "mcp__files__read", False),
        ("mcp__.*", "mcp__files__read", True),
        ("Edit.*", "NotebookEdit", True),
        ("^Edit$", "NotebookEdit", False),
        ("[[B]ash", "Bash", True),
        ("^(?!Read$).*", "Read", False),
        ("Bash", None, True),
    ],
)
def test_a_matcher_is_a_list_of_names_or_a_pattern(text: str, subject: str | None, matches: bool) -> None:
    assert matches is Matcher(text).matches(subject)


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        (1, r"hooks\.PreToolUse\[0\] must be an object, it is 1"),
        ({}, r"hooks\.PreToolUse\[0\]\.hooks is missing"),
        ({"hooks": {}}, r"hooks\.PreToolUse\[0\]\.hooks must be a list"),
        ({"hooks": ["x"]}, r"hooks\.PreToolUse\[0\]\.hooks\[0\] must be an object"),
        ({"hooks": [], "matcher": 1}, r"matcher must be a text, it is 1"),
        ({"hooks": [], "matcher": "(a"}, r"matcher '\(a' is no pattern"),
        ({"hooks": [{"command": "x"}]}, r"hooks\[0\]\.type is missing"),
        ({"hooks": [{"type": "comand", "command": "x"}]}, r'type must be "command" or "http", it is "comand"'),
        ({"hooks": [{"type": []}]}, r"type must be"),
        ({"hooks": [{"type": "command"}]}, r"hooks\[0\]\.command is missing"),
        ({"hooks": [{"type": "command", "command": " "}]}, r"command must be a command"),
        ({"hooks": [{"type": "command", "command": "a\0b"}]}, r"command must be a command"),
        ({"hooks": [{"type": "command", "command": "x", "timeout": "1"}]}, r"timeout must be a number of seconds"),
        ({"hooks": [{"type": "command", "command": "x", "timeout": True}]}, r"timeout must be"),
        ({"hooks": [{"type": "command", "command": "x", "timeout": 0}]}, r"timeout must be"),
        ({"hooks": [{"type": "command", "command": "x", "timeout": float("nan")}]}, r"timeout must be"),
        ({"hooks": [{"type": "command", "command": "x", "timeout": float("inf")}]}, r"timeout must be"),
        ({"hooks": [{"type": "command", "command": "x", "async": 1}]}, r"async must be true or false"),
        ({"hooks": [{"type": "command", "command": "x", "if": 1}]}, r"if must be a permission rule"),
        ({"hooks": [{"type": "command", "command": "x", "if": "Bash("}]}, r"hooks\[0\]\.if: permission rule 'Bash\('"),
        ({"hooks": [{"type": "http"}]}, r"url is missing"),
        ({"hooks": [{"type": "http", "url": "file:///x"}]}, r"url must be an http or https address"),
        ({"hooks": [{"type": "http", "url": "http://"}]}, r"url must be"),
        ({"hooks": [{"type": "http", "url": "http://[::1"}]}, r"url must be"),
        ({"hooks": [{"type": "http", "url": "http://h:x"}]}, r"url must be"),
        ({"hooks": [{"type": "http", "url": "http://a b"}]}, r"url must be"),
        ({"hooks": [{"type": "http", "url": "http://h", "headers": []}]}, r"headers must be an object"),
        ({"hooks": [{"type": "http", "url": "http://h", "headers": {"a": 1}}]}, r"headers\.a must be a text"),
        ({"hooks": [{"type": "http", "url": "http://h", "allowedEnvVars": "A"}]}, r"allowedEnvVars must be a list"),
    ],
)
def test_what_has_the_wrong_shape_is_named_with_its_file_and_place(group: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_hooks({"PreToolUse": [group]}, {"PreToolUse": ["settings file /a"]})
    assert "settings file /a" == caught.value.thing
    assert caught.value.remedy
    assert len(str(caught.value)) < 300


def test_a_place_is_counted_within_its_own_file() -> None:
    fine: dict[str, Any] = {"hooks": []}
    files = ["settings file /a", "settings file /a", "settings file /b", "settings file /b"]
    with pytest.raises(ConfigError, match=r"settings file /b: hooks\.Stop\[1\] must be an object"):
        parse_hooks({"Stop": [fine, fine, fine, 5]}, {"Stop": files})


def test_what_others_know_is_left_out_with_a_warning() -> None:
    config = parse_hooks(
        {
            "CwdChanged": [{"anything": 1}, 7],
            "Stop": [{"hooks": [{"type": "prompt", "prompt": "x"}, {"type": "command", "command": "y"}]}],
            "PreCompact": [{"hooks": [{"type": "command", "command": "z", "if": "Bash"}]}],
        },
        {"CwdChanged": ["settings file /a"] * 2, "Stop": ["settings file /b"]},
    )
    assert (
        "settings file /a: hooks.CwdChanged is no event that is known here; its hooks are left out",
        "settings file /b: hooks.Stop[0].hooks[0] is of type prompt, which is not supported; it is left out",
        "the settings: hooks.PreCompact[0].hooks[0] has an `if`, which only calls of tools can fulfil; it never runs",
    ) == config.warnings
    stop = HookGroup(matcher=Matcher(), handlers=(CommandHandler(command="y"),))
    assert {HookName.STOP: (stop,), HookName.PRE_COMPACT: ()} == config.groups


def test_a_label_shows_no_secret_and_stays_short() -> None:
    assert "hook address http://h:1/p" == HttpHandler(url="http://u:pass@h:1/p?token=1#f").label
    assert len(CommandHandler(command="x " * 1000).label) < 120


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["command", "http"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["matcher", "hooks", "type", "command", "url", "timeout", "if", "async"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([*HookName, "Other"]), st.lists(VALUES, max_size=2), max_size=3))
def test_any_settings_are_hooks_or_a_clear_error(data: dict[str, Any]) -> None:
    problem, config = "hooks.", HookConfig()
    try:
        config = parse_hooks(json.loads(json.dumps(data)))
    except ConfigError as error:
        problem = error.problem
    assert "hooks." in problem
    assert set(config.groups) <= set(HookName)
