"""
What a hook's exit status and output, or its HTTP status and body, mean. Pure, and never fails: what can't be
understood is a notice for the user and has no say otherwise.

- Status 0: the output is JSON if it begins with ``{``; else, where a session or a prompt begins, text for the model.
- Status 2: the hook is against it, and what it wrote to stderr is why. What that does depends on the event. JSON
  that it wrote still counts, but can't make a yes of this no.
- All else (another status, a signal, no end in time): the hook failed. JSON that it wrote counts.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from atrio.runtime.messages import JsonObject
from atrio.runtime.wirejson import Unparsable, parse_object, without_surrogates

from .payloads import HookName
from .verdicts import HookAnswer, HookNotice, Permission

__all__ = ["OUTPUT_LIMIT_BYTES", "CommandReply", "HttpReply", "read_command", "read_http"]

OUTPUT_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""What is kept of a hook's output, or of a response. A changed input may hold a whole file; nothing needs more."""

SHOWN_CHARS: Final = 1_000
"""How much of a failed hook's words a notice repeats."""

PLAIN_CONTEXT: Final = frozenset({HookName.SESSION_START, HookName.USER_PROMPT_SUBMIT})
"""Events at which output that is no JSON is for the model."""

BLOCKABLE: Final = frozenset(
    {HookName.USER_PROMPT_SUBMIT, HookName.POST_TOOL_USE, HookName.POST_TOOL_USE_FAILURE, HookName.POST_TOOL_BATCH}
    | {HookName.STOP, HookName.SUBAGENT_STOP, HookName.PRE_COMPACT}
)
"""Events at which a hook may say ``"decision": "block"``."""

WITH_CONTEXT: Final = frozenset(
    {HookName.SESSION_START, HookName.USER_PROMPT_SUBMIT, HookName.SUBAGENT_START, HookName.PRE_TOOL_USE}
    | {HookName.POST_TOOL_USE, HookName.POST_TOOL_USE_FAILURE, HookName.POST_TOOL_BATCH, HookName.NOTIFICATION}
    | {HookName.STOP, HookName.SUBAGENT_STOP}
)
"""Events at which ``additionalContext`` is for the model."""

IGNORED: Final = frozenset({HookName.STOP_FAILURE})
"""Events whose hooks have no say at all: the run has ended already."""

NO_REASON: Final = "a hook blocked this and gave no reason"
NO_STOP_REASON: Final = "a hook ended the run and gave no reason"


@attrs.frozen(kw_only=True)
class CommandReply:
    """
    How a hook command ended: ``status``, or the ``signal`` that ended it.

    ``stdout`` and ``stderr`` may have been cut; ``cut`` says that stdout was.
    """

    status: int | None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    cut: bool = False


@attrs.frozen(kw_only=True)
class HttpReply:
    """What an address answered. ``cut``: the body was longer than `OUTPUT_LIMIT_BYTES`."""

    status: int
    body: bytes = b""
    cut: bool = False


def read_command(name: HookName, label: str, reply: CommandReply) -> HookAnswer:
    """What a command says about an event of this name; ``label`` is what notices call it."""
    if name in IGNORED:
        return HookAnswer()
    errors = _text(reply.stderr).strip()
    plain = name in PLAIN_CONTEXT and reply.status == 0
    said = _read_output(name, label, reply.stdout, cut=reply.cut, plain=plain)
    if reply.status == 0:
        return said
    if reply.status == 2:
        return _objected(name, label, errors, said)
    how = f"status {reply.status}" if reply.status is not None else f"signal {reply.signal}"
    return _with_notice(said, f"{label} failed with {how}{_excerpt(errors)}")


def read_http(name: HookName, label: str, reply: HttpReply) -> HookAnswer:
    """The same of an address."""
    if name in IGNORED:
        return HookAnswer()
    if not 200 <= reply.status < 300:
        return _with_notice(HookAnswer(), f"{label} answered with status {reply.status}{_excerpt(_text(reply.body))}")
    return _read_output(name, label, reply.body, cut=reply.cut, plain=name in PLAIN_CONTEXT)


def _objected(name: HookName, label: str, errors: str, said: HookAnswer) -> HookAnswer:
    """Status 2."""
    reason = errors or said.reason or said.block or NO_REASON
    match name:
        case HookName.PRE_TOOL_USE:
            return attrs.evolve(said, permission=Permission.DENY, reason=reason, updated_input=None)
        case HookName.POST_TOOL_BATCH:
            return attrs.evolve(said, stop=said.stop or reason)
        case _ if name in BLOCKABLE:
            return attrs.evolve(said, block=reason)
        case _:
            return _with_notice(said, f"{label} objects, which has no effect here{_excerpt(errors)}")


def _read_output(name: HookName, label: str, data: bytes, *, cut: bool, plain: bool) -> HookAnswer:
    data = data.strip()
    if not data.startswith(b"{"):
        text = _text(data).strip() if plain else ""
        return HookAnswer(context=(text,)) if text else HookAnswer()
    if cut:
        return _with_notice(HookAnswer(), f"{label} wrote more than {OUTPUT_LIMIT_BYTES:,} bytes, which were not read")
    try:
        value, _ = parse_object(data)
    except Unparsable as error:
        return _with_notice(HookAnswer(), f"{label} wrote what is no JSON, so it has no say: {error}")
    reader = _Reader(name, label)
    answer = reader.answer(without_surrogates(value))
    return attrs.evolve(answer, notices=(*answer.notices, *reader.notices))


