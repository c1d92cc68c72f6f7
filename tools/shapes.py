"""
Shapes: what the values of a type look like as JSON Schema, and how one is read from parsed JSON.

A shape reads with two aims. Every problem of an input is found at once and named with its path, since each
rejected call costs a model one whole turn. And what a model plainly means is taken, for the same reason:

- ``"5"`` and ``5.0`` are integers, ``"5"`` is a number, ``"true"`` is a boolean, ``5`` is text (``1.10`` is
  not: what was meant can't be told any more);
- a list or an object may come as its JSON text;
- a choice is found whatever its case, if only one fits;
- null for a field that has a default means the default.

Nothing else is guessed. A union tries every member strictly before it tries any leniently. Pure.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

import attrs

from atrio.runtime.messages import JsonObject

__all__ = [
    "INVALID",
    "MISSING",
    "AnyShape",
    "BooleanShape",
    "ChoiceShape",
    "DescribedShape",
    "IntegerShape",
    "ListShape",
    "MapShape",
    "Member",
    "NullShape",
    "NumberShape",
    "ObjectShape",
    "ParsedTextShape",
    "Problems",
    "RefShape",
    "Shape",
    "TextShape",
    "TupleShape",
    "UnionShape",
    "close_names",
]

INVALID: Final = object()
"""What `Shape.read` returns when it has added a problem."""

MISSING: Final = object()
"""No default."""

SHOWN_CHARS = 60
SHOWN_NAMES = 20
MAX_PROBLEMS = 20


@attrs.define
class Problems:
    """The problems found so far, one sentence each. ``lenient``: take what is plainly meant."""

    lenient: bool = True
    items: list[str] = attrs.field(factory=list)

    def add(self, at: str, text: str) -> object:
        self.items.append(f"{at}: {text}" if at else text)
        return INVALID

    def wrong(self, at: str, expected: str, value: object) -> object:
        return self.add(at, f"expected {expected}, got {show(value)}")

    def listed(self) -> tuple[str, ...]:
        """All of them, or the first ones and how many more there are."""
        if len(self.items) <= MAX_PROBLEMS:
            return tuple(self.items)
        return (*self.items[:MAX_PROBLEMS], f"... and {len(self.items) - MAX_PROBLEMS} more problems of this kind")


class Shape(ABC):
    """One type. ``LIMITS``: the constraints of `Field` that apply to it, all attributes of the same names."""

    LIMITS: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def schema(self) -> JsonObject: ...

    @abstractmethod
    def words(self) -> str:
        """The type in a few words, as in "expected ..."."""

    @abstractmethod
    def read(self, value: object, at: str, problems: Problems) -> object:
        """The typed value, or `INVALID` with at least one problem added."""

    def limited(self, limits: Mapping[str, object]) -> Shape:
        """The same shape under limits, which are among `LIMITS`."""
        return attrs.evolve(self, **limits) if limits else self  # type: ignore[misc]  # LIMITS are fields of the class

    def takes_null(self) -> bool:
        return False

    def suits(self, value: object) -> bool:
        """Whether a value of this JSON type is meant for this shape, be it right or wrong inside."""
        return False


@attrs.frozen
class AnyShape(Shape):
    """Anything that JSON can say."""

    def schema(self) -> JsonObject:
        return {}

    def words(self) -> str:
        return "any value"

    def read(self, value: object, at: str, problems: Problems) -> object:
        return value

    def takes_null(self) -> bool:
        return True


@attrs.frozen
class NullShape(Shape):
    def schema(self) -> JsonObject:
        return {"type": "null"}

    def words(self) -> str:
        return "null"

    def read(self, value: object, at: str, problems: Problems) -> object:
        return None if value is None else problems.wrong(at, self.words(), value)

    def takes_null(self) -> bool:
        return True


@attrs.frozen
class BooleanShape(Shape):
    def schema(self) -> JsonObject:
        return {"type": "boolean"}

    def words(self) -> str:
        return "true or false"

    def read(self, value: object, at: str, problems: Problems) -> object:
        if isinstance(value, bool):
            return value
        if problems.lenient and isinstance(value, str):
            match value.strip().lower():
                case "true":
                    return True
                case "false":
                    return False
        return problems.wrong(at, self.words(), value)


@attrs.frozen
class TextShape(Shape):
    LIMITS = frozenset({"min_length", "max_length", "pattern"})

    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None

    def schema(self) -> JsonObject:
        limits = {"minLength": self.min_length, "maxLength": self.max_length, "pattern": self.pattern}
        return {"type": "string", **_given(limits)}

    def words(self) -> str:
        return "a string"

    def suits(self, value: object) -> bool:
        return isinstance(value, str)

    def read(self, value: object, at: str, problems: Problems) -> object:
        if problems.lenient and isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            hint = "; put quotes around it" if isinstance(value, float) else ""
            return problems.add(at, f"expected a string, got {show(value)}{hint}")
        if self.min_length is not None and len(value) < self.min_length:
            wanted = "text that is not empty" if self.min_length == 1 else f"at least {self.min_length:,} characters"
            return problems.add(at, f"expected {wanted}, got {show(value)}")
        if self.max_length is not None and len(value) > self.max_length:
            return problems.add(at, f"expected at most {self.max_length:,} characters, got {len(value):,}")
        if self.pattern is not None and re.search(self.pattern, value) is None:
            return problems.add(at, f"expected text that matches the pattern {self.pattern}, got {show(value)}")
        return value


@attrs.frozen
class ParsedTextShape(Shape):
    """Text with a meaning of its own (a time, a path). ``parse`` raises ValueError with what it expected."""

    parse: Callable[[str], object]
    expected: str
    format: str | None = None

    def schema(self) -> JsonObject:
        return {"type": "string", **_given({"format": self.format})}

    def words(self) -> str:
        return self.expected

    def suits(self, value: object) -> bool:
        return isinstance(value, str)

    def read(self, value: object, at: str, problems: Problems) -> object:
        if not isinstance(value, str):
            return problems.wrong(at, self.expected, value)
        try:
            return self.parse(value)
        except ValueError:
            return problems.wrong(at, self.expected, value)


@attrs.frozen
class _NumericShape(Shape):
    LIMITS = frozenset({"ge", "gt", "le", "lt"})

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def limits(self) -> JsonObject:
        return _given(
            {"minimum": self.ge, "exclusiveMinimum": self.gt, "maximum": self.le, "exclusiveMaximum": self.lt}
        )

    def suits(self, value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def within(self, number: float, at: str, problems: Problems) -> object:
        if self.ge is not None and number < self.ge:
            return problems.add(at, f"must be at least {self.ge:,}, got {show(number)}")
        if self.gt is not None and number <= self.gt:
            return problems.add(at, f"must be greater than {self.gt:,}, got {show(number)}")
        if self.le is not None and number > self.le:
            return problems.add(at, f"must be at most {self.le:,}, got {show(number)}")
        if self.lt is not None and number >= self.lt:
            return problems.add(at, f"must be less than {self.lt:,}, got {show(number)}")
        return number


@attrs.frozen
class IntegerShape(_NumericShape):
    def schema(self) -> JsonObject:
        return {"type": "integer", **self.limits()}

    def words(self) -> str:
        return "an integer"

    def read(self, value: object, at: str, problems: Problems) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            return self.within(value, at, problems)
        if problems.lenient:
            if isinstance(value, float) and value.is_integer():
                return self.within(int(value), at, problems)
            # The bound on digits keeps int() from refusing, or from taking long over, absurd ones.
            if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,100}(\.0*)?\s*", value):
                return self.within(int(value.strip().partition(".")[0]), at, problems)
        return problems.wrong(at, self.words(), value)


@attrs.frozen
class NumberShape(_NumericShape):
    def schema(self) -> JsonObject:
        return {"type": "number", **self.limits()}

    def words(self) -> str:
        return "a number"

    def read(self, value: object, at: str, problems: Problems) -> object:
        number = _float(value, lenient=problems.lenient)
        if number is None or not math.isfinite(number):
            return problems.wrong(at, self.words(), value)
        return self.within(number, at, problems)


def _float(value: object, *, lenient: bool) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float) or (lenient and isinstance(value, str) and len(value) <= 100):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    return None


@attrs.frozen
class ChoiceShape(Shape):
    """One of some values: ``choices`` are pairs of the JSON value and what it stands for."""

    choices: tuple[tuple[str | int | bool | None, object], ...]

    def schema(self) -> JsonObject:
        values = [value for value, _ in self.choices]
        kinds = {_kind(value) for value in values}
        return {**({"type": kinds.pop()} if len(kinds) == 1 else {}), "enum": values}

    def words(self) -> str:
        shown = ", ".join(show(value) for value, _ in self.choices[:SHOWN_NAMES])
        more = len(self.choices) - SHOWN_NAMES
        return f"one of {shown}" + (f" and {more} more" if more > 0 else "")

    def takes_null(self) -> bool:
        return any(value is None for value, _ in self.choices)

    def read(self, value: object, at: str, problems: Problems) -> object:
        for choice, meaning in self.choices:
            if type(choice) is type(value) and choice == value:
                return meaning
        if problems.lenient and isinstance(value, str | int | float) and not isinstance(value, bool):
            wanted = _plain(value)
            found = [meaning for choice, meaning in self.choices if _plain(choice) == wanted]
            if len(found) == 1:
                return found[0]
        close = close_names(str(value), [choice for choice, _ in self.choices if isinstance(choice, str)])
        hint = f"; did you mean {show(close[0])}?" if isinstance(value, str) and close else ""
        return problems.add(at, f"expected {self.words()}, got {show(value)}{hint}")


@attrs.frozen
class ListShape(Shape):
    """``build`` makes the collection of the list of read items."""

    LIMITS = frozenset({"min_length", "max_length"})

    item: Shape
    build: Callable[[list[object]], object] = list
    unique: bool = False
    min_length: int | None = None
    max_length: int | None = None

    def schema(self) -> JsonObject:
        limits = {"minItems": self.min_length, "maxItems": self.max_length, "uniqueItems": self.unique or None}
        return {"type": "array", "items": self.item.schema(), **_given(limits)}

    def words(self) -> str:
        return "a list" if isinstance(self.item, AnyShape) else f"a list ({self.item.words()} each)"

    def suits(self, value: object) -> bool:
        return isinstance(value, list | tuple)

    def read(self, value: object, at: str, problems: Problems) -> object:
        value = _unquoted(value, list, problems)
        if not isinstance(value, list | tuple):
            return problems.wrong(at, self.words(), value)
        if self.min_length is not None and len(value) < self.min_length:
            return problems.add(at, f"expected at least {_count(self.min_length, 'item')}, got {len(value):,}")
        if self.max_length is not None and len(value) > self.max_length:
            return problems.add(at, f"expected at most {_count(self.max_length, 'item')}, got {len(value):,}")
        items = [self.item.read(item, f"{at}[{index}]", problems) for index, item in enumerate(value)]
        if any(item is INVALID for item in items):
            return INVALID
        try:
            return self.build(items)
        except TypeError:  # a set of what has no hash
            return problems.add(at, "the items can't form a set")


@attrs.frozen
class TupleShape(Shape):
    """A list of a fixed length."""

    items: tuple[Shape, ...]

    def schema(self) -> JsonObject:
        count = len(self.items)
        schemas = [item.schema() for item in self.items]
        return {"type": "array", "prefixItems": schemas, "minItems": count, "maxItems": count}

    def words(self) -> str:
        return f"a list of exactly {_count(len(self.items), 'item')}"

    def suits(self, value: object) -> bool:
        return isinstance(value, list | tuple)

    def read(self, value: object, at: str, problems: Problems) -> object:
        value = _unquoted(value, list, problems)
        if not isinstance(value, list | tuple) or len(value) != len(self.items):
            return problems.wrong(at, self.words(), value)
        pairs = zip(self.items, value, strict=True)
        items = tuple(shape.read(item, f"{at}[{index}]", problems) for index, (shape, item) in enumerate(pairs))
        return INVALID if any(item is INVALID for item in items) else items


@attrs.frozen
class MapShape(Shape):
    """An object with any keys."""

    LIMITS = frozenset({"min_length", "max_length"})

    value: Shape
    min_length: int | None = None
    max_length: int | None = None

    def schema(self) -> JsonObject:
        limits = {"minProperties": self.min_length, "maxProperties": self.max_length}
        inner = self.value.schema()
        return {"type": "object", **({"additionalProperties": inner} if inner else {}), **_given(limits)}

    def words(self) -> str:
        return "an object"

    def suits(self, value: object) -> bool:
        return isinstance(value, Mapping)

    def read(self, value: object, at: str, problems: Problems) -> object:
        value = _unquoted(value, dict, problems)
        if not isinstance(value, Mapping):
            return problems.wrong(at, self.words(), value)
        if self.min_length is not None and len(value) < self.min_length:
            return problems.add(at, f"expected at least {_count(self.min_length, 'key')}, got {len(value):,}")
        if self.max_length is not None and len(value) > self.max_length:
            return problems.add(at, f"expected at most {_count(self.max_length, 'key')}, got {len(value):,}")
        result = {key: self.value.read(item, _join(at, str(key)), problems) for key, item in value.items()}
        return INVALID if any(item is INVALID for item in result.values()) else result


@attrs.frozen(kw_only=True)
class Member:
    """
    One field of an object.

    Args:
        name: the JSON key.
        target: the name under which the value is given to ``build``.
        optional: the field may be left out; then ``build`` doesn't hear of it.
        default: what the schema shows as the default, if anything.
        nullable_by_default: leaving the field out means null, so the schema need not offer null as well.
        aliases: further keys that are taken, but not shown in the schema.
    """

    name: str
    target: str
    shape: Shape
    description: str | None = None
    optional: bool = False
    default: object = MISSING
    nullable_by_default: bool = False
    aliases: tuple[str, ...] = ()

    def schema(self) -> JsonObject:
        shape = self.shape
        if self.nullable_by_default and isinstance(shape, UnionShape):
            shape = shape.without_null()
        shown = {**shape.schema(), **_given({"description": self.description})}
        if self.default is not MISSING:
            shown["default"] = self.default
        return shown


@attrs.frozen(kw_only=True)
class ObjectShape(Shape):
    """An object with known fields; unknown ones are refused. ``build`` takes the values by their target names."""

    name: str
    members: tuple[Member, ...]
    build: Callable[..., object]
    description: str | None = None

    def schema(self) -> JsonObject:
        required = [member.name for member in self.members if not member.optional]
        return {
            "type": "object",
            **_given({"description": self.description}),
            "properties": {member.name: member.schema() for member in self.members},
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }

    def words(self) -> str:
        return "an object"

    def suits(self, value: object) -> bool:
        return isinstance(value, Mapping)

    def read(self, value: object, at: str, problems: Problems) -> object:
        value = _unquoted(value, dict, problems)
        if not isinstance(value, Mapping):
            fields = ", ".join(member.name for member in self.members[:SHOWN_NAMES])
            return problems.wrong(at, f"an object with the fields {fields}" if fields else "an object", value)
        before = len(problems.items)
        self._refuse_unknown(value, at, problems)
        values: dict[str, object] = {}
        for member in self.members:
            found = self._read_member(member, value, at, problems)
            if found is not MISSING:
                values[member.target] = found
        if len(problems.items) > before:
            return INVALID
        try:
            return self.build(**values)
        except (TypeError, ValueError) as error:  # a validator of the class
            text = error.args[0] if error.args and isinstance(error.args[0], str) else repr(error)
            return problems.add(at, text)

    def _refuse_unknown(self, value: Mapping[object, object], at: str, problems: Problems) -> None:
        names = [member.name for member in self.members]
        known = {*names, *(alias for member in self.members for alias in member.aliases)}
        for key in value:
            if key in known:
                continue
            close = close_names(str(key), names)
            if close:
                hint = f"did you mean {close[0]}?"
            elif names:
                hint = f"the fields are {', '.join(names[:SHOWN_NAMES])}"
            else:
                hint = "there are no fields, so leave the input empty"
            problems.items.append(f"{_join(at, _short(str(key)))}: unknown field; {hint}")

    def _read_member(self, member: Member, value: Mapping[object, object], at: str, problems: Problems) -> object:
        keys = [key for key in (member.name, *member.aliases) if key in value]
        if len(keys) > 1:
            return problems.add(_join(at, keys[0]), f"given more than once ({', '.join(keys)})")
        if not keys:
            if member.optional:
                return MISSING
            return problems.add(_join(at, member.name), f"missing; this field is required ({member.shape.words()})")
        given = value[keys[0]]
        if given is None and member.optional and not member.shape.takes_null():
            return MISSING
        return member.shape.read(given, _join(at, keys[0]), problems)


@attrs.frozen
class UnionShape(Shape):
    """One of several shapes: the first that fits strictly, else the first that fits leniently."""

    members: tuple[Shape, ...]

    def without_null(self) -> Shape:
        rest = tuple(member for member in self.members if not isinstance(member, NullShape))
        if not rest:
            return self
        return rest[0] if len(rest) == 1 else UnionShape(rest)

    def schema(self) -> JsonObject:
        return {"anyOf": [member.schema() for member in self.members]}

    def words(self) -> str:
        return " or ".join(member.words() for member in self.members)

    def takes_null(self) -> bool:
        return any(member.takes_null() for member in self.members)

    def suits(self, value: object) -> bool:
        return any(member.suits(value) for member in self.members)

    def read(self, value: object, at: str, problems: Problems) -> object:
        failed: list[tuple[Shape, list[str]]] = []
        for lenient in (False, True) if problems.lenient else (False,):
            failed.clear()
            for member in self.members:
                trial = Problems(lenient)
                result = member.read(value, at, trial)
                if not trial.items:
                    return result
                failed.append((member, trial.items))
        failed = [(member, found) for member, found in failed if not isinstance(member, NullShape)]
        meant = failed if len(failed) == 1 else [(m, found) for m, found in failed if m.suits(value)]
        if meant:  # the nearest miss tells more than "none of these"
            fewest: list[str] = min([found for _, found in meant], key=len)
            problems.items.extend(fewest)
            return INVALID
        return problems.wrong(at, self.words(), value)


@attrs.frozen
class DescribedShape(Shape):
    """A shape with words about it, where no field carries them (the items of a list)."""

    inner: Shape
    description: str

    def schema(self) -> JsonObject:
        return {**self.inner.schema(), "description": self.description}

    def words(self) -> str:
        return self.inner.words()

    def takes_null(self) -> bool:
        return self.inner.takes_null()

    def suits(self, value: object) -> bool:
        return self.inner.suits(value)

    def read(self, value: object, at: str, problems: Problems) -> object:
        return self.inner.read(value, at, problems)


@attrs.define(eq=False)
class RefShape(Shape):
    """A class that holds itself; ``target`` is set when the class is known."""

    name: str
    target: Shape | None = None

    def schema(self) -> JsonObject:
        return {"$ref": f"#/$defs/{self.name}"}

    def _target(self) -> Shape:
        assert self.target is not None
        return self.target

    def words(self) -> str:
        return "an object"

    def suits(self, value: object) -> bool:
        return self._target().suits(value)

    def read(self, value: object, at: str, problems: Problems) -> object:
        return self._target().read(value, at, problems)


def close_names(name: str, names: Sequence[str], limit: int = 3) -> tuple[str, ...]:
    """The names that may have been meant, best first; case, ``_`` and ``-`` don't count."""
    by_plain = {_plain(known): known for known in names}
    if _plain(name) in by_plain:
        return (by_plain[_plain(name)],)
    found = difflib.get_close_matches(_plain(name)[:100], by_plain, n=limit, cutoff=0.6)
    return tuple(by_plain[match] for match in found)


def show(value: object) -> str:
    """A value in a few words, for an error text."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(_short(value), ensure_ascii=False)
        case int():
            return str(value) if abs(value) < 10**20 else "a huge integer"
        case float():
            return repr(value)
        case Mapping():
            keys = ", ".join(_short(str(key)) for key in list(value)[:5])
            return f"an object with {keys}" + (", ..." if len(value) > 5 else "") if value else "an empty object"
        case list() | tuple():
            return f"a list of {_count(len(value), 'item')}" if value else "an empty list"
        case _:
            return f"a {type(value).__name__}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."


def _plain(value: object) -> str:
    return str(value).strip().lower().replace("_", "").replace("-", "")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _given(limits: Mapping[str, object]) -> JsonObject:
    return {key: value for key, value in limits.items() if value is not None}


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case _:
            return "string"


def _unquoted(value: object, kind: type, problems: Problems) -> object:
    """The list or object whose JSON text ``value`` is, if that was sent in its place."""
    if not problems.lenient or not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        parsed: object = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed if isinstance(parsed, kind) else value
