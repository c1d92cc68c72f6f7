"""
From type hints to JSON Schema, and from a model's raw input to typed values. Pure.

`json_schema` and `structure` serve a tool's attrs input class, `object_shape` a function's parameters. What is
taken leniently, and how problems are told, is in `atrio.tools.shapes`.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import functools
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NewType, TypeAlias, TypeVar
from uuid import UUID

import attrs

from atrio.runtime.errors import ConfigError, InvalidToolInput
from atrio.runtime.messages import JsonObject

from .docstrings import parse_docstring
from .shapes import (
    INVALID,
    MISSING,
    AnyShape,
    BooleanShape,
    ChoiceShape,
    DescribedShape,
    IntegerShape,
    ListShape,
    MapShape,
    Member,
    NullShape,
    NumberShape,
    ObjectShape,
    ParsedTextShape,
    Problems,
    RefShape,
    Shape,
    TextShape,
    TupleShape,
    UnionShape,
)

__all__ = ["Field", "HintCompiler", "Parameter", "json_schema", "object_schema", "object_shape", "read", "structure"]

T = TypeVar("T")

KEY_PATTERN: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""What the API takes as a property name. One bad name would make every request fail, not only this tool's."""

WAYS_OUT: Final = (
    "use str, int, float, bool, None, list, dict[str, ...], tuple, set, Literal, an Enum, Optional or a union, "
    "a datetime, Path, an attrs class or a TypedDict"
)


@attrs.frozen(kw_only=True)
class Field:
    """
    What a hint can't say about a parameter or field: ``Annotated[int, Field(ge=1, description="lines")]``.

    ``ge``, ``gt``, ``le``, ``lt`` bound numbers; ``min_length`` and ``max_length`` bound text, lists and dicts;
    ``pattern`` is searched in text; ``aliases`` are further keys that are taken but not advertised.
    """

    description: str | None = None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    aliases: tuple[str, ...] = attrs.field(default=(), converter=tuple)

    def limits(self) -> dict[str, object]:
        values = attrs.asdict(self, filter=attrs.filters.exclude("description", "aliases"))
        return {name: value for name, value in values.items() if value is not None}


@attrs.frozen(kw_only=True)
class Parameter:
    """One parameter of a function or field of a class, before its hint is understood."""

    name: str
    hint: object
    optional: bool = False
    default: object = MISSING


@functools.lru_cache(maxsize=256)
def _input_shape(cls: type) -> ObjectShape:
    shape = HintCompiler(where=cls.__qualname__).class_shape(cls)
    if not isinstance(shape, ObjectShape):
        raise ConfigError(cls.__qualname__, "this is no class with fields", "use an attrs class or a TypedDict")
    return shape


def json_schema(cls: type) -> JsonObject:
    """The JSON Schema of a tool's input class (attrs, TypedDict). Raises `ConfigError` for a hint it can't express."""
    return object_schema(_input_shape(cls))


def structure(cls: type[T], raw: Mapping[str, Any], *, tool: str) -> T:
    """A tool's input from what the model sent. Raises `InvalidToolInput` with every problem."""
    shape: ObjectShape = _input_shape(cls)  # type: ignore[arg-type]  # classes do have a hash
    value: Any = read(shape, raw, tool=tool)
    return value  # type: ignore[no-any-return]  # the shape of a class builds instances of it


def read(shape: ObjectShape, raw: Mapping[str, Any], *, tool: str) -> object:
    """What ``shape`` makes of ``raw``. Raises `InvalidToolInput` with every problem."""
    problems = Problems()
    try:
        value = shape.read(raw, "", problems)
    except RecursionError:
        raise InvalidToolInput(tool, ["the input is nested too deeply"]) from None
    if value is INVALID or problems.items:
        raise InvalidToolInput(tool, problems.listed())
    return value


def object_schema(shape: ObjectShape) -> JsonObject:
    """The schema of a whole input; classes that hold themselves are under ``$defs``."""
    schema = shape.schema()
    schema.pop("description", None)  # the tool's own description says it
    refs: dict[str, RefShape] = {}
    _collect_refs(shape, refs)
    if refs:
        schema["$defs"] = {name: ref.target.schema() for name, ref in refs.items() if ref.target is not None}
    return schema