@attrs.define
class _Reader:
    """Reads one hook's JSON. What is of the wrong kind becomes a notice and counts as not there."""

    name: HookName
    label: str
    notices: list[HookNotice] = attrs.field(factory=list)

    def answer(self, data: JsonObject) -> HookAnswer:
        specific = self._specific(data)
        answer = HookAnswer(
            stop=self._stop(data),
            context=self._context(specific),
            notices=tuple(
                HookNotice(text, "info") for text in (self._string(data, "systemMessage"),) if text is not None
            ),
        )
        match self.name:
            case HookName.PRE_TOOL_USE:
                return self._call(answer, data, specific)
            case HookName.PERMISSION_REQUEST:
                return self._request(answer, specific)
            case HookName.POST_TOOL_USE:
                answer = attrs.evolve(answer, updated_output=specific.get("updatedToolOutput"))
        block = self._block(data)
        if self.name is HookName.POST_TOOL_BATCH:
            return attrs.evolve(answer, stop=answer.stop or block)
        return attrs.evolve(answer, block=block)

    def _stop(self, data: JsonObject) -> str | None:
        value = data.get("continue", True)
        if not isinstance(value, bool):
            self._wrong("continue", "true or false")
        return (self._string(data, "stopReason") or NO_STOP_REASON) if value is False else None

    def _block(self, data: JsonObject) -> str | None:
        decision = data.get("decision")
        if decision in (None, "approve"):
            return None
        if decision != "block":
            self._wrong("decision", '"block"')
            return None
        if self.name not in BLOCKABLE:
            self._notice("says block, which has no effect here")
            return None
        return self._string(data, "reason") or NO_REASON

    def _call(self, answer: HookAnswer, data: JsonObject, specific: JsonObject) -> HookAnswer:
        choice = specific.get("permissionDecision")
        reason = self._string(specific, "permissionDecisionReason")
        if choice is None and "decision" in data:  # the older form
            choice = {"approve": "allow", "block": "deny"}.get(_hashable(data["decision"]))
            reason = self._string(data, "reason")
            if choice is None and data["decision"] is not None:
                self._wrong("decision", '"approve" or "block"')
        if choice is not None and _hashable(choice) not in [each.value for each in Permission]:
            self._wrong("permissionDecision", "allow, deny, ask or defer")
            return answer
        return self._permitted(answer, choice, reason, specific)

    def _request(self, answer: HookAnswer, specific: JsonObject) -> HookAnswer:
        decision = specific.get("decision")
        if decision is None:
            return answer
        if not isinstance(decision, dict) or decision.get("behavior") not in ("allow", "deny"):
            self._wrong("decision", 'an object with the behavior "allow" or "deny"')
            return answer
        updates = decision.get("updatedPermissions")
        if not isinstance(updates, list):
            updates = []
        answer = attrs.evolve(
            answer,
            updated_permissions=tuple(each for each in updates if isinstance(each, dict)),
            interrupt=decision["behavior"] == "deny" and decision.get("interrupt") is True,
        )
        return self._permitted(answer, decision["behavior"], self._string(decision, "message"), decision)

    def _permitted(self, answer: HookAnswer, choice: str | None, reason: str | None, holder: JsonObject) -> HookAnswer:
        permission = Permission(choice) if choice is not None else None
        if permission is Permission.DENY:
            reason = reason or NO_REASON
        updated = holder.get("updatedInput")
        if updated is not None and not isinstance(updated, dict):
            self._wrong("updatedInput", "an object")
            # Not what was meant to be allowed.
            permission = None if permission is Permission.ALLOW else permission
            updated = None
        return attrs.evolve(answer, permission=permission, reason=reason, updated_input=updated)

    def _specific(self, data: JsonObject) -> JsonObject:
        value = data.get("hookSpecificOutput")
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._wrong("hookSpecificOutput", "an object")
            return {}
        if value.get("hookEventName") != self.name.value:
            self._notice(
                f"has a hookSpecificOutput that counts for nothing: its hookEventName must be {self.name.value!r}, "
                f"it is {str(value.get('hookEventName'))[:80]!r}"
            )
            return {}
        return value

    def _context(self, specific: JsonObject) -> tuple[str, ...]:
        text = self._string(specific, "additionalContext")
        if text and self.name not in WITH_CONTEXT:
            self._notice("has additionalContext, which has no effect here")
            return ()
        return (text,) if text and text.strip() else ()

    def _string(self, holder: JsonObject, key: str) -> str | None:
        value = holder.get(key)
        if value is not None and not isinstance(value, str):
            self._wrong(key, "a text")
            return None
        return value or None

    def _wrong(self, key: str, wanted: str) -> None:
        self._notice(f"wrote a {key} that is not {wanted}, so it counts for nothing")

    def _notice(self, text: str) -> None:
        self.notices.append(HookNotice(f"{self.label} {text}"))


def _hashable(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _with_notice(answer: HookAnswer, text: str) -> HookAnswer:
    return attrs.evolve(answer, notices=(*answer.notices, HookNotice(text)))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "")


def _excerpt(text: str) -> str:
    text = text.strip()
    return f": {text[:SHOWN_CHARS]}{'...' if len(text) > SHOWN_CHARS else ''}" if text else ""
