"""When the cache's reads drop, what changed in the request is named."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from atrio.actors.context.cache_break import CacheBreak, CacheWatch, changes_between, digest_of, is_break
from atrio.runtime.messages import JsonObject, Usage
from atrio.runtime.model import ModelRequest


def message(text: str, role: str = "user") -> JsonObject:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def tool(name: str, **schema: object) -> JsonObject:
    return {"name": name, "description": "d", "input_schema": {"type": "object", **schema}}


BASE = ModelRequest(
    model="m",
    messages=(message("a"), message("b", "assistant")),
    system=("static", "dynamic"),
    tools=(tool("A"), tool("B", x=1, y=2)),
)


def usage(read: int, reported: bool = True) -> Usage:
    return Usage(cache_read_input_tokens=read, reported=reported)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"messages": (*BASE.messages, message("c"))}, []),
        ({"max_tokens": 5}, []),
        ({"extra": {"output_config": {"task_budget": {"remaining": 5}}}}, []),
        ({"model": "n"}, ["the model is n, it was m"]),
        ({"system": ("static", "other")}, ["the system prompt changed in part 2"]),
        ({"system": ("static",)}, ["the system prompt changed in part 2"]),
        ({"betas": ("x",)}, ["the beta features are x, they were none"]),
        ({"thinking": {"type": "enabled"}}, ["thinking or other settings of the request changed"]),
        (
            {"extra": {"output_config": {"effort": "low"}}},
            ["thinking or other settings of the request changed"],
        ),
        ({"tools": (*BASE.tools, tool("C"))}, ["tools were added: C"]),
        ({"tools": (BASE.tools[1],)}, ["tools are gone: A"]),
        ({"tools": (tool("A", z=1), BASE.tools[1])}, ["tools are described differently: A"]),
        ({"tools": (BASE.tools[0], tool("B", y=2, x=1))}, ["tools are described differently: B"]),
        ({"tools": BASE.tools[::-1]}, ["the tools stand in another order"]),
        (
            {"tools": tuple(tool(str(n)) for n in range(7))},
            ["tools were added: 0, 1, 2, 3, 4 and 2 more", "tools are gone: A, B"],
        ),
        ({"messages": (message("a"), message("x", "assistant"))}, ["the history changed in message 2 of 2"]),
        ({"messages": (message("a"),)}, ["the history changed in message 2 of 2"]),
        ({"model": "n", "system": ()}, ["the model is n, it was m", "the system prompt changed in part 1"]),
    ],
)
def test_each_change_is_named(changes: dict[str, Any], expected: list[str]) -> None:
    now = attrs.evolve(BASE, **changes)
    settings = attrs.evolve(BASE, extra={"output_config": {}}) if "extra" in changes else BASE
    assert tuple(expected) == changes_between(digest_of(settings), digest_of(now))


@pytest.mark.parametrize(
    ("before", "now", "broken"),
    [
        (usage(100_000), usage(0), True),
        (usage(100_000), usage(95_000), False),
        (usage(100_000), usage(94_999), True),
        (usage(2_000), usage(0), False),
        (usage(2_001), usage(0), True),
        (usage(50_000), usage(60_000), False),
        (usage(100_000), usage(0, reported=False), False),
        (usage(100_000, reported=False), usage(0), False),
    ],
)
def test_a_break_is_a_drop_of_over_5_percent_and_2000_tokens(before: Usage, now: Usage, broken: bool) -> None:
    assert broken == is_break(before, now)


def test_the_watch_compares_each_request_with_the_one_before() -> None:
    watch = CacheWatch()
    assert watch.observe(BASE, usage(10_000), 0) is None
    assert watch.observe(BASE, usage(10_000), 1) is None
    changed = attrs.evolve(BASE, model="n")
    broken = watch.observe(changed, usage(0), 3)
    expected = CacheBreak(tokens_before=10_000, tokens_now=0, changes=("the model is n, it was m",), idle=2)
    assert expected == broken
    assert "10,000 fewer tokens came from the prompt cache (0): the model is n, it was m" == str(broken)
    assert watch.observe(changed, usage(10_000), 4) is None
    watch.expect_break()
    assert watch.observe(BASE, usage(0), 5) is None


def test_without_a_change_time_or_the_provider_is_to_blame() -> None:
    texts = []
    for idle in (10, 400):
        watch = CacheWatch()
        watch.observe(BASE, usage(10_000), 0)
        texts.append(str(watch.observe(BASE, usage(1_000), idle)))
    assert [
        "9,000 fewer tokens came from the prompt cache (1,000), though the request begins as the one before; "
        "the provider dropped it",
        "9,000 fewer tokens came from the prompt cache (1,000): nothing was asked for 400 s, and the cache has expired",
    ] == texts


def test_any_text_can_be_digested() -> None:
    odd = attrs.evolve(BASE, messages=(message("\ud83d"),), extra={"big": 2**70})
    assert digest_of(odd) == digest_of(odd)
    assert digest_of(odd) != digest_of(BASE)
