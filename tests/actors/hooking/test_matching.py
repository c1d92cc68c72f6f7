"""Which hooks an event is for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from atrio.actors.hooking.config import CommandHandler, parse_hooks
from atrio.actors.hooking.matching import handlers_for
from atrio.actors.hooking.payloads import HookEvent, post_tool_use, pre_compact, pre_tool_use, session_start, stop


def commands(event: HookEvent, groups: dict[str, list[Any]], cwd: Path = Path("/w")) -> list[str]:
    found = handlers_for(parse_hooks(groups), event, cwd)
    return [handler.command for handler in found if isinstance(handler, CommandHandler)]


def group(*texts: str, matcher: str = "", condition: str | None = None) -> dict[str, Any]:
    extra = {} if condition is None else {"if": condition}
    return {"matcher": matcher, "hooks": [{"type": "command", "command": text, **extra} for text in texts]}


def test_the_event_and_its_subject_choose() -> None:
    groups = {
        "PreToolUse": [group("a", matcher="Bash"), group("b", matcher="Edit|Write"), group("c")],
        "PostToolUse": [group("d")],
        "SessionStart": [group("e", matcher="resume"), group("f", matcher="startup")],
    }
    assert ["a", "c"] == commands(pre_tool_use("Bash", {}, "1"), groups)
    assert ["b", "c"] == commands(pre_tool_use("Write", {}, "1"), groups)
    assert ["d"] == commands(post_tool_use("Bash", {}, "1", ""), groups)
    assert ["f"] == commands(session_start("startup"), groups)
    assert [] == commands(pre_compact("auto"), groups)


def test_an_event_without_a_subject_is_for_all() -> None:
    assert ["a"] == commands(stop("", active=False), {"Stop": [group("a", matcher="Bash")]})


def test_what_is_configured_twice_runs_once() -> None:
    assert ["a", "b"] == commands(stop("", active=False), {"Stop": [group("a", "b", "a"), group("a")]})


@pytest.mark.parametrize(
    ("condition", "tool", "input", "holds"),
    [
        ("Bash", "Bash", {"command": "ls"}, True),
        ("Bash", "Read", {"file_path": "a"}, False),
        ("Bash(git *)", "Bash", {"command": "git push"}, True),
        ("Bash(git *)", "Bash", {"command": "ls && git push"}, True),
        ("Bash(git *)", "Bash", {"command": "sudo git push"}, True),
        ("Bash(git *)", "Bash", {"command": "ls"}, False),
        ("Edit(src/**)", "Edit", {"file_path": "src/a.py"}, True),
        ("Edit(src/**)", "Write", {"file_path": "/w/src/a/b.py"}, True),
        ("Edit(src/**)", "Edit", {"file_path": "src/../docs/a"}, False),
        ("Edit(*.py)", "Edit", {"file_path": "x.py"}, True),
        ("Read(*.env)", "Read", {"file_path": 5}, True),
        ("WebFetch(domain:example.com)", "WebFetch", {"url": "https://example.com/a"}, True),
        ("WebFetch(domain:example.com)", "WebFetch", {"url": "https://other.org/example.com"}, False),
        ("WebFetch(domain:example.com)", "WebFetch", {"url": "http://[::1"}, False),
        ("mcp__files", "mcp__files__read", {}, True),
        ("mcp__files__*", "mcp__files__read", {"path": "a"}, True),
        ("Task(x)", "Task", {"prompt": "y"}, True),
    ],
)
def test_a_condition_narrows_to_what_the_call_can_mean(
    condition: str, tool: str, input: Mapping[str, Any], holds: bool
) -> None:
    found = commands(pre_tool_use(tool, input, "1"), {"PreToolUse": [group("a", condition=condition)]})
    assert (["a"] if holds else []) == found


def test_a_condition_sees_through_links(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "link").symlink_to("secret")
    event = pre_tool_use("Read", {"file_path": "link/a"}, "1")
    assert ["a"] == commands(event, {"PreToolUse": [group("a", condition="Read(secret/**)")]}, tmp_path)


@pytest.mark.parametrize("path", ["a\0b", "x" * 10_000, "\ud83d", ""])
def test_a_path_that_none_can_be_hinders_nothing(path: str) -> None:
    event = pre_tool_use("Read", {"file_path": path}, "1")
    assert commands(event, {"PreToolUse": [group("a", condition="Read(secret/**)")]}) in ([], ["a"])