def _collect_refs(shape: Shape, refs: dict[str, RefShape]) -> None:
    match shape:
        case RefShape(name=name, target=target):
            if name not in refs and target is not None:
                refs[name] = shape
                _collect_refs(target, refs)
            elif refs[name] is not shape:
                raise ConfigError(name, "two classes of this name hold themselves", "rename one of them")
        case ObjectShape(members=fields):
            for field in fields:
                _collect_refs(field.shape, refs)
        case UnionShape(members=shapes) | TupleShape(items=shapes):
            for inner in shapes:
                _collect_refs(inner, refs)
        case ListShape(item=inner) | MapShape(value=inner) | DescribedShape(inner=inner):
            _collect_refs(inner, refs)
        case _:
            pass


def object_shape(
    compiler: HintCompiler,
    name: str,
    parameters: Iterable[Parameter],
    build: Callable[..., object],
    *,
    doc: str | None = None,
) -> ObjectShape:
    """The shape of an object with these parameters; ``doc`` is a docstring that may describe them."""
    parameters = tuple(parameters)
    description, about = parse_docstring(doc, {parameter.name for parameter in parameters})
    members = tuple(compiler.member(parameter, about.get(parameter.name)) for parameter in parameters)
    keys = [key for member in members for key in (member.name, *member.aliases)]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(compiler.where, f"the key {key!r} is used twice", "give each field and alias its own")
    return ObjectShape(name=name, members=members, build=build, description=description or None)


