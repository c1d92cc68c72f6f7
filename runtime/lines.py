"""
The output lines of the command line: from events to JSON objects, and from those to bytes. Pure.

The shapes are those of comparable programs' ``stream-json``: every line has ``type``, ``session_id`` and ``uuid``, the
last one is the result. A line is valid UTF-8, free of the secrets that are known, holds no character that any reader
takes for a line's end, and (but for the result) is no longer than `LINE_LIMIT`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import orjson

from .events import (
    ActivitySummary,
    AssistantBlock,
    CacheBroken,
    ContextCompacted,
    Event,
    Heartbeat,
    Lagged,
    MessageWithdrawn,
    ModelChanged,
    Notice,
    PermissionDenied,
    PromptSuggested,
    RetryScheduled,
    RunEnded,
    RunStarted,
    StallWarning,
    StreamEvent,
    SubagentEnded,
    SubagentProgress,
    SubagentStarted,
    ToolEnded,
    ToolUseSummary,
    UserMessageAdded,
)
from .messages import JsonObject, ToolUseBlock, block_to_wire
from .model import FailureKind
from .redact import Redactor
from .result import ModelUsage, Result
from .state import derive_id
from .wirejson import without_surrogates

__all__ = ["LINE_LIMIT", "EventLines", "encode_line", "result_line"]

LINE_LIMIT: Final = 1_000_000
"""Bytes. Readers exist that end their session at a longer line; 1 MB is the smallest limit known."""

TEXT_LIMIT: Final = 4_096
"""Characters that stay of each text of a line that was too long."""

_CATEGORIES: Final[Mapping[str, str]] = {
    FailureKind.RATE_LIMIT: "rate_limit",
    FailureKind.OVERLOADED: "overloaded",
    FailureKind.SERVER_ERROR: "server_error",
    FailureKind.AUTHENTICATION: "authentication_failed",
    FailureKind.BILLING: "billing_error",
    FailureKind.NOT_FOUND: "model_not_found",
    FailureKind.INVALID_REQUEST: "invalid_request",
    FailureKind.REQUEST_TOO_LARGE: "invalid_request",
    FailureKind.PROMPT_TOO_LONG: "invalid_request",
    FailureKind.CONTEXT_OVERFLOW: "invalid_request",
    FailureKind.MEDIA: "invalid_request",
}
"""The categories that readers know; every other kind is ``unknown`` to them."""


@attrs.frozen(kw_only=True)
class EventLines:
    """
    Makes the lines of one run.

    ``partial_messages`` adds the model's stream, ``subagent_text`` what subagents say besides their calls, ``verbose``
    what only a person wants to know.
    """

    session_id: str
    run_id: str
    version: str
    api_key_source: str
    verbose: bool = False
    partial_messages: bool = False
    subagent_text: bool = False
    replay: bool = False
    """User lines of what was said during the run are marked as repetitions of what was read."""

    def line_of(self, event: Event) -> list[JsonObject]:
        """The lines for one event: none or one today, but a reader of this must not count on that."""
        match event:
            case StreamEvent():
                return [self._stream_event(event)] if self.partial_messages else []
            case AssistantBlock():
                return [self._assistant(event)]
            case ToolEnded():
                return [self._tool_result(event)]
            case UserMessageAdded() if event.message.origin != "tool_results":
                return [self._user(event)]
            case RunStarted():
                return [self._init(event)]
            case RetryScheduled() | PermissionDenied() | MessageWithdrawn() | ContextCompacted():
                return [self._system(event)]
            case ActivitySummary() | ToolUseSummary() | PromptSuggested():
                return [self._summary(event)]
            case SubagentProgress():
                return self._of_subagent(event)
            case SubagentStarted() | SubagentEnded():
                return [self._task(event)]
            case RunEnded():
                return [result_line(event.result)]
            case _:
                return self._informational(event) if self.verbose else []

    def _line(self, source: Event, uuid: str | None = None, /, **fields: Any) -> JsonObject:
        uuid = uuid or derive_id(self.run_id, "line", source.seq)
        return {**fields, "session_id": self.session_id, "uuid": uuid}

    def _stream_event(self, event: StreamEvent) -> JsonObject:
        return self._line(event, type="stream_event", event=event.raw, parent_tool_use_id=None)

    def _assistant(self, event: AssistantBlock) -> JsonObject:
        message = {
            "id": event.message_id,
            "type": "message",
            "role": "assistant",
            "model": event.model,
            "content": [block_to_wire(event.block)],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": event.usage.to_wire(),
        }
        return self._line(event, event.uuid, type="assistant", message=message, parent_tool_use_id=None)

    def _tool_result(self, event: ToolEnded) -> JsonObject:
        message = {"role": "user", "content": [block_to_wire(event.result)]}
        line = self._line(event, event.uuid, type="user", message=message, parent_tool_use_id=None)
        return line if event.details is None else {**line, "tool_use_result": event.details}

    def _user(self, event: UserMessageAdded) -> JsonObject:
        added = event.message
        message = {"role": "user", "content": [block_to_wire(block) for block in added.content]}
        line = self._line(event, added.uuid, type="user", message=message, parent_tool_use_id=None)
        if self.replay and added.origin == "steer":
            line["isReplay"] = True
        return {**line, "isSynthetic": True} if added.hidden else line

    def _of_subagent(self, event: SubagentProgress) -> list[JsonObject]:
        match event.event:
            case AssistantBlock(block=block) as said:
                if not isinstance(block, ToolUseBlock) and not self.subagent_text:
                    return []
                line = self._assistant(said)
            case ToolEnded() as ended:
                line = self._tool_result(ended)
            case UserMessageAdded() as added:
                line = self._user(added)
            case PermissionDenied() as denied:
                # Numbers of a subagent's events are its own.
                line = {**self._system(denied), "uuid": derive_id(self.run_id, "line", event.seq)}
            case _:
                return []
        return [{**line, "parent_tool_use_id": event.call_id, "agent_id": event.agent_id}]

    def _task(self, event: SubagentStarted | SubagentEnded) -> JsonObject:
        common = {"type": "system", "task_id": event.agent_id, "tool_use_id": event.call_id}
        match event:
            case SubagentStarted():
                return self._line(
                    event,
                    **common,
                    subtype="task_started",
                    task_type="local_agent",
                    subagent_type=event.agent_type,
                    description=event.description,
                    is_background=event.background,
                )
            case SubagentEnded():
                return self._line(
                    event,
                    **common,
                    subtype="task_notification",
                    status=event.status,
                    output_file=event.journal,
                    summary=event.error or event.description,
                    usage={
                        "total_tokens": event.usage.context_tokens,
                        "tool_uses": event.tool_uses,
                        "duration_ms": round(event.duration * 1000),
                    },
                )

    def _init(self, event: RunStarted) -> JsonObject:
        return self._line(
            event,
            type="system",
            subtype="init",
            cwd=event.cwd,
            tools=list(event.tools),
            mcp_servers=[{"name": name, "status": status} for name, status in event.mcp_servers],
            model=event.model,
            permissionMode=event.permission_mode,
            sandbox=event.sandbox,
            slash_commands=list(event.slash_commands),
            apiKeySource=self.api_key_source,
            atrio_version=self.version,
            output_style="default",
            agents=list(event.agents),
            skills=list(event.skills),
            plugins=[],
        )

    def _system(self, event: RetryScheduled | PermissionDenied | MessageWithdrawn | ContextCompacted) -> JsonObject:
        match event:
            case ContextCompacted():
                metadata = {"trigger": event.trigger, "pre_tokens": event.pre_tokens}
                return self._line(
                    event, event.uuid, type="system", subtype="compact_boundary", compact_metadata=metadata
                )
            case RetryScheduled():
                return self._line(
                    event,
                    type="system",
                    subtype="api_retry",
                    attempt=event.attempt,
                    max_retries=event.max_attempts,
                    retry_delay_ms=round(event.delay * 1000),
                    error_status=event.status,
                    error=_CATEGORIES.get(event.kind, "unknown"),
                    error_kind=event.kind,
                    error_message=event.message,
                )
            case PermissionDenied():
                return self._line(
                    event,
                    type="system",
                    subtype="permission_denied",
                    tool_name=event.name,
                    tool_use_id=event.call_id,
                    tool_input=dict(event.input),
                    message=event.reason,
                )
            case MessageWithdrawn():
                return self._line(
                    event,
                    type="system",
                    subtype="message_withdrawn",
                    message_id=event.message_id,
                    uuids=list(event.uuids),
                    reason=event.reason,
                )

    def _summary(self, event: ActivitySummary | ToolUseSummary | PromptSuggested) -> JsonObject:
        match event:
            case ActivitySummary():
                return self._line(event, type="system", subtype="activity_summary", summary=event.text)
            case ToolUseSummary():
                ids = list(event.call_ids)
                return self._line(event, type="tool_use_summary", summary=event.text, preceding_tool_use_ids=ids)
            case PromptSuggested():
                return self._line(event, type="prompt_suggestion", suggestion=event.text)

    def _informational(self, event: Event) -> list[JsonObject]:
        match event:
            case Notice():
                level, text = event.level, f"{event.source}: {event.text}"
            case Heartbeat():
                level, text = "info", f"still waiting for {event.reason}"
            case StallWarning():
                level = "warning"
                text = f"the model has sent nothing for {event.idle:g} s; the attempt is cut at {event.limit:g} s"
            case CacheBroken():
                level, text = "warning", event.text
            case ModelChanged():
                level, text = "warning", f"the model is now {event.new} instead of {event.old}: {event.reason}"
            case Lagged():
                level, text = "warning", f"{event.dropped} stream events were left out: this output is read too slowly"
            case _:
                return []
        return [self._line(event, type="system", subtype="informational", level=level, content=text)]


def result_line(result: Result) -> JsonObject:
    """The one record of the run's end, as ``--output-format json`` prints it too. A cost that is unknown is null."""
    line: JsonObject = {
        "type": "result",
        "subtype": result.subtype,
        "is_error": result.is_error,
        "duration_ms": round(result.duration * 1000),
        "duration_api_ms": round(result.duration_api * 1000),
        "num_turns": result.num_turns,
    }
    if result.structured_output is not None:
        line["structured_output"] = result.structured_output
    if result.subtype == "success":
        line["result"] = result.text
    line |= {
        "stop_reason": result.stop_reason,
        "session_id": result.session_id,
        "total_cost_usd": result.cost_usd,
        "usage": result.usage.to_wire(),
        "modelUsage": {model: _model_usage(usage) for model, usage in result.model_usage.items()},
        "permission_denials": [
            {"tool_name": d.tool_name, "tool_use_id": d.tool_use_id, "tool_input": dict(d.tool_input)}
            for d in result.permission_denials
        ],
        "terminal_reason": result.terminal_reason.value,
        "uuid": derive_id(result.run_id, "line", "result"),
    }
    if result.time_to_first_token is not None:
        line["ttft_ms"] = round(result.time_to_first_token * 1000)
    if result.errors or result.subtype != "success":
        line["errors"] = list(result.errors)
    if result.api_error_status is not None:
        line["api_error_status"] = result.api_error_status
    if result.error_kind is not None:
        line["error_kind"] = result.error_kind
    return line


