"""Agents below an agent, whole sessions in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import trio
import trio.testing
from tests.support.agents import Probe, stage

from atrio.actors.subagents.definitions import SubagentDefinition
from atrio.actors.testing import Fault, ScriptedModel, Turn, text, tool
from atrio.runtime.events import SubagentEnded, SubagentStarted
from atrio.runtime.messages import JsonObject, Usage, UserMessage, text_of

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


async def test_foreground_result_is_the_childs_last_words(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
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
    news = [
        m for m in on.session.messages if isinstance(m, UserMessage) and "<task-notification>" in text_of(m.content)
    ]
    assert [True] == [message.hidden for message in news]
    assert "I found it." in text_of(news[0].content)


async def test_a_tree_of_21_ends_with_one_terminal_event_each_and_a_ledger_that_adds_up(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Twenty at once: some in the background, some crash, one hangs."""

    async def behave(name: str, ctx: Any) -> str:
        if name == "hang":
            await trio.sleep_forever()
        raise RuntimeError("the tool broke")

    probe = Probe(behave=behave)
    calls = [agent(f"here{n} task", run_in_background=False) for n in range(6)]
    calls += [agent(f"beside{n} task", run_in_background=True) for n in range(9)]
    calls += [agent(f"crash{n} task", run_in_background=n % 2 == 0) for n in range(4)]
    calls += [agent("hang task", run_in_background=True)]
    script: Script = {"go": in_turn(Turn(*calls), Turn(text("The end.")))}
    for n in range(9):
        work = in_turn(Turn(tool("Probe", {"name": "work"})), Turn(text(f"Result {n}."), delay=float(n)))
        script |= {f"here{n}": work, f"beside{n}": work}
    script |= {f"crash{n}": in_turn(Turn(text("unreachable"))) for n in range(4)}
    script["hang"] = in_turn(Turn(text("I begin."), tool("Probe", {"name": "hang"})))
    model = ScriptedModel(
        by=lambda body: script[said(body).split()[0]](body),
        faults=lambda number, body: refused() if said(body).startswith("crash") else None,
    )
    async with stage(tmp_path, model, probe, subagents=(KIND,), options={"tool_concurrency": 20}) as on:
        result = await on.run()
        session = on.session
    assert "success" == result.subtype
    started, ended = on.of(SubagentStarted), on.of(SubagentEnded)
    assert 20 == len(started)
    assert sorted(e.agent_id for e in started) == sorted(e.agent_id for e in ended)
    outcomes = {e.description.split()[1]: e.status for e in ended}
    assert {f"here{n}" for n in range(6)} | {f"beside{n}" for n in range(9)} == {
        name for name, status in outcomes.items() if status == "completed"
    }
    assert {"failed"} == {status for name, status in outcomes.items() if name.startswith("crash")}
    assert "stopped" == outcomes["hang"]
    total = sum((entry.usage for entry in result.model_usage.values()), Usage())
    assert total == result.usage + sum((e.usage for e in ended), Usage())
    assert total == recorded_usage(session.journal)
    assert total == sum((e.usage for e in ended), Usage()) + usage_in(session.journal)


def refused() -> Fault:
    return Fault.status(400)


def usage_in(journal: Path) -> Usage:
    """What the lines of one journal add up to."""
    lines = [orjson.loads(line) for line in journal.read_bytes().splitlines()]
    found = [line["message"]["usage"] for line in lines if line["type"] == "assistant" and "usage" in line["message"]]
    return sum((Usage().updated(usage) for usage in found), Usage())


def recorded_usage(journal: Path) -> Usage:
    """The same for a whole tree."""
    folder = journal.with_suffix("") / "subagents"
    return sum(map(usage_in, folder.glob("*.jsonl")), usage_in(journal))