@attrs.define
class HintCompiler:
    """
    Makes shapes of hints.

    Args:
        where: the function or class, for error texts.
        names: what else hints may refer to (a function's local classes).
    """

    where: str
    names: Mapping[str, object] = attrs.field(factory=dict)
    _classes: dict[type, RefShape] = attrs.field(factory=dict)

    def hints_of(self, thing: Callable[..., object]) -> dict[str, object]:
        """The resolved hints of a class or function. Raises `ConfigError` where a name can't be found."""
        try:
            return typing.get_type_hints(thing, localns=dict(self.names) or None, include_extras=True)
        except NameError as error:
            remedy = f"define or import {error.name!r} at module level before this, and not only under TYPE_CHECKING"
            raise ConfigError(self.where, f"a type hint names {error.name!r}, unknown here", remedy) from error
        except (TypeError, SyntaxError) as error:
            raise ConfigError(self.where, f"a type hint can't be understood: {error}", WAYS_OUT) from error

    def member(self, parameter: Parameter, description: str | None) -> Member:
        inner = attrs.evolve(self, where=f"{self.where}, {parameter.name}")
        hint, field = _unwrap(parameter.hint)
        for key in (parameter.name, *field.aliases):
            if not KEY_PATTERN.fullmatch(key):
                raise ConfigError(inner.where, f"the API does not take {key!r} as a name", "use ASCII letters and _")
        return Member(
            name=parameter.name,
            target=parameter.name,
            shape=inner.limited(inner.shape(hint), field),
            description=field.description or description,
            optional=parameter.optional,
            default=_shown_default(parameter.default),
            nullable_by_default=parameter.default is None,
            aliases=field.aliases,
        )

    def limited(self, shape: Shape, field: Field) -> Shape:
        """The shape under the field's limits; in a union each goes to the members that it suits."""
        limits = field.limits()
        shapes = shape.members if isinstance(shape, UnionShape) else (shape,)
        for name in limits:
            if not any(name in part.LIMITS for part in shapes):
                raise ConfigError(self.where, f"{name} does not apply to {shape.words()}", "take it out of the Field")
        parts = tuple(part.limited({key: limits[key] for key in limits if key in part.LIMITS}) for part in shapes)
        return UnionShape(parts) if isinstance(shape, UnionShape) else parts[0]

    def shape(self, hint: object) -> Shape:
        """The shape of one hint. Raises `ConfigError` if there is none."""
        hint, field = _unwrap(hint)
        simple = _SIMPLE.get(hint) if hint is None or hint is Any or isinstance(hint, type) else None
        shape = self.limited(simple if simple is not None else self._composed(hint), field)
        return DescribedShape(shape, field.description) if field.description else shape

    def _composed(self, hint: object) -> Shape:
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is Literal:
            return self._choice([(value, value) for value in args])
        if origin in (typing.Union, types.UnionType):
            return _union([self.shape(arg) for arg in args])
        generic = origin if origin is not None else hint
        if generic is tuple:
            return self._tuple(args)
        if generic in _LISTS:
            build = _LISTS[generic]
            item = self.shape(args[0]) if args else AnyShape()
            return ListShape(item, build, unique=build in (set, frozenset))
        if generic in _MAPS:
            return self._map(hint, args)
        if isinstance(hint, type) and origin is None:
            return self.class_shape(hint)
        return self._refuse(hint)

    def _tuple(self, args: tuple[object, ...]) -> Shape:
        if not args:
            return ListShape(AnyShape(), tuple)
        if len(args) == 2 and args[1] is Ellipsis:
            return ListShape(self.shape(args[0]), tuple)
        return TupleShape(tuple(self.shape(arg) for arg in args))

    def _map(self, hint: object, args: tuple[object, ...]) -> Shape:
        if not args:
            return MapShape(AnyShape())
        if args[0] is not str:
            raise ConfigError(self.where, f"{_name(hint)} has keys that are not str", "use dict[str, ...]")
        return MapShape(self.shape(args[1]))

    def _choice(self, choices: list[tuple[object, object]]) -> Shape:
        pairs: list[tuple[str | int | bool | None, object]] = []
        for value, meaning in choices:
            value = value.value if isinstance(value, enum.Enum) else value
            match value:
                case None | bool():
                    pairs.append((value, meaning))
                case str() | int():  # of an enum that mixes them in: the plain value is the JSON value
                    pairs.append((str.__str__(value) if isinstance(value, str) else int(value), meaning))
                case _:
                    raise ConfigError(self.where, f"the choice {value!r} is no text or integer", "use such values")
        return ChoiceShape(tuple(pairs))

    def class_shape(self, cls: type) -> Shape:
        """The shape of an enum, attrs class, TypedDict or dataclass."""
        if issubclass(cls, enum.Enum):
            return self._choice([(member.value, member) for member in cls])
        known = self._classes.get(cls)
        if known is not None:
            return known if known.target is None else known.target
        find = _finder_of(cls)
        if find is None:
            return self._refuse(cls)
        ref = self._classes[cls] = RefShape(re.sub(r"\W+", "_", cls.__qualname__))
        parameters = find(cls, self.hints_of(cls))
        ref.target = object_shape(self, cls.__name__, parameters, cls, doc=_class_doc(cls))
        return ref.target

    def _refuse(self, hint: object) -> Shape:
        raise ConfigError(self.where, f"the type {_name(hint)} can't be described to a model", WAYS_OUT)