def _model_usage(used: ModelUsage) -> JsonObject:
    usage = used.usage
    server_tools = usage.extra.get("server_tool_use")
    searches = server_tools.get("web_search_requests") if isinstance(server_tools, Mapping) else None
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cacheReadInputTokens": usage.cache_read_input_tokens,
        "cacheCreationInputTokens": usage.cache_creation_input_tokens,
        "webSearchRequests": searches if isinstance(searches, int) else 0,
        "costUSD": used.cost_usd,
        "contextWindow": used.context_window,
        "maxOutputTokens": used.max_output_tokens,
    }


# --- to bytes -------------------------------------------------------------------------------------

_LINE_ENDS: Final = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
"""Some readers end lines at these as well. They only occur inside texts, where JSON has another form for them."""


def encode_line(line: JsonObject, redactor: Redactor) -> bytes:
    """The line with its newline. Never raises for what a model or a tool may have produced."""
    data = _encode(line)
    if len(data) > LINE_LIMIT and line.get("type") != "result":
        # What is left after each text was cut can only be long by its structure; that is nothing to show.
        data = _encode(_shortened(line))
        if len(data) > LINE_LIMIT:
            data = _encode(_shortened({key: value for key, value in line.items() if key != "tool_use_result"}))
    data = redactor.clean(data)
    for character, escape in _LINE_ENDS:
        data = data.replace(character, escape)
    return data + b"\n"


