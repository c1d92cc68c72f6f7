"""
Makes a server's tool schemas such that the model's API takes them, since one that it refuses makes every request fail.

The API wants a JSON Schema of draft 2020-12 whose top is an object without ``anyOf``, ``oneOf`` or ``allOf`` and whose
keys are plain. What says something else is folded to the widest schema of that form: the server still judges the
input itself. What can't be folded is `Unusable`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs
import jsonschema
import jsonschema.exceptions
import orjson

from atrio.runtime.messages import JsonObject
from atrio.runtime.wirejson import without_surrogates

__all__ = ["Folded", "Unusable", "fold_schema"]

MAX_BYTES: Final = 64 * 1024
"""Every request carries every schema; this one is some 16,000 tokens."""

MAX_DEPTH: Final = 60

KEY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

_COMBINERS: Final = ("anyOf", "oneOf", "allOf")
_CONDITIONS: Final = ("not", "if", "then", "else", "dependentSchemas", "dependencies")
_IDENTITIES: Final = frozenset({"$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"})
_PLACES: Final = ("#/$defs/", "#/definitions/", "#/properties/")
"""Where references may lead to: these places are still there after folding."""

_ESSENTIAL: Final = ("type", "properties", "required", "$defs", "definitions")

_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))

_SCHEMAS: Final = frozenset({"additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"})
_SCHEMA_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMA_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


class Unusable(ValueError):
    """Nothing that the API takes can be made of a schema; the text says why."""


@attrs.frozen(kw_only=True)
class Folded:
    """A schema that the API takes, and what had to be changed; no changes mean that it was fine."""

    schema: JsonObject
    changes: tuple[str, ...] = ()


def fold_schema(schema: object) -> Folded:
    """
    The schema in a form that the API takes.

    Raises:
        Unusable: it is no object schema, far too large, or invalid beyond repair.
    """
    if not isinstance(schema, dict):
        raise Unusable("its input schema is no JSON object")
    try:
        size = len(orjson.dumps(without_surrogates(schema)))
    except (TypeError, RecursionError):
        raise Unusable("its input schema is nested too deeply") from None
    if size > MAX_BYTES:
        raise Unusable(f"its input schema has {size:,} bytes, of {MAX_BYTES:,} at most")
    return _Folder(root=without_surrogates(schema)).fold()


@attrs.define(eq=False, kw_only=True)
class _Folder:
    root: JsonObject
    changes: list[str] = attrs.field(factory=list)

    def fold(self) -> Folded:
        top = self._modern(self.root, 0)
        kind = top.get("type", "object")
        if kind != "object" and not (isinstance(kind, list) and "object" in kind):
            raise Unusable(f"its input is of type {kind!r}, not an object")
        if kind != "object":
            self.changes.append("its type is object")
        top["type"] = "object"
        if "$ref" in top:
            self.changes.append("its top-level $ref was followed")
            target = self._target(top.pop("$ref"), top)
            top = {**target, **top} if target is not None else top
        top = self._without_combiners(top)
        for name in _CONDITIONS:
            if name in top:
                del top[name]
                self.changes.append(f"its top-level {name} was left out")
        self._fold_properties(top)
        self._check(top)
        return Folded(schema=top, changes=tuple(dict.fromkeys(self.changes)))

    # --- older drafts -----------------------------------------------------------------------------

    def _modern(self, schema: Mapping[str, Any], depth: int) -> JsonObject:
        """A copy in the terms of draft 2020-12."""
        if depth > MAX_DEPTH:
            raise Unusable("its input schema is nested too deeply")
        new: JsonObject = {}
        for key, value in schema.items():
            if key in _SCHEMA_MAPS and isinstance(value, dict):
                new[key] = {name: self._inner(item, depth) for name, item in value.items()}
            elif key in _SCHEMA_LISTS and isinstance(value, list):
                new[key] = [self._inner(item, depth) for item in value]
            elif key == "items" and isinstance(value, list):
                new["prefixItems"] = [self._inner(item, depth) for item in value]
                self.changes.append("items that was a list became prefixItems")
            elif key in _SCHEMAS or key == "items":
                new[key] = self._inner(value, depth)
            elif key == "required" and isinstance(value, bool):
                self.changes.append("a required of draft 3 was left out")
            elif key not in _IDENTITIES:
                new[key] = value
        self._mend_bounds(new)
        if "$ref" in new and not self._leads_somewhere(new["$ref"]):
            del new["$ref"]
            self.changes.append("a $ref that leads nowhere in the schema was left out")
        return new

    def _inner(self, value: object, depth: int) -> object:
        return self._modern(value, depth + 1) if isinstance(value, dict) else value

    def _mend_bounds(self, schema: JsonObject) -> None:
        for exclusive, plain in _BOUNDS:
            if isinstance(schema.get(exclusive), bool):
                if schema.pop(exclusive) and plain in schema:
                    schema[exclusive] = schema.pop(plain)
                self.changes.append(f"an {exclusive} of draft 4 was rewritten")

    def _leads_somewhere(self, ref: object) -> bool:
        known = isinstance(ref, str) and (ref == "#" or ref.startswith(_PLACES))
        return known and self._target(ref, self.root) is not None

    def _target(self, ref: object, document: Mapping[str, Any]) -> JsonObject | None:
        """What a reference within the schema leads to; None if nowhere."""
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            return None
        place: object = document
        for part in ref[2:].split("/") if len(ref) > 1 else ():
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(place, list) and key.isdecimal() and int(key) < len(place):
                place = place[int(key)]
            elif isinstance(place, dict) and key in place:
                place = place[key]
            else:
                return None
        return place if isinstance(place, dict) else None

    # --- the top ----------------------------------------------------------------------------------

    def _without_combiners(self, top: JsonObject) -> JsonObject:
        for name in _COMBINERS:
            branches = top.pop(name, None)
            if isinstance(branches, list) and branches:
                self.changes.append(f"its top-level {name} was folded into one object")
                top = self._merge(top, [self._branch(item, top, 0) for item in branches], every=name == "allOf")
        return top

    def _branch(self, item: object, document: Mapping[str, Any], depth: int) -> JsonObject | None:
        """A branch as a plain object schema; None if it says nothing of the kind."""
        if not isinstance(item, dict) or depth > MAX_DEPTH:
            return None
        if "$ref" in item:
            return self._branch(self._target(item["$ref"], document), document, depth + 1)
        for name in _COMBINERS:
            inner = item.get(name)
            if isinstance(inner, list) and inner:
                rest = {key: value for key, value in item.items() if key != name}
                parts = [self._branch(part, document, depth + 1) for part in inner]
                item = self._merge(rest, parts, every=name == "allOf")
        return item if item.get("type", "object") == "object" else None

    def _merge(self, base: JsonObject, branches: list[JsonObject | None], *, every: bool) -> JsonObject:
        """``base`` with the properties of all branches; required is what all of them (``every``: any) require."""
        properties: dict[str, list[object]] = {}
        for part in (base, *branches):
            for name, schema in _object(part, "properties").items():
                known = properties.setdefault(name, [])
                if schema not in known:
                    known.append(schema)
        sets = [set(_names(branch)) for branch in branches]
        common = set[str]().union(*sets) if every else set.intersection(*sets)
        required = [name for name in properties if name in common or name in _names(base)]
        merged = {key: value for key, value in base.items() if key not in ("properties", "required")}
        if any(branch is None or branch.get("additionalProperties") is not False for branch in branches):
            merged.pop("additionalProperties", None)
        for branch in branches:
            for key in ("$defs", "definitions"):
                if defs := _object(branch, key):
                    merged[key] = {**defs, **_object(merged, key)}
        merged["properties"] = {
            name: found[0] if len(found) == 1 else {"anyOf": found} for name, found in properties.items()
        }
        if required:
            merged["required"] = required
        return merged

    def _fold_properties(self, top: JsonObject) -> None:
        """Keys that the API takes, schemas that are valid, and a ``required`` that names only what is there."""
        properties = top.get("properties", {})
        if not isinstance(properties, dict):
            raise Unusable("its properties are no JSON object")
        kept: JsonObject = {}
        needed = _names(top)
        for name, schema in properties.items():
            if KEY.fullmatch(name):
                kept[name] = schema if _is_valid(schema) else self._bare(name, schema)
            elif name in needed:
                raise Unusable(f"it requires the parameter {name[:80]!r}, a name that can't be sent")
            else:
                self.changes.append(f"the parameter {name[:80]!r} was left out, as its name can't be sent")
        top["properties"] = kept
        present = [name for name in dict.fromkeys(needed) if name in kept]
        top.pop("required", None)
        if present:
            top["required"] = present

    def _bare(self, name: str, schema: object) -> JsonObject:
        self.changes.append(f"the schema of the parameter {name!r} is invalid and was left out")
        text = schema.get("description") if isinstance(schema, dict) else None
        return {"description": text} if isinstance(text, str) else {}

    def _check(self, top: JsonObject) -> None:
        for key in ("$defs", "definitions"):
            defs = top.get(key)
            if isinstance(defs, dict):
                top[key] = {name: item if _is_valid(item) else self._bare(name, item) for name, item in defs.items()}
        if not _is_valid(top):
            rest: JsonObject = {
                key: top[key] for key in ("type", "properties", "required", "$defs", "definitions") if key in top
            }
            self.changes.append("invalid keywords at its top were left out")
            top.clear()
            top.update(rest)
        if not _is_valid(top):
            raise Unusable("its input schema is invalid")


def _is_valid(schema: object) -> bool:
    if not isinstance(schema, dict | bool):
        return False
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except (jsonschema.exceptions.SchemaError, RecursionError):
        return False
    return True


def _object(schema: Mapping[str, Any] | None, key: str) -> JsonObject:
    value = schema.get(key) if schema is not None else None
    return value if isinstance(value, dict) else {}


def _names(schema: Mapping[str, Any] | None) -> list[str]:
    value = schema.get("required") if schema is not None else None
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
