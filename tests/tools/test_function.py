"""A function becomes a tool: its schema, its calls, its results, and what is refused."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import pytest
import trio
import trio.testing

from atrio.runtime.errors import ConfigError, InvalidToolInput, ToolError
from atrio.runtime.messages import TextBlock
from atrio.runtime.tool import Tool, ToolContext, ToolOutput, Workspace
from atrio.tools.function import FunctionTool, tool
from atrio.tools.schema import Field


@attrs.frozen
class City:
    name: str
    people: int
    twins: frozenset[str] = frozenset()


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    return ToolContext(
        session_id="s",
        run_id="r",
        call_id="c",
        workspace=Workspace(cwd=tmp_path),
        results_dir=tmp_path / "results",
        progress=lambda text, data=None: None,
    )


async def result(made: Tool, ctx: ToolContext, **raw: object) -> ToolOutput:
    return await made.run(made.parse(raw), ctx)


@tool
async def population(city: str, year: int = 2024) -> str:
    """
    Look up a city's population.

    Args:
        city: name in English
        year: four digits
    """
    await trio.lowlevel.checkpoint()
    return f"{city} in {year}: 1"


def test_name_description_and_schema_come_from_the_function() -> None:
    assert {
        "name": "population",
        "description": "Look up a city's population.",
        "input_schema": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "name in English"},
                "year": {"type": "integer", "description": "four digits", "default": 2024},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    } == population.definition()


async def test_a_tool_can_still_be_called_like_the_function() -> None:
    assert "Oslo in 1999: 1" == await population("Oslo", year=1999)
    assert "population" == population.__name__  # type: ignore[attr-defined]  # from functools.update_wrapper


async def test_a_call_is_parsed_and_run(ctx: ToolContext) -> None:
    assert ToolOutput("Oslo in 2024: 1") == await result(population, ctx, city="Oslo")
    assert ToolOutput("Oslo in 7: 1") == await result(population, ctx, city="Oslo", year="7")


def test_every_problem_of_an_input_is_named() -> None:
    with pytest.raises(InvalidToolInput) as caught:
        population.parse({"year": "x", "town": 1})
    assert 3 == len(caught.value.problems)


def test_defaults_of_a_function_tool() -> None:
    assert "allow" == population.permission
    assert ("cancel", 5.0, 50_000) == (population.interrupt, population.grace, population.max_result_chars)
    given = (population.read_only, population.idempotent, population.concurrency_safe({"city": "x"}))
    assert (False, False, False) == given


def test_options_are_taken_over() -> None:
    @tool(
        name="look-up",
        description="Looks.",
        aliases=["find"],
        concurrency_safe=True,
        read_only=True,
        interrupt="block",
        grace=2,
        idempotent=True,
        permission="ask",
        max_result_chars=None,
        strict=True,
    )
    def look(what: str) -> None:
        """Not shown. Args: what: the thing"""

    assert ("look-up", "Looks.", ("find",)) == (look.name, look.description, look.aliases)
    assert look.concurrency_safe({})
    assert (True, "block", 2, True) == (look.read_only, look.interrupt, look.grace, look.idempotent)
    assert ("ask", None) == (look.permission, look.max_result_chars)
    assert look.definition()["strict"] is True
    assert "the thing" == look.input_schema["properties"]["what"]["description"]


def test_concurrency_can_depend_on_the_arguments() -> None:
    def only_reads(arguments: Mapping[str, Any]) -> bool:
        return bool(arguments["mode"] == "read")

    @tool(concurrency_safe=only_reads)
    def use(mode: Literal["read", "write"]) -> None: ...

    assert use.concurrency_safe(use.parse({"mode": "read"}))
    assert not use.concurrency_safe(use.parse({"mode": "write"}))


async def test_the_context_is_given_but_not_advertised(ctx: ToolContext) -> None:
    @tool
    def where(name: str, context: ToolContext) -> str:
        return str(context.cwd / name)

    assert ["name"] == list(where.input_schema["properties"])
    assert ToolOutput(str(ctx.cwd / "x")) == await result(where, ctx, name="x")


async def test_an_optional_or_annotated_context_is_one_too(ctx: ToolContext) -> None:
    @tool
    def optional(context: ToolContext | None = None) -> str:
        return "" if context is None else context.call_id

    @tool
    def annotated(context: Annotated[ToolContext, "the call"]) -> str:
        return context.call_id

    assert ToolOutput("c") == await result(optional, ctx)
    assert ToolOutput("c") == await result(annotated, ctx)
    assert {} == optional.input_schema["properties"]


async def test_a_plain_function_runs_in_a_thread(ctx: ToolContext) -> None:
    @tool
    def thread() -> bool:
        return threading.current_thread() is threading.main_thread()

    @tool(in_thread=False)
    def loop() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert "false" == (await result(thread, ctx)).content
    assert "true" == (await result(loop, ctx)).content


async def test_an_abort_waits_for_a_thread_that_changes_things(ctx: ToolContext) -> None:
    entered, done = threading.Event(), threading.Event()

    @tool
    def change() -> None:
        entered.set()
        try:
            while True:
                trio.from_thread.check_cancelled()
        finally:
            done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(result, change, ctx)
        await trio.to_thread.run_sync(entered.wait)
        nursery.cancel_scope.cancel()
    assert done.is_set()


async def test_an_abort_leaves_a_reading_thread_behind(ctx: ToolContext) -> None:
    entered, go_on = threading.Event(), threading.Event()

    @tool(read_only=True)
    def look() -> None:
        entered.set()
        go_on.wait(10)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(result, look, ctx)
            await trio.to_thread.run_sync(entered.wait)
            nursery.cancel_scope.cancel()
    go_on.set()


async def test_a_plain_function_around_an_async_one_is_awaited(ctx: ToolContext) -> None:
    def passing(function: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> Awaitable[str]:
            return function(*args, **kwargs)

        return call

    @tool
    @passing
    async def double(word: str) -> str:
        await trio.lowlevel.checkpoint()
        return word * 2

    assert ToolOutput("xx") == await result(double, ctx, word="x")


async def test_a_bound_method_is_a_tool(ctx: ToolContext) -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self, number: int) -> int:
            """Adds."""
            self.count += number
            return self.count

    add = tool(Counter().add)
    assert ["number"] == list(add.input_schema["properties"])
    await result(add, ctx, number=1)
    assert ToolOutput("3", details=3) == await result(add, ctx, number=2)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", ToolOutput("text")),
        (None, ToolOutput("")),
        (ToolOutput("bad", is_error=True), ToolOutput("bad", is_error=True)),
        (ToolOutput((TextBlock("x"),)), ToolOutput((TextBlock("x"),))),
        ({"a": [1, None]}, ToolOutput('{"a":[1,null]}', details={"a": [1, None]})),
        ([], ToolOutput("[]", details=[])),
        ({1: Path("x")}, ToolOutput('{"1":"x"}', details={"1": "x"})),
        (b"\xff", ToolOutput('"\ufffd"', details="\ufffd")),
        (
            [City("Oslo", 7, frozenset({"x"}))],
            ToolOutput(
                '[{"name":"Oslo","people":7,"twins":["x"]}]', details=[{"name": "Oslo", "people": 7, "twins": ["x"]}]
            ),
        ),
        (2**70, ToolOutput(str(2**70))),
        (1j, ToolOutput("1j")),
    ],
)
async def test_results(ctx: ToolContext, value: object, expected: ToolOutput) -> None:
    @tool
    def give() -> object:
        return value

    assert expected == await result(give, ctx)


async def test_errors_pass_through(ctx: ToolContext) -> None:
    @tool
    def fail(kind: str) -> None:
        raise ToolError("try another city") if kind == "tool" else ZeroDivisionError

    with pytest.raises(ToolError, match="try another city"):
        await result(fail, ctx, kind="tool")
    with pytest.raises(ZeroDivisionError):
        await result(fail, ctx, kind="")


def test_local_classes_are_found() -> None:
    @attrs.frozen
    class Local:
        size: Annotated[int, Field(ge=1)]

    @tool
    def use(thing: Local) -> None: ...

    assert Local(2) == use.parse({"thing": {"size": 2}})["thing"]


def no_hint(city) -> None: ...  # type: ignore[no-untyped-def]  # the point


def many(*cities: str) -> None: ...


def named(**cities: str) -> None: ...


def by_place(city: str, /) -> None: ...


def odd(city: complex) -> None: ...


def twice(one: ToolContext, two: ToolContext) -> None: ...


class Holder:
    def method(self, city: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "parameter"),
    [
        (no_hint, "city"),
        (many, "cities"),
        (named, "cities"),
        (by_place, "city"),
        (odd, "city"),
        (twice, "two"),
        (Holder.method, "self"),
    ],
)
def test_a_bad_signature_is_refused_with_function_and_parameter(
    function: Callable[..., object], parameter: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        tool(function)
    assert f"{function.__qualname__}, {parameter}" == caught.value.thing
    assert caught.value.remedy


async def stream() -> AsyncIterator[str]:
    await trio.lowlevel.checkpoint()
    yield "x"


@pytest.mark.parametrize("thing", [stream, City, functools.partial(many), lambda: None])
def test_what_is_no_plain_function_with_a_name_is_refused(thing: Callable[..., object]) -> None:
    with pytest.raises(ConfigError):
        tool(thing)


def test_an_illegal_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="can't be a tool's name"):
        tool(name="a b")(population.__call__)


def test_the_type_is_public() -> None:
    assert isinstance(population, FunctionTool)
    assert "<FunctionTool population>" == repr(population)
