"""What hooks are told of each event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atrio.actors.hooking import payloads
from atrio.actors.hooking.payloads import HookEvent, HookName, HookSession, encode_payload

SESSION = HookSession(session_id="s", transcript_path="/t.jsonl", cwd="/w")
COMMON = {"session_id": "s", "transcript_path": "/t.jsonl", "cwd": "/w", "permission_mode": "default"}
CALL = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "c"}
ENDING = {"stop_hook_active": True, "last_assistant_message": "done", "background_tasks": [], "session_crons": []}

EVENTS: list[tuple[HookEvent, str, str | None, dict[str, Any]]] = [
    (payloads.session_start("resume", model="m"), "SessionStart", "resume", {"source": "resume", "model": "m"}),
    (payloads.session_end("other"), "SessionEnd", "other", {"reason": "other"}),
    (payloads.user_prompt_submit("hi"), "UserPromptSubmit", None, {"prompt": "hi"}),
    (
        payloads.notification("m", "idle_prompt", title="t"),
        "Notification",
        "idle_prompt",
        {"message": "m", "title": "t", "notification_type": "idle_prompt"},
    ),
    (payloads.pre_tool_use("Bash", {"command": "ls"}, "c"), "PreToolUse", "Bash", CALL),
    (
        payloads.permission_request("Bash", {"command": "ls"}, "c"),
        "PermissionRequest",
        "Bash",
        {**CALL, "permission_suggestions": []},
    ),
    (
        payloads.post_tool_use("Bash", {"command": "ls"}, "c", "out", duration=1.2345),
        "PostToolUse",
        "Bash",
        {**CALL, "tool_response": "out", "duration_ms": 1234},
    ),
    (
        payloads.post_tool_use_failure("Bash", {"command": "ls"}, "c", "bad"),
        "PostToolUseFailure",
        "Bash",
        {**CALL, "error": "bad", "is_interrupt": False},
    ),
    (payloads.post_tool_batch([CALL]), "PostToolBatch", None, {"tool_calls": [CALL]}),
    (payloads.stop("done", active=True), "Stop", None, ENDING),
    (
        payloads.stop_failure("rate_limit", details="d"),
        "StopFailure",
        "rate_limit",
        {"error": "rate_limit", "error_details": "d", "last_assistant_message": ""},
    ),
    (
        payloads.subagent_start("a1", "Explore"),
        "SubagentStart",
        "Explore",
        {"agent_id": "a1", "agent_type": "Explore"},
    ),
    (
        payloads.subagent_stop("a1", "Explore", "done", active=True, transcript_path="/a"),
        "SubagentStop",
        "Explore",
        {**ENDING, "agent_id": "a1", "agent_type": "Explore", "agent_transcript_path": "/a"},
    ),
    (
        payloads.pre_compact("auto"),
        "PreCompact",
        "auto",
        {"trigger": "auto", "custom_instructions": ""},
    ),
    (
        payloads.post_compact("auto", "summary"),
        "PostCompact",
        "auto",
        {"trigger": "auto", "compact_summary": "summary"},
    ),
]


@pytest.mark.parametrize(("event", "name", "subject", "fields"), EVENTS, ids=[name for _, name, _, _ in EVENTS])
def test_an_event_is_one_line_of_json_with_all_its_fields(
    event: HookEvent, name: str, subject: str | None, fields: dict[str, Any]
) -> None:
    assert (name, subject) == (event.name.value, event.subject)
    line = encode_payload(event, SESSION)
    assert line.endswith(b"\n")
    assert 1 == line.count(b"\n")
    assert {**COMMON, **fields, "hook_event_name": name} == json.loads(line)


def test_every_event_can_be_made() -> None:
    assert set(HookName) == {event.name for event, *_ in EVENTS}


def test_a_subagents_session_is_told_apart() -> None:
    session = HookSession(session_id="s", transcript_path="", cwd="/", agent_id="a", agent_type="t")
    told = json.loads(encode_payload(payloads.pre_tool_use("Read", {}, "c"), session))
    assert ("a", "t") == (told["agent_id"], told["agent_type"])


def test_whatever_a_model_or_a_tool_writes_can_be_told() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    event = payloads.post_tool_use("T", {"a": "\ud83d", "deep": deep, "n": 10**5000}, "c", object())
    assert "T" == json.loads(encode_payload(event, SESSION))["tool_name"]
