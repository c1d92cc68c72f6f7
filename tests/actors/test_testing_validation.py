"""A request that the real API would refuse is told from one that it would take."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.testing import violations_of

Object = dict[str, Any]

USE: Object = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"a": 1}}
USE_2: Object = USE | {"id": "t2"}
RESULT: Object = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
RESULT_2: Object = RESULT | {"tool_use_id": "t2"}
TEXT: Object = {"type": "text", "text": "hello"}
IMAGE: Object = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
MARK: Object = {"cache_control": {"type": "ephemeral"}}
TOOL: Object = {"name": "Read", "description": "reads", "input_schema": {"type": "object", "properties": {}}}


def user(*content: Object | str) -> Object:
    return {"role": "user", "content": list(content)}


def assistant(*content: Object | str) -> Object:
    return {"role": "assistant", "content": list(content)}


def request(*messages: object, **fields: object) -> Object:
    return {"model": "m", "max_tokens": 100, "messages": list(messages) or [user(TEXT)], **fields}


GOOD: list[Object] = [
    request({"role": "user", "content": "hello"}),
    request(user(TEXT), assistant(USE, USE_2), user(RESULT_2, RESULT, TEXT)),
    request(user(TEXT), assistant(TEXT, USE), user(RESULT | {"content": [TEXT, IMAGE], "is_error": True})),
    request(user(TEXT), assistant(USE), user(RESULT | {"content": ""})),
    request(user(TEXT), assistant(TEXT)),
    request(user(TEXT), assistant({"type": "server_tool_use", "id": "s", "name": "x", "input": {}}), user(TEXT)),
    request(user(TEXT), assistant({"type": "thinking", "thinking": "", "signature": "s"}, TEXT), user(TEXT)),
    request(user(TEXT), assistant({"type": "redacted_thinking", "data": "s"}, TEXT), user(TEXT)),
    request(user({"type": "kind_of_next_year", "x": 1})),
    request(user(*[IMAGE] * 100)),
    request(system="be brief", tools=[TOOL], stream=True, temperature=1, metadata={"user_id": "u"}),
    request(system=[TEXT | MARK], tools=[TOOL | MARK, TOOL | {"name": "B"} | MARK]),
    request(tools=[{"type": "web_search_20250305", "name": "web_search"}]),
    request(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000),
    request(thinking={"type": "adaptive"}, output_config={"effort": "low"}),
]


@pytest.mark.parametrize("body", GOOD)
def test_a_proper_request_passes(body: Object) -> None:
    assert [] == violations_of(body)


BAD: list[tuple[object, str]] = [
    ([], "the request body is not a JSON object"),
    ({"max_tokens": 1, "messages": [user(TEXT)]}, "model: Field required"),
    ({"model": "m", "messages": [user(TEXT)]}, "max_tokens: Field required"),
    ({"model": "m", "max_tokens": 1}, "messages: Field required"),
    (request(model=""), "model: String should have at least 1 character"),
    (request(model=3), "model: Input should be str, not int"),
    (request(max_tokens=0), "max_tokens: Input should be greater than or equal to 1"),
    (request(max_tokens=True), "max_tokens: Input should be int, not bool"),
    (request(max_tokens="5"), "max_tokens: Input should be int, not str"),
    (request() | {"messages": []}, "messages: at least one message is required"),
    (request() | {"messages": {}}, "messages: Input should be list, not dict"),
    (request(stream="yes"), "stream: Input should be bool, not str"),
    (request(sytem="typo"), "sytem: Extra inputs are not permitted"),
    (request("hello"), "messages.0: Input should be an object"),
    (request({"role": "system", "content": "x"}), "messages.0.role: Input should be 'user' or 'assistant'"),
    (request(assistant(TEXT)), 'messages: first message must use the "user" role'),
    (request(user(TEXT), user(TEXT)), "messages.1: roles must alternate"),
    (request(user(TEXT) | {"uuid": "u"}), "messages.0.uuid: Extra inputs are not permitted"),
    (request(user()), "messages.0: all messages must have non-empty content"),
    (request({"role": "user", "content": ""}), "messages.0: all messages must have non-empty content"),
    (request({"role": "user"}), "messages.0.content: Input should be a string or a list of blocks"),
    (request(user("hello")), "messages.0.content.0.type: Field required"),
    (request(user({"text": "hello"})), "messages.0.content.0.type: Field required"),
    (request(user({"type": "text", "text": ""})), "messages.0.content.0: text content blocks must be non-empty"),
    (
        request(user({"type": "text", "text": " \n"})),
        "messages.0.content.0: text content blocks must contain non-white",
    ),
    (request(user({"type": "text"})), "messages.0.content.0.text.text: Input should be a valid string"),
    (request(user(TEXT), assistant(TEXT | {"text": "x "})), "messages: final assistant content cannot end with"),
    (request(user(USE)), "messages.0.content.0: `tool_use` blocks can only be in `assistant` messages"),
    (request(user(TEXT), assistant(IMAGE)), "messages.1.content.0: `image` blocks can only be in `user` messages"),
    (request(user(TEXT), assistant(USE)), "messages.1: `tool_use` ids were found without `tool_result` blocks"),
    (request(user(TEXT), assistant(USE), user(TEXT)), "messages.1: `tool_use` ids were found without `tool_result`"),
    (request(user(TEXT), assistant(USE, USE_2), user(RESULT)), "messages.1: `tool_use` ids were found without"),
    (request(user(RESULT)), "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t1"),
    (
        request(user(TEXT), assistant(USE), user(RESULT), assistant(TEXT), user(RESULT)),
        "messages.4.content.0: unexpected `tool_use_id`",
    ),
    (
        request(user(TEXT), assistant(USE), user(RESULT, RESULT)),
        "messages.2.content.1: each tool_use must have a single",
    ),
    (request(user(TEXT), assistant(USE), user(TEXT, RESULT)), "messages.2.content.1: `tool_result` blocks must come"),
    (
        request(user(TEXT), assistant(USE), user(RESULT), assistant(USE), user(RESULT)),
        "messages.3.content.0: `tool_use` ids must be unique: t1",
    ),
    (
        request(user(TEXT), assistant(USE | {"id": "a b"}), user(TEXT)),
        "messages.1.content.0.tool_use.id: String should",
    ),
    (request(user(TEXT), assistant(USE | {"name": ""}), user(RESULT)), "messages.1.content.0.tool_use.name: String"),
    (request(user(TEXT), assistant(USE | {"name": "x" * 201}), user(RESULT)), "messages.1.content.0.tool_use.name: S"),
    (request(user(TEXT), assistant(USE | {"input": "{}"}), user(RESULT)), "messages.1.content.0.tool_use.input: Input"),
    (
        request(user(TEXT), assistant(USE), user(RESULT | {"is_error": 1})),
        "messages.2.content.0.tool_result.is_error: ",
    ),
    (
        request(user(TEXT), assistant(USE), user(RESULT | {"is_error": True, "content": ""})),
        "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true",
    ),
    (
        request(user(TEXT), assistant(USE), user(RESULT | {"content": [{"type": "text", "text": ""}]})),
        "messages.2.content.0.tool_result.content.0: text content blocks must be non-empty",
    ),
    (request(user(TEXT), assistant(USE), user(RESULT | {"content": 3})), "messages.2.content.0.tool_result.content: "),
    (
        request(user(TEXT), assistant({"type": "thinking", "thinking": "x"}), user(TEXT)),
        "messages.1.content.0.thinking.signature: Field required",
    ),
    (request(user({"type": "image"})), "messages.0.content.0.image.source: Field required"),
    (
        request(user({"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "a"}})),
        "messages.0.content.0.image.source.base64.media_type: Input should be one of",
    ),
    (
        request(user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}})),
        "messages.0.content.0.image.source.base64.data: image data cannot be empty",
    ),
    (request(user(*[IMAGE] * 101)), "messages: at most 100 images and documents may be provided. Found 101."),
    (
        request(user(*[TEXT | MARK] * 3), system=[TEXT | MARK], tools=[TOOL | MARK]),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    (request(system=[{"type": "text", "text": ""}]), "system.0: system text blocks must contain non-whitespace text"),
    (request(system=["be brief"]), "system.0: Input should be a text block"),
    (request(system={"type": "text", "text": "x"}), "system: Input should be str or list, not dict"),
    (request(tools=[TOOL | {"name": "my tool"}]), "tools.0.name: String should match pattern"),
    (request(tools=[TOOL, TOOL]), "tools.1: Tool names must be unique: Read"),
    (request(tools=[{"name": "A"}]), "tools.0.input_schema: Field required"),
    (request(tools=[TOOL | {"input_schema": {}}]), "tools.0.input_schema.type: Input should be 'object'"),
    (
        request(tools=[TOOL | {"input_schema": {"type": "object", "anyOf": []}}]),
        "tools.0.input_schema: input_schema does",
    ),
    (
        request(tools=[TOOL | {"input_schema": {"type": "object", "properties": {"a b": {}}}}]),
        "tools.0.input_schema.properties: Property keys should match pattern",
    ),
    (request(thinking={"type": "on"}), "thinking.type: Input should be"),
    (
        request(thinking={"type": "enabled", "budget_tokens": 9}),
        "thinking.enabled.budget_tokens: Input should be greater",
    ),
    (request(thinking={"type": "enabled", "budget_tokens": 2000}), "max_tokens must be greater than thinking.budget"),
]


@pytest.mark.parametrize(("body", "problem"), BAD)
def test_one_fault_is_one_violation_that_names_its_place(body: object, problem: str) -> None:
    found = violations_of(body)
    assert any(text.startswith(problem) for text in found), found
    # A call with a wrong id has no result either.
    assert len(found) <= 2, found


def test_thinking_is_judged_by_its_author() -> None:
    body = request(user(TEXT), assistant({"type": "thinking", "thinking": "a", "signature": "s"}, TEXT), user(TEXT))
    asked: list[tuple[str, str]] = []

    def genuine(thinking: str, signature: str) -> bool:
        asked.append((thinking, signature))
        return False

    assert ["messages.1.content.0: Invalid `signature` in `thinking` block: it is not as the model wrote it"] == (
        violations_of(body, genuine=genuine)
    )
    assert [("a", "s")] == asked


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PATHS = ("model", "messages", "max_tokens", "system", "tools", "thinking")
BLOCK_FIELDS = ("type", "text", "id", "name", "input", "tool_use_id", "content", "source", "thinking", "signature")


@pytest.mark.slow
@given(st.sampled_from(PATHS), JSON)
def test_any_json_in_a_field_is_judged_not_raised(name: str, value: object) -> None:
    violations_of(request(**{name: value}))


@pytest.mark.slow
@given(st.sampled_from([TEXT, USE, RESULT, IMAGE, TOOL]), st.sampled_from(BLOCK_FIELDS), JSON)
def test_any_json_in_a_block_is_judged_not_raised(good: Object, name: str, value: object) -> None:
    wrong = copy.deepcopy(good) | {name: value}
    violations_of(request(user(TEXT), assistant(wrong), user(wrong), tools=[wrong], system=[wrong]))
    violations_of(request(user({"type": "image", "source": {"type": "base64", "media_type": value}})))
