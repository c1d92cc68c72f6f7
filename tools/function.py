"""
Tools made of functions: `tool` turns a function's name, docstring, parameters and hints into a `FunctionTool`.

    @tool(concurrency_safe=True)
    async def population(city: str) -> str:
        \"""Look up a city's population.  Args: city: name in English\"""
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Generic, Literal, NoReturn, ParamSpec, TypeVar, cast, get_args, get_origin, overload

import attrs
import cattrs
import orjson
import trio

from atrio.runtime.errors import ConfigError
from atrio.runtime.messages import JsonObject
from atrio.runtime.tool import Tool, ToolContext, ToolOutput

from .registry import require_name
from .schema import HintCompiler, Parameter, object_schema, object_shape, read
from .shapes import MISSING

__all__ = ["FunctionTool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")


@attrs.frozen(kw_only=True)
class _Options:
    """The arguments of `tool`, which explains them."""

    name: str | None = None
    description: str | None = None
    aliases: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    concurrency_safe: bool | Callable[[Mapping[str, Any]], bool] = False
    read_only: bool = False
    interrupt: Literal["cancel", "block"] = "cancel"
    grace: float = 5.0
    idempotent: bool = False
    permission: Literal["allow", "read", "edit", "ask"] = "allow"
    max_result_chars: int | None = Tool.DEFAULT_MAX_RESULT_CHARS
    strict: bool = False
    in_thread: bool = True


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    aliases: Sequence[str] = (),
    concurrency_safe: bool | Callable[[Mapping[str, Any]], bool] = False,
    read_only: bool = False,
    interrupt: Literal["cancel", "block"] = "cancel",
    grace: float = 5.0,
    idempotent: bool = False,
    permission: Literal["allow", "read", "edit", "ask"] = "allow",
    max_result_chars: int | None = Tool.DEFAULT_MAX_RESULT_CHARS,
    strict: bool = False,
    in_thread: bool = True,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, /, **options: Any
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """
    Make a tool of a function; bare or with arguments. It can still be called like the function.

    What the function returns becomes the result: text as it is, None as empty text, a `ToolOutput` as it is, anything
    else as JSON. A parameter annotated with `ToolContext` gets the call's context and is no part of the schema.

    Args:
        name: how the model calls it (default: the function's name); ``aliases`` are further names it is found by.
        description: what the model is told (default: the docstring without its Args, which describe the parameters).
        concurrency_safe: whether it may run beside other calls; or a function that tells it of the arguments.
        read_only, interrupt, grace (seconds), idempotent, permission, max_result_chars: see `Tool`.
        strict: ask the API to hold the model to the schema.
        in_thread: a function without ``async`` runs in a worker thread, where it may block. On an abort a read_only
            one is left behind; for any other one the abort waits, unless it asks ``trio.from_thread.check_cancelled``.
            With False it runs in the event loop and has to be quick.

    Raises `ConfigError`, naming function and parameter, for a signature that can't be described to a model.
    """
    frame = sys._getframe(1)
    names = {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)  # local classes in hints
    chosen = _Options(**options)
    if function is not None:
        return FunctionTool(function, chosen, names)
    return lambda function: FunctionTool(function, chosen, names)


class FunctionTool(Tool, Generic[P, R]):
    """A tool that is a function; see `tool`."""

    def __init__(self, function: Callable[P, R], options: _Options, names: Mapping[str, object]) -> None:
        where = getattr(function, "__qualname__", None) or repr(function)
        accepted = inspect.isfunction(function) or inspect.ismethod(function)
        if not accepted:
            raise ConfigError(where, "this is no function or bound method", "wrap it in a function")
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise ConfigError(where, "it yields", "return the result; report meanwhile by ctx.progress")
        self.name = require_name(options.name or function.__name__, where)
        self.aliases = tuple(require_name(alias, where) for alias in options.aliases)
        self.interrupt = options.interrupt
        self.grace = options.grace
        self.read_only = options.read_only
        self.idempotent = options.idempotent
        self.permission = options.permission
        self.max_result_chars = options.max_result_chars
        compiler = HintCompiler(where=where, names=names)
        parameters, self._ctx_name = _parameters(function, compiler)
        self._shape = object_shape(compiler, self.name, parameters, dict, doc=function.__doc__)
        self.input_schema = object_schema(self._shape)
        self.description = options.description or self._shape.description or ""
        self._function = function
        self._options = options
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<FunctionTool {self.name}>"

    def definition(self) -> JsonObject:
        """The tool as the API takes it."""
        return {**super().definition(), **({"strict": True} if self._options.strict else {})}

    def parse(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The function's arguments. Raises `InvalidToolInput`."""
        return cast(dict[str, Any], read(self._shape, raw, tool=self.name))

    def concurrency_safe(self, input: Mapping[str, Any]) -> bool:
        safe = self._options.concurrency_safe
        return safe if isinstance(safe, bool) else safe(input)

    async def run(self, input: Mapping[str, Any], ctx: ToolContext) -> ToolOutput:
        """Call the function. When cancelled: what it makes of that if it is async; else see ``in_thread`` of `tool`."""
        arguments = dict(input)
        if self._ctx_name is not None:
            arguments[self._ctx_name] = ctx
        call: Callable[[], object] = functools.partial(self._function, **arguments)
        if inspect.iscoroutinefunction(self._function) or not self._options.in_thread:
            result = call()
        else:
            (result,) = await trio.to_thread.run_sync(
                lambda: (call(),),  # wrapped, as trio refuses a coroutine here
                abandon_on_cancel=self.read_only,
                # Of its own: the executor bounds how many calls run, and a thread left behind must cost nobody else.
                limiter=trio.CapacityLimiter(1),
            )
        if inspect.isawaitable(result):  # also of a plain function around an async one
            result = await result
        return _output(result)


def _parameters(function: Callable[..., object], compiler: HintCompiler) -> tuple[list[Parameter], str | None]:
    """The parameters for the model, and the name of the one that takes the context."""
    hints = compiler.hints_of(function)
    found: list[Parameter] = []
    ctx_name: str | None = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            _refuse(compiler, name, "a variable number of arguments can't be described", "take a list or dict")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            _refuse(compiler, name, "it is positional only, but arguments are given by name", "take out the /")
        if name not in hints:
            remedy = "decorate the bound method, not the method in the class" if name == "self" else "annotate it"
            _refuse(compiler, name, "the parameter has no type", remedy)
        if _is_context(hints[name]):
            if ctx_name is not None:
                _refuse(compiler, name, f"the context is taken by {ctx_name} already", "take it once")
            ctx_name = name
            continue
        default = parameter.default
        optional = default is not parameter.empty
        shown = default if optional else MISSING
        found.append(Parameter(name=name, hint=hints[name], optional=optional, default=shown))
    return found, ctx_name


def _refuse(compiler: HintCompiler, name: str, problem: str, remedy: str) -> NoReturn:
    raise ConfigError(f"{compiler.where}, {name}", problem, remedy)


def _is_context(hint: object) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint is ToolContext or (ToolContext in get_args(hint) and set(get_args(hint)) <= {ToolContext, type(None)})


def _output(result: object) -> ToolOutput:
    match result:
        case ToolOutput():
            return result
        case None:
            return ToolOutput("")
        case str():
            return ToolOutput(str(result))
    try:
        encoded = orjson.dumps(result, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # no JSON, or a number or text that orjson doesn't take
        return ToolOutput(str(result))
    return ToolOutput(encoded.decode(), details=orjson.loads(encoded))


def _plain(value: object) -> object:
    """What stands for ``value`` in JSON, for types that orjson doesn't know. Raises TypeError."""
    if attrs.has(type(value)):
        return cattrs.unstructure(value)
    match value:
        case set() | frozenset():
            return list(value)
        case Mapping():
            return dict(value)
        case PurePath():
            return str(value)
        case bytes():
            return value.decode("utf-8", "replace")
    raise TypeError(type(value).__name__)
