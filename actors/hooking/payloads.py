"""
What happens, as hooks are told of it: the events, and the JSON object that each is on a hook's standard input. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import attrs

from atrio.runtime.messages import JsonObject
from atrio.runtime.plain_json import json_line

__all__ = [
    "TOOL_EVENTS",
    "HookEvent",
    "HookName",
    "HookSession",
    "encode_payload",
    "notification",
    "permission_request",
    "post_compact",
    "post_tool_batch",
    "post_tool_use",
    "post_tool_use_failure",
    "pre_compact",
    "pre_tool_use",
    "session_end",
    "session_start",
    "stop",
    "stop_failure",
    "subagent_start",
    "subagent_stop",
    "user_prompt_submit",
]


class HookName(StrEnum):
    """The events that hooks can be set for."""

    SESSION_START = "SessionStart"
    USER_PROMPT_SUBMIT = "UserPromptSubmit"
    PRE_TOOL_USE = "PreToolUse"
    PERMISSION_REQUEST = "PermissionRequest"
    POST_TOOL_USE = "PostToolUse"
    POST_TOOL_USE_FAILURE = "PostToolUseFailure"
    POST_TOOL_BATCH = "PostToolBatch"
    NOTIFICATION = "Notification"
    SUBAGENT_START = "SubagentStart"
    SUBAGENT_STOP = "SubagentStop"
    STOP = "Stop"
    STOP_FAILURE = "StopFailure"
    PRE_COMPACT = "PreCompact"
    POST_COMPACT = "PostCompact"
    SESSION_END = "SessionEnd"


TOOL_EVENTS: Final = frozenset(
    {HookName.PRE_TOOL_USE, HookName.PERMISSION_REQUEST, HookName.POST_TOOL_USE, HookName.POST_TOOL_USE_FAILURE}
)
"""Those about one call of a tool."""


@attrs.frozen(kw_only=True)
class HookSession:
    """What every hook is told: the same for all events of a session, or of one of its subagents."""

    session_id: str
    transcript_path: str
    cwd: str
    permission_mode: str = "default"
    agent_id: str | None = None
    agent_type: str | None = None


@attrs.frozen(kw_only=True)
class HookEvent:
    """
    One thing that happens.

    Args:
        subject: what matchers are held against (a tool's name, say); None: the event has nothing of that kind.
        fields: what hooks are told of it besides what the session says.
    """

    name: HookName
    subject: str | None = None
    fields: Mapping[str, Any] = attrs.field(factory=dict)


def encode_payload(event: HookEvent, session: HookSession) -> bytes:
    """The event as one line of JSON. Never fails: what JSON has no form for is kept as text."""
    common = {key: value for key, value in attrs.asdict(session).items() if value is not None}
    return json_line({**common, **event.fields, "hook_event_name": event.name.value})


# --- the session ----------------------------------------------------------------------------------


def session_start(source: str, *, model: str | None = None) -> HookEvent:
    """It begins. ``source``: startup, resume, clear, compact or fork."""
    return HookEvent(name=HookName.SESSION_START, subject=source, fields=_present({"source": source, "model": model}))


def session_end(reason: str) -> HookEvent:
    """It ends. ``reason``: clear, resume, logout, prompt_input_exit or other."""
    return HookEvent(name=HookName.SESSION_END, subject=reason, fields={"reason": reason})


def user_prompt_submit(prompt: str) -> HookEvent:
    """A prompt has come and is about to be taken."""
    return HookEvent(name=HookName.USER_PROMPT_SUBMIT, fields={"prompt": prompt})


def notification(message: str, kind: str, *, title: str | None = None) -> HookEvent:
    """A person is told something; ``kind`` is the type of notification."""
    fields = _present({"message": message, "title": title, "notification_type": kind})
    return HookEvent(name=HookName.NOTIFICATION, subject=kind, fields=fields)


# --- calls ----------------------------------------------------------------------------------------


def pre_tool_use(tool: str, input: Mapping[str, Any], call_id: str) -> HookEvent:
    """A call is well-formed, and is about to be permitted or not."""
    return HookEvent(name=HookName.PRE_TOOL_USE, subject=tool, fields=_call(tool, input, call_id))


def permission_request(
    tool: str, input: Mapping[str, Any], call_id: str, *, suggestions: Sequence[JsonObject] = ()
) -> HookEvent:
    """No rule decides a call, and somebody would be asked now."""
    fields = {**_call(tool, input, call_id), "permission_suggestions": list(suggestions)}
    return HookEvent(name=HookName.PERMISSION_REQUEST, subject=tool, fields=fields)


def post_tool_use(
    tool: str, input: Mapping[str, Any], call_id: str, response: object, *, duration: float | None = None
) -> HookEvent:
    """A call has succeeded, after ``duration`` seconds."""
    fields = {**_call(tool, input, call_id), "tool_response": response, **_milliseconds(duration)}
    return HookEvent(name=HookName.POST_TOOL_USE, subject=tool, fields=fields)


def post_tool_use_failure(
    tool: str,
    input: Mapping[str, Any],
    call_id: str,
    error: str,
    *,
    is_interrupt: bool = False,
    duration: float | None = None,
) -> HookEvent:
    """A call has failed, or (``is_interrupt``) was broken off, after ``duration`` seconds."""
    fields = {**_call(tool, input, call_id), "error": error, "is_interrupt": is_interrupt, **_milliseconds(duration)}
    return HookEvent(name=HookName.POST_TOOL_USE_FAILURE, subject=tool, fields=fields)


def post_tool_batch(calls: Sequence[Mapping[str, Any]]) -> HookEvent:
    """All calls of a response have their results: each with tool_name, tool_input, tool_use_id, tool_response."""
    return HookEvent(name=HookName.POST_TOOL_BATCH, fields={"tool_calls": list(calls)})


# --- ends -----------------------------------------------------------------------------------------


def stop(last_message: str, *, active: bool) -> HookEvent:
    """The model thinks it is done. ``active``: a hook has already made this run go on."""
    return HookEvent(name=HookName.STOP, fields=_ending(last_message, active))


def stop_failure(kind: str, *, details: str | None = None, last_message: str = "") -> HookEvent:
    """The run ends since the model can't be asked; ``kind`` is the type of error."""
    fields = _present({"error": kind, "error_details": details, "last_assistant_message": last_message})
    return HookEvent(name=HookName.STOP_FAILURE, subject=kind, fields=fields)


def subagent_start(agent_id: str, agent_type: str) -> HookEvent:
    """A subagent begins."""
    fields = {"agent_id": agent_id, "agent_type": agent_type}
    return HookEvent(name=HookName.SUBAGENT_START, subject=agent_type, fields=fields)


def subagent_stop(
    agent_id: str, agent_type: str, last_message: str, *, active: bool, transcript_path: str | None = None
) -> HookEvent:
    """A subagent thinks it is done."""
    own = {"agent_id": agent_id, "agent_type": agent_type, "agent_transcript_path": transcript_path}
    fields = {**_ending(last_message, active), **_present(own)}
    return HookEvent(name=HookName.SUBAGENT_STOP, subject=agent_type, fields=fields)


# --- compaction -----------------------------------------------------------------------------------


def pre_compact(trigger: str, *, instructions: str = "") -> HookEvent:
    """The history is about to be summarized. ``trigger``: manual or auto."""
    fields = {"trigger": trigger, "custom_instructions": instructions}
    return HookEvent(name=HookName.PRE_COMPACT, subject=trigger, fields=fields)


def post_compact(trigger: str, summary: str) -> HookEvent:
    """The history has been summarized."""
    fields = {"trigger": trigger, "compact_summary": summary}
    return HookEvent(name=HookName.POST_COMPACT, subject=trigger, fields=fields)


def _call(tool: str, input: Mapping[str, Any], call_id: str) -> JsonObject:
    return {"tool_name": tool, "tool_input": dict(input), "tool_use_id": call_id}


def _ending(last_message: str, active: bool) -> JsonObject:
    return {
        "stop_hook_active": active,
        "last_assistant_message": last_message,
        "background_tasks": [],
        "session_crons": [],
    }


def _milliseconds(duration: float | None) -> JsonObject:
    return {} if duration is None else {"duration_ms": round(duration * 1000)}


def _present(fields: Mapping[str, Any]) -> JsonObject:
    return {key: value for key, value in fields.items() if value is not None}