def _unwrap(hint: object) -> tuple[object, Field]:
    """The hint without what wraps it, and the `Field` that the wrapping adds up to (the outermost wins)."""
    found: list[object] = []
    while True:
        if typing.get_origin(hint) is Annotated:
            hint, *metadata = typing.get_args(hint)
            found = [*metadata, *found]
        elif getattr(typing.get_origin(hint), "_name", None) in ("Required", "NotRequired", "ReadOnly"):
            (hint,) = typing.get_args(hint)
        elif isinstance(hint, NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":
            hint = getattr(hint, "__value__", None)
        else:
            break
    field = Field()
    for item in found:
        if isinstance(item, str):
            field = attrs.evolve(field, description=item)
        elif isinstance(item, Field):
            given = {a.name: getattr(item, a.name) for a in attrs.fields(Field) if getattr(item, a.name) != a.default}
            field = attrs.evolve(field, **given)
    return hint, field


def _union(shapes: list[Shape]) -> Shape:
    flat: list[Shape] = []
    for shape in shapes:
        flat.extend(shape.members if isinstance(shape, UnionShape) else (shape,))
    return UnionShape(tuple(flat)) if len(flat) > 1 else flat[0]


def _shown_default(default: object) -> object:
    if isinstance(default, enum.Enum):
        default = default.value
    if isinstance(default, float) and not math.isfinite(default):
        return MISSING
    return default if isinstance(default, bool | int | float | str) else MISSING


Finder: TypeAlias = Callable[[type, dict[str, object]], list[Parameter]]


def _finder_of(cls: type) -> Finder | None:
    if attrs.has(cls):
        return _attrs_parameters
    if dataclasses.is_dataclass(cls):
        return _dataclass_parameters
    return _typed_dict_parameters if typing.is_typeddict(cls) or hasattr(cls, "__required_keys__") else None


def _attrs_parameters(cls: type, hints: dict[str, object]) -> list[Parameter]:
    found: list[Parameter] = []
    for field in attrs.fields(cls):
        if not field.init:
            continue
        if field.name not in hints:
            raise ConfigError(f"{cls.__qualname__}, {field.name}", "the field has no type", "annotate it")
        absent = field.default is attrs.NOTHING
        computed = absent or isinstance(field.default, attrs.Factory)  # type: ignore[arg-type]  # a class at run time
        found.append(
            Parameter(
                name=field.alias or field.name,
                hint=hints[field.name],
                optional=not absent,
                default=MISSING if computed else field.default,
            )
        )
    return found


def _dataclass_parameters(cls: type, hints: dict[str, object]) -> list[Parameter]:
    found: list[Parameter] = []
    for field in dataclasses.fields(cls):
        if field.init:
            plain = field.default is not dataclasses.MISSING
            made = field.default_factory is not dataclasses.MISSING
            default = field.default if plain else MISSING
            found.append(Parameter(name=field.name, hint=hints[field.name], optional=plain or made, default=default))
    return found


def _typed_dict_parameters(cls: type, hints: dict[str, object]) -> list[Parameter]:
    keys: frozenset[str] = getattr(cls, "__required_keys__", frozenset())
    found: list[Parameter] = []
    for name, hint in hints.items():
        # With string annotations the class itself does not see these two wrappers; the resolved hints do.
        mark = getattr(typing.get_origin(hint), "_name", None)
        required = mark == "Required" or (mark != "NotRequired" and name in keys)
        found.append(Parameter(name=name, hint=hint, optional=not required))
    return found


def _class_doc(cls: type) -> str | None:
    doc = cls.__dict__.get("__doc__")
    generated = isinstance(doc, str) and doc.startswith(f"{cls.__name__}(")  # what dataclasses write
    return doc if isinstance(doc, str) and not generated else None


def _name(hint: object) -> str:
    return hint.__qualname__ if isinstance(hint, type) and typing.get_origin(hint) is None else str(hint)


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError(text)
    return Path(text)


_SIMPLE: Final[Mapping[object, Shape]] = {
    str: TextShape(),
    int: IntegerShape(),
    float: NumberShape(),
    bool: BooleanShape(),
    None: NullShape(),
    type(None): NullShape(),
    Any: AnyShape(),
    object: AnyShape(),
    datetime.datetime: ParsedTextShape(
        datetime.datetime.fromisoformat, "a date and time such as 2024-05-31T12:00:00Z", "date-time"
    ),
    datetime.date: ParsedTextShape(datetime.date.fromisoformat, "a date such as 2024-05-31", "date"),
    datetime.time: ParsedTextShape(datetime.time.fromisoformat, "a time such as 12:30:00", "time"),
    UUID: ParsedTextShape(UUID, "a UUID", "uuid"),
    Path: ParsedTextShape(_path, "a path"),
}

_LISTS: Final[Mapping[object, Callable[[list[object]], object]]] = {
    list: list,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    set: set,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    frozenset: frozenset,
}

_MAPS: Final = frozenset({dict, collections.abc.Mapping, collections.abc.MutableMapping})