def _encode(value: JsonObject) -> bytes:
    try:
        return orjson.dumps(value, default=_as_json, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # Half surrogate pairs, or integers beyond 64 bits.
        plain = json.loads(json.dumps(value, default=_as_json, skipkeys=True), parse_constant=lambda _name: None)
        return json.dumps(without_surrogates(plain), ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _as_json(value: object) -> Any:
    """Details of a tool may be anything; what JSON has no form for is kept as text."""
    fields = getattr(type(value), "__attrs_attrs__", None)
    if fields is not None:
        return {field.name: getattr(value, field.name) for field in fields}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return list(value)
    return str(value)


def _shortened(value: Any) -> Any:
    """A copy with long texts cut and the data of images and documents left out; each place says so."""
    match value:
        case str() if len(value) > TEXT_LIMIT:
            return f"{value[:TEXT_LIMIT]}... [{len(value) - TEXT_LIMIT:,} more characters left out]"
        case {"type": "base64", "data": str(data)}:
            return {**value, "data": "", "omitted_chars": len(data)}
        case Mapping():
            return {key: _shortened(inner) for key, inner in value.items()}
        case Sequence() if not isinstance(value, str | bytes):
            return [_shortened(inner) for inner in value]
        case _ if getattr(type(value), "__attrs_attrs__", None) is not None:
            return _shortened(_as_json(value))
        case _:
            return value
