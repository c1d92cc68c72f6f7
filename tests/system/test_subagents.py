"""Agents below an agent, whole sessions in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import trio
import trio.testing

from atrio.actors.subagents.definitions import SubagentDefinition
from atrio.actors.testing import ScriptedModel, Turn, text, tool
from atrio.runtime.events import SubagentEnded, SubagentProgress, SubagentStarted
from atrio.runtime.messages import JsonObject, Usage, UserMessage, text_of
from tests.support.agents import Probe, Stage, stage

KIND = SubagentDefinition(name="worker", description="works", prompt="You are a worker.")


def said(body: JsonObject) -> str:
    """The first thing that was said in this conversation: tells which agent asks."""
    return words(body["messages"][0])


def words(message: JsonObject) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def answers(body: JsonObject) -> int:
    """How many responses this conversation has so far."""
    return sum(1 for message in body["messages"] if message["role"] == "assistant")


def everything(body: JsonObject) -> str:
    return json.dumps(body["messages"])


def agent(prompt: str, **more: Any) -> Any:
    return tool("Agent", {"description": f"does {prompt}", "prompt": prompt, "subagent_type": "worker", **more})


Script = dict[str, Callable[[JsonObject], Turn]]


def model_of(script: Script) -> ScriptedModel:
    """Each conversation has its own script, by its first words."""
    return ScriptedModel(by=lambda body: script[said(body).split()[0]](body))


def in_turn(*turns: Turn) -> Callable[[JsonObject], Turn]:
    return lambda body: turns[min(answers(body), len(turns) - 1)]


async def test_foreground_result_is_the_childs_last_words(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    model = model_of(
        {"go": in_turn(Turn(agent("look")), Turn(text("Done."))), "look": in_turn(Turn(text("I found it.")))}
    )
    async with stage(tmp_path, model, subagents=(KIND,)) as on:
        result = await on.run()
    assert result.text == "Done."
    [(_, answer, is_error)] = on.results()
    assert answer.startswith("I found it.\n\nagentId: ")
    assert not is_error
    [ended] = on.of(SubagentEnded)
    assert ("completed", "I found it.") == (ended.status, ended.text)


async def test_background_result_joins_a_later_turn(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    model = model_of(
        {
            "go": in_turn(Turn(agent("look", run_in_background=True)), Turn(text("Waiting.")), Turn(text("Done."))),
            "look": in_turn(Turn(text("I found it."), delay=30.0)),
        }
    )
    async with stage(tmp_path, model, subagents=(KIND,)) as on:
        result = await on.run()
    assert result.text == "Done."
    news = [m for m in on.session.messages if isinstance(m, UserMessage) and "<task-notification>" in text_of(m.content)]
    assert [True] == [m.hidden for m in news]
    assert "I found it." in text_of(news[0].content)
