"""What hooks say: each status and each field, and that nothing they write is more than a notice if it is nonsense."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.hooking.answers import (
    BLOCKABLE,
    NO_REASON,
    NO_STOP_REASON,
    CommandReply,
    HttpReply,
    read_command,
    read_http,
)
from atrio.actors.hooking.payloads import HookName
from atrio.actors.hooking.verdicts import HookAnswer, HookNotice, Permission

PRE = HookName.PRE_TOOL_USE


def said(name: HookName, output: object = b"", *, status: int | None = 0, stderr: bytes = b"") -> HookAnswer:
    data = output if isinstance(output, bytes) else json.dumps(output).encode()
    signal = 9 if status is None else None
    return read_command(name, "hook", CommandReply(status=status, signal=signal, stdout=data, stderr=stderr))


def specific(name: HookName, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": name.value, **fields}}


def notices(answer: HookAnswer) -> list[str]:
    return [notice.text for notice in answer.notices]


# --- exit status ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HookName)
def test_a_hook_that_says_nothing_says_nothing(name: HookName) -> None:
    assert HookAnswer() == said(name)
    assert HookAnswer() == said(name, b"  \n", stderr=b"progress")
    assert HookAnswer() == said(name, b"{}")


@pytest.mark.parametrize("name", HookName)
def test_plain_output_is_for_the_model_only_where_a_session_or_prompt_begins(name: HookName) -> None:
    context = ("text",) if name in (HookName.SESSION_START, HookName.USER_PROMPT_SUBMIT) else ()
    assert HookAnswer(context=context) == said(name, b" text\n")
    assert () == said(name, b"text", status=1).context


def test_status_2_denies_a_call() -> None:
    assert HookAnswer(permission=Permission.DENY, reason="no rm") == said(PRE, status=2, stderr=b"no rm\n")
    assert HookAnswer(permission=Permission.DENY, reason=NO_REASON) == said(PRE, status=2)


def test_status_2_denies_whatever_the_json_says() -> None:
    output = specific(PRE, permissionDecision="allow", updatedInput={"a": 1}, additionalContext="c")
    answer = said(PRE, output, status=2, stderr=b"no")
    assert HookAnswer(permission=Permission.DENY, reason="no", context=("c",)) == answer


@pytest.mark.parametrize("name", sorted(BLOCKABLE - {HookName.POST_TOOL_BATCH}))
def test_status_2_and_the_word_block_block(name: HookName) -> None:
    assert HookAnswer(block="why") == said(name, status=2, stderr=b"why")
    assert HookAnswer(block="why") == said(name, {"decision": "block", "reason": "why"})
    assert HookAnswer(block=NO_REASON) == said(name, {"decision": "block"})


def test_a_batch_that_is_blocked_ends_the_run() -> None:
    assert HookAnswer(stop="why") == said(HookName.POST_TOOL_BATCH, status=2, stderr=b"why")
    assert HookAnswer(stop="why") == said(HookName.POST_TOOL_BATCH, {"decision": "block", "reason": "why"})


@pytest.mark.parametrize("name", sorted(set(HookName) - BLOCKABLE - {PRE, HookName.STOP_FAILURE}))
def test_where_nothing_can_be_blocked_status_2_is_told_to_the_user(name: HookName) -> None:
    answer = said(name, status=2, stderr=b"why")
    assert HookAnswer(notices=(HookNotice("hook objects, which has no effect here: why"),)) == answer


def test_what_hooks_say_of_a_failed_run_is_ignored() -> None:
    for status in (0, 1, 2, None):
        assert HookAnswer() == said(HookName.STOP_FAILURE, {"continue": False}, status=status, stderr=b"x")


@pytest.mark.parametrize(("status", "how"), [(1, "status 1"), (127, "status 127"), (None, "signal 9")])
def test_any_other_end_is_a_failure_that_blocks_nothing(status: int | None, how: str) -> None:
    answer = said(PRE, b"words", status=status, stderr=b"why" + b"x" * 5000)
    (notice,) = answer.notices
    assert notice.text.startswith(f"hook failed with {how}: whyxxx")
    assert len(notice.text) < 1100
    assert HookAnswer(notices=(notice,)) == answer


def test_json_counts_whatever_the_status() -> None:
    answer = said(PRE, specific(PRE, permissionDecision="deny", permissionDecisionReason="r"), status=1)
    assert (Permission.DENY, "r") == (answer.permission, answer.reason)
    assert ["hook failed with status 1"] == notices(answer)


# --- fields ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("permission", Permission)
def test_a_call_is_decided_with_reason_input_and_context(permission: Permission) -> None:
    fields = {"permissionDecisionReason": "r", "updatedInput": {"command": "ls"}, "additionalContext": "c"}
    expected = HookAnswer(permission=permission, reason="r", updated_input={"command": "ls"}, context=("c",))
    assert expected == said(PRE, specific(PRE, permissionDecision=permission.value, **fields))


def test_the_older_words_for_a_call_still_count() -> None:
    assert HookAnswer(permission=Permission.DENY, reason="r") == said(PRE, {"decision": "block", "reason": "r"})
    assert HookAnswer(permission=Permission.ALLOW) == said(PRE, {"decision": "approve"})


def test_an_input_may_be_changed_without_a_decision() -> None:
    assert HookAnswer(updated_input={"a": 1}) == said(PRE, specific(PRE, updatedInput={"a": 1}))


@pytest.mark.parametrize("name", sorted(set(HookName) - {HookName.STOP_FAILURE}))
def test_any_hook_may_end_the_run_and_speak_to_the_user(name: HookName) -> None:
    assert HookAnswer(stop="r") == said(name, {"continue": False, "stopReason": "r"})
    assert HookAnswer(stop=NO_STOP_REASON) == said(name, {"continue": False})
    assert HookAnswer(notices=(HookNotice("m", "info"),)) == said(name, {"continue": True, "systemMessage": "m"})


def test_a_request_for_permission_is_answered() -> None:
    name = HookName.PERMISSION_REQUEST
    update = {"type": "addRules"}
    allow = {"behavior": "allow", "updatedInput": {"a": 1}, "updatedPermissions": [update, 5]}
    deny = {"behavior": "deny", "message": "m", "interrupt": True}
    assert HookAnswer(permission=Permission.ALLOW, updated_input={"a": 1}, updated_permissions=(update,)) == said(
        name, specific(name, decision=allow)
    )
    assert HookAnswer(permission=Permission.DENY, reason="m", interrupt=True) == said(
        name, specific(name, decision=deny)
    )


def test_an_output_may_be_replaced() -> None:
    name = HookName.POST_TOOL_USE
    assert HookAnswer(updated_output={"a": 1}) == said(name, specific(name, updatedToolOutput={"a": 1}))


# --- nonsense -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "output",
    [
        {"continue": "false"},
        {"continue": 0},
        {"decision": 5},
        {"decision": ["block"]},
        {"decision": "deny"},
        {"hookSpecificOutput": []},
        {"hookSpecificOutput": {"permissionDecision": "deny"}},
        {"hookSpecificOutput": {"hookEventName": "Stop", "permissionDecision": "deny"}},
        specific(PRE, permissionDecision="maybe"),
        specific(PRE, permissionDecision={}),
        specific(PRE, additionalContext=["x"]),
        specific(PRE, permissionDecision="allow", updatedInput="ls"),
        {"systemMessage": 1},
        b"{",
        b"{'a': 1}",
        b'{"a": 1} trailing',
        b'{"a": 1}\n{"b": 2}',
        b"{" * 100_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b'{"a": \xff\xfe}',
    ],
)
def test_nonsense_is_a_notice_and_has_no_say(output: object) -> None:
    answer = said(PRE, output)
    assert answer.notices
    assert HookAnswer(notices=answer.notices) == answer
    assert all(len(text) < 500 for text in notices(answer))


def test_a_wrong_field_does_not_take_the_right_ones_with_it() -> None:
    output = specific(PRE, permissionDecision="deny", permissionDecisionReason=["r"], additionalContext="c")
    answer = said(PRE, output | {"systemMessage": 5})
    assert (Permission.DENY, NO_REASON, ("c",)) == (answer.permission, answer.reason, answer.context)
    assert 2 == len(answer.notices)


def test_output_that_was_cut_is_not_taken_for_a_whole() -> None:
    reply = CommandReply(status=0, stdout=b'{"decision": "block"}', cut=True)
    answer = read_command(HookName.STOP, "hook", reply)
    assert answer.block is None
    assert "more than" in answer.notices[0].text


def test_half_characters_do_not_leave() -> None:
    answer = said(HookName.STOP, b'{"decision": "block", "reason": "a\\ud83d b"}')
    assert "a\ufffd b" == answer.block


def test_an_effect_that_an_event_has_not_is_told() -> None:
    name = HookName.SESSION_END
    assert ["hook says block, which has no effect here"] == notices(said(name, {"decision": "block"}))
    assert ["hook has additionalContext, which has no effect here"] == notices(
        said(name, specific(name, additionalContext="c"))
    )


# --- http -----------------------------------------------------------------------------------------


def test_a_body_counts_as_output_does() -> None:
    body = json.dumps({"decision": "block", "reason": "r"}).encode()
    assert HookAnswer(block="r") == read_http(HookName.STOP, "hook", HttpReply(status=200, body=body))
    assert HookAnswer() == read_http(HookName.STOP, "hook", HttpReply(status=204))
    assert HookAnswer(context=("t",)) == read_http(HookName.SESSION_START, "hook", HttpReply(status=200, body=b"t"))


@pytest.mark.parametrize("status", [199, 302, 403, 500])
def test_any_other_status_is_a_failure_that_blocks_nothing(status: int) -> None:
    answer = read_http(HookName.STOP, "hook", HttpReply(status=status, body=b'{"decision": "block"}'))
    assert HookAnswer(notices=answer.notices) == answer
    assert f'hook answered with status {status}: {{"decision": "block"}}' == answer.notices[0].text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
KEYS = ["continue", "stopReason", "decision", "reason", "systemMessage", "hookEventName", "permissionDecision"]
FIELDS = st.dictionaries(st.sampled_from([*KEYS, "updatedInput", "additionalContext", "behavior", "message"]), VALUES)


@pytest.mark.slow
@given(st.sampled_from(HookName), st.none() | st.integers(0, 3), FIELDS, FIELDS | VALUES)
def test_any_json_is_an_answer(name: HookName, status: int | None, outer: dict[str, Any], inner: Any) -> None:
    if isinstance(inner, dict):
        inner = {"hookEventName": name.value, **inner}
    answer = said(name, {**outer, "hookSpecificOutput": inner}, status=status)
    texts = (answer.reason, answer.block, answer.stop, *answer.context, *notices(answer))
    assert all(text is None or isinstance(text, str) for text in texts)
    assert answer.permission is None or name in (PRE, HookName.PERMISSION_REQUEST)


@pytest.mark.slow
@given(st.sampled_from(HookName), st.binary(), st.binary(), st.none() | st.integers(0, 255))
def test_any_bytes_are_an_answer(name: HookName, out: bytes, err: bytes, status: int | None) -> None:
    for data in (out, b"{" + out):
        answer = said(name, data, status=status, stderr=err)
        assert (answer.permission is Permission.DENY) == (name is PRE and status == 2)
