"""Schemas of servers, in the form that the API takes."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atrio.actors.mcp.schema_folding import KEY, Unusable, fold_schema

TEXT = {"type": "string"}
NUMBER = {"type": "number"}


def obj(*required: str, **properties: object) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def assert_the_api_takes(schema: Any) -> None:
    """What the API is known to refuse is not there."""
    assert "object" == schema["type"]
    assert {"anyOf", "oneOf", "allOf", "$ref"}.isdisjoint(schema)
    assert all(KEY.fullmatch(name) for name in schema["properties"])
    jsonschema.Draft202012Validator.check_schema(schema)


def test_a_good_schema_is_left_as_it_is() -> None:
    schema = {**obj("a", a=TEXT, b={"anyOf": [TEXT, NUMBER]}), "additionalProperties": False}
    folded = fold_schema(schema)
    assert (schema, ()) == (folded.schema, folded.changes)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, obj()),
        ({"properties": {"a": TEXT}}, obj(a=TEXT)),
        ({"type": ["object", "null"], "properties": {"a": TEXT}}, obj(a=TEXT)),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "id": "x", **obj(a=TEXT)}, obj(a=TEXT)),
        ({"oneOf": [obj("a", a=TEXT), obj("b", b=TEXT)]}, obj(a=TEXT, b=TEXT)),
        ({"anyOf": [obj("a", "b", a=TEXT, b=TEXT), obj("a", a=NUMBER)]}, obj("a", a={"anyOf": [TEXT, NUMBER]}, b=TEXT)),
        ({"allOf": [obj("a", a=TEXT), obj("b", b=TEXT)]}, obj("a", "b", a=TEXT, b=TEXT)),
        ({**obj("a", a=TEXT), "anyOf": [{"required": ["b"]}, {"required": ["c"]}]}, obj("a", a=TEXT)),
        ({"oneOf": [obj("a", a=TEXT), {"type": "null"}]}, obj(a=TEXT)),
        ({"oneOf": [{"allOf": [obj("a", a=TEXT), obj("b", b=TEXT)]}]}, obj("a", "b", a=TEXT, b=TEXT)),
        (obj(n={"minimum": 0, "exclusiveMinimum": True}), obj(n={"exclusiveMinimum": 0})),
        (obj(n={"maximum": 0, "exclusiveMaximum": False}), obj(n={"maximum": 0})),
        (obj(n={"items": [TEXT, NUMBER]}), obj(n={"prefixItems": [TEXT, NUMBER]})),
        (obj(n={**TEXT, "required": True}), obj(n=TEXT)),
        ({**obj("a", "gone", a=TEXT)}, obj("a", a=TEXT)),
        (obj(**{"a b": TEXT, "c": TEXT}), obj(c=TEXT)),
        (obj(a={"type": "strnig", "description": "d"}), obj(a={"description": "d"})),
        (obj(a={"$ref": "http://elsewhere/x"}), obj(a={})),
        (obj(a={"$ref": "#/$defs/none"}), obj(a={})),
        ({**obj(a=TEXT), "if": {}, "then": {}, "not": {}}, obj(a=TEXT)),
        ({**obj(a=TEXT), "minProperties": "many"}, obj(a=TEXT)),
        ({**obj(a=TEXT), "required": True}, obj(a=TEXT)),
    ],
)
def test_what_the_api_refuses_is_folded(schema: object, expected: object) -> None:
    folded = fold_schema(schema)
    assert expected == folded.schema
    assert_the_api_takes(folded.schema)


def test_references_to_definitions_stay() -> None:
    schema = {**obj(a={"$ref": "#/$defs/node"}), "$defs": {"node": obj(next={"$ref": "#/$defs/node"})}}
    assert schema == fold_schema(schema).schema


def test_a_reference_at_the_top_is_followed() -> None:
    schema = {"$ref": "#/definitions/In", "definitions": {"In": obj("a", a=TEXT)}}
    assert {**obj("a", a=TEXT), "definitions": {"In": obj("a", a=TEXT)}} == fold_schema(schema).schema


def test_branches_may_be_references() -> None:
    schema = {"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}], "$defs": {"A": obj("a", a=TEXT)}}
    folded = fold_schema(schema).schema
    assert (obj("a", a=TEXT)["properties"], ["a"]) == (folded["properties"], folded["required"])


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("text", "is no JSON object"),
        (TEXT, "not an object"),
        (obj("a b", **{"a b": TEXT}), "requires the parameter 'a b'"),
        ({"properties": []}, "are no JSON object"),
        (nested(100), "too deeply"),
        (nested(5000), "too deeply"),
        (obj(a={"enum": ["x" * 70_000]}), "bytes"),
    ],
)
def test_what_cannot_be_folded_is_unusable(schema: object, said: str) -> None:
    with pytest.raises(Unusable) as caught:
        fold_schema(schema)
    assert said in str(caught.value)


def test_a_schema_that_is_only_itself_takes_anything() -> None:
    assert obj() == fold_schema({"$ref": "#"}).schema


WORDS = "type properties required anyOf oneOf allOf $ref $defs items enum exclusiveMinimum minimum a not"

values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["object", "string", "#/$defs/a", "#", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS.split()), inner, max_size=4),
    max_leaves=15,
)


@settings(deadline=None)
@given(values)
def test_whatever_a_schema_is_the_outcome_is_one_that_the_api_takes_or_none(schema: object) -> None:
    try:
        folded = fold_schema(schema)
    except Unusable:
        return
    assert_the_api_takes(folded.schema)
    assert folded.schema == fold_schema(folded.schema).schema
