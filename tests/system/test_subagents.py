"""Agents below an agent, whole sessions in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
import trio
import trio.testing
from tests.support.agents import Probe, stage

from atrio.actors.subagents.definitions import SubagentDefinition
from atrio.actors.testing import Fault, ScriptedModel, Turn, text, tool
from atrio.runtime.events import SubagentEnded, SubagentProgress, SubagentStarted
from atrio.runtime.ledger import Ledger
from atrio.runtime.lines import EventLines
from atrio.runtime.messages import JsonObject, Usage, UserMessage, text_of
from atrio.runtime.prices import Catalogue
from atrio.runtime.resume import resume_file
from atrio.tools.permissions import PermissionMode

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


@pytest.mark.slow
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


def lines_of(journal: Path) -> list[JsonObject]:
    return [orjson.loads(line) for line in journal.read_bytes().splitlines()]


def usage_in(journal: Path) -> Usage:
    """What the lines of one journal add up to."""
    lines = lines_of(journal)
    found = [line["message"]["usage"] for line in lines if line["type"] == "assistant" and "usage" in line["message"]]
    return sum((Usage().updated(usage) for usage in found), Usage())


def recorded_usage(journal: Path) -> Usage:
    """The same for a whole tree."""
    folder = journal.with_suffix("") / "subagents"
    return sum(map(usage_in, folder.glob("*.jsonl")), usage_in(journal))


# --- stopping -------------------------------------------------------------------------------------


def family(depth: int) -> Script:
    """Each agent starts one beside itself and one in the foreground, down to the last level; all work for long."""

    def below(level: int) -> tuple[Any, ...]:
        if level > depth:
            return (tool("Probe", {"name": "work"}),)
        return (agent(f"level{level} task", run_in_background=True), agent(f"level{level} task"))

    script: Script = {"go": in_turn(Turn(*below(1)), Turn(text("End."), delay=2.0))}
    for level in range(1, depth + 1):
        script[f"level{level}"] = in_turn(
            Turn(*below(level + 1), delay=1.0), Turn(tool("Probe", {"name": "more"}), delay=1.5), Turn(text("Done."))
        )
    return script


async def slow(name: str, ctx: Any) -> str:
    await trio.sleep(0.7)
    return "done"


@pytest.mark.slow
@pytest.mark.parametrize("at", [0.0, 0.5, 1.0, 1.2, 1.7, 2.0, 2.4, 3.0, 3.7, 4.1, 5.2, 6.0, 7.5])
@pytest.mark.parametrize("way", ["interrupt", "leave"])
async def test_after_a_stop_no_model_call_begins_anywhere_in_the_tree(
    at: float, way: str, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    model = model_of(family(3))
    probe = Probe(behave=slow, interrupt="block")
    async with stage(tmp_path, model, probe, subagents=(KIND,)) as on:
        async with on.session.submit("go") as run:
            await trio.sleep(at)
            stopped = trio.current_time()
            if way == "interrupt":
                run.interrupt()
                async for event in run:
                    on.take(event)
        async for event in run:
            on.take(event)
        await trio.sleep(1_000)
        on.check()
    assert [] == [request.at for request in model.requests if request.at > stopped]
    assert sorted(e.agent_id for e in on.of(SubagentStarted)) == sorted(e.agent_id for e in on.of(SubagentEnded))


async def test_agent_stop_reaches_grandchildren(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    def main(body: JsonObject) -> Turn:
        match answers(body):
            case 0:
                return Turn(agent("child task", run_in_background=True))
            case 1:
                return Turn(tool("Probe", {"name": "wait"}))
            case 2:
                id = everything(body).split("The agent ")[1].split(" ")[0]
                return Turn(tool("AgentStop", {"agent_id": id}))
            case _:
                return Turn(text("Done."))

    hang = in_turn(Turn(tool("Probe", {"name": "hang"})))
    model = model_of({"go": main, "child": in_turn(Turn(agent("grandchild task"))), "grandchild": hang})

    async def behave(name: str, ctx: Any) -> str:
        await trio.sleep(30 if name == "wait" else 1e9)
        return "done"

    async with stage(tmp_path, model, Probe(behave=behave), subagents=(KIND,)) as on:
        result = await on.run()
    assert "Done." == result.text
    assert ["stopped", "stopped"] == [event.status for event in on.of(SubagentEnded)]
    assert trio.current_time() < 100
    assert not any("<task-notification>" in prompt for prompt in on.prompts())


@pytest.mark.parametrize(("policy", "texts"), [("kill", ["Bye."]), ("tell", ["Bye.", "Bye again."])])
async def test_a_run_does_not_end_over_work_in_the_background(
    policy: Any, texts: list[str], tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    model = model_of(
        {
            "go": in_turn(
                Turn(agent("slow task", run_in_background=True)), Turn(text("Bye.")), Turn(text("Bye again."))
            ),
            "slow": in_turn(Turn(text("Late."), delay=50.0)),
        }
    )
    async with stage(tmp_path, model, subagents=(KIND,), background_policy=policy) as on:
        result = await on.run()
    assert (texts[-1], "success") == (result.text, result.subtype)
    assert ["stopped"] == [event.status for event in on.of(SubagentEnded)]
    assert (policy == "tell") == any("still at work" in prompt for prompt in on.prompts())


@pytest.mark.parametrize("seconds", [None, 20.0])
async def test_a_run_that_is_stopped_while_it_waits_for_its_background_is_no_success(
    seconds: float | None, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    model = model_of(
        {
            "go": in_turn(Turn(agent("slow task", run_in_background=True)), Turn(text("Bye."))),
            "slow": in_turn(Turn(text("Late."), delay=500.0)),
        }
    )
    async with stage(tmp_path, model, subagents=(KIND,), max_seconds=seconds) as on:
        async with on.session.submit("go") as run, trio.open_nursery() as nursery:

            async def interrupt() -> None:
                await trio.sleep(20)
                run.interrupt()

            if seconds is None:
                nursery.start_soon(interrupt)
            async for event in run:
                on.take(event)
        on.check()
    expected = "aborted_streaming" if seconds is None else "budget_exhausted"
    assert (expected, "error_during_execution") == (run.result.terminal_reason.value, run.result.subtype)
    assert ["stopped"] == [event.status for event in on.of(SubagentEnded)]
    assert trio.current_time() < 60


async def test_an_agent_that_cannot_be_opened_has_failed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    model = model_of({"go": in_turn(Turn(agent("look here")), Turn(text("So be it.")))})
    async with stage(tmp_path, model, subagents=(KIND,)) as on:
        folder = on.session.journal.with_suffix("")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "subagents").write_text("in the way")
        result = await on.run()
    assert "So be it." == result.text
    [ended] = on.of(SubagentEnded)
    assert "failed" == ended.status
    assert "journal" in ended.error
    [(_, answer, is_error)] = on.results()
    assert is_error
    assert "The agent failed" in answer


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_21st_at_once_is_refused(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    calls = [agent(f"slow {n}", run_in_background=True) for n in range(21)]
    model = model_of({"go": in_turn(Turn(*calls), Turn(text("End."))), "slow": in_turn(Turn(text("ok"), delay=9.0))})
    async with stage(tmp_path, model, subagents=(KIND,)) as on:
        await on.run()
    assert 20 == len(on.of(SubagentStarted))
    [refused] = [answer for _, answer, is_error in on.results() if is_error]
    assert "20 agents are at work, which is the limit" in refused


async def test_the_third_level_has_no_agent_tool(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    chain = {f"level{n}": in_turn(Turn(agent(f"level{n + 1} task")), Turn(text("Up."))) for n in (1, 2)}
    model = model_of(
        {
            "go": in_turn(Turn(agent("level1 task")), Turn(text("End."))),
            **chain,
            "level3": in_turn(Turn(text("Bottom."))),
        }
    )
    async with stage(tmp_path, model, subagents=(KIND,)) as on:
        await on.run()
    tools = {said(r.body).split()[0]: [each["name"] for each in r.body.get("tools", [])] for r in model.requests}
    assert ["go", "level1", "level2"] == [name for name, names in tools.items() if "Agent" in names]
    assert [1, 2, 3] == [event.depth for event in on.of(SubagentStarted)]


async def test_a_budget_counts_the_whole_tree(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    costly = in_turn(*(Turn(tool("Probe", {"name": "x"}), usage=Usage(output_tokens=100_000)) for _ in range(9)))
    model = model_of({"go": in_turn(Turn(agent("costly task")), Turn(text("End."))), "costly": costly})
    model.model = "claude-sonnet-4-5"
    async with stage(tmp_path, model, Probe(), subagents=(KIND,), model="claude-sonnet-4-5", max_budget_usd=3.5) as on:
        result = await on.run()
    [ended] = on.of(SubagentEnded)
    assert "budget" in ended.error
    assert "error_max_budget_usd" == result.subtype
    assert result.cost_usd is not None
    assert 3.5 <= result.cost_usd < 5.5


# --- what they are ----------------------------------------------------------------------------------


async def test_a_fork_begins_with_the_conversation(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    def main(body: JsonObject) -> Turn:
        if "fork task" in words(body["messages"][-1]):
            return Turn(text("As a fork."))
        match answers(body):
            case 0:
                return Turn(tool("Probe", {"name": "a"}))
            case 1:
                return Turn(tool("Agent", {"description": "forks", "prompt": "fork task", "fork": True}))
            case _:
                return Turn(text("End."))

    model = ScriptedModel(by=main)
    async with stage(tmp_path, model, Probe(), subagents=(KIND,)) as on:
        await on.run()
        [started] = on.of(SubagentStarted)
        journal = Path(started.journal)
    [forked] = [r for r in model.requests if "fork task" in words(r.messages[-1])]
    main_request = model.requests[1]
    assert main_request.body["system"] == forked.body["system"]
    assert main_request.body["tools"] == forked.body["tools"]
    assert words(main_request.messages[0]) == words(forked.messages[0])
    assert "As a fork." in on.results()[1][1]
    assert usage_in(journal) == on.of(SubagentEnded)[0].usage


async def test_a_child_has_a_journal_of_its_own(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    big = "x" * 20_000
    model = model_of(
        {
            "go": in_turn(Turn(agent("look around")), Turn(text("Done."))),
            "look": in_turn(Turn(tool("Probe", {"name": "a"})), Turn(text(big), usage=Usage(output_tokens=7))),
        }
    )
    async with stage(tmp_path, model, Probe(), subagents=(KIND,)) as on:
        await on.run()
        session = on.session
        [started] = on.of(SubagentStarted)
    lines = lines_of(Path(started.journal))
    assert Path(started.journal).parent == session.journal.with_suffix("") / "subagents"
    assert {(True, started.agent_id, session.id)} == {
        (line["isSidechain"], line["agentId"], line["sessionId"]) for line in lines
    }
    assert {False} == {line["isSidechain"] for line in lines_of(session.journal)}


async def test_progress_names_the_call_that_it_is_of(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    model = model_of(
        {
            "go": in_turn(Turn(agent("look around")), Turn(text("Done."))),
            "look": in_turn(Turn(text("First."), tool("Probe", {"name": "a"})), Turn(text("Found."))),
        }
    )
    async with stage(tmp_path, model, Probe(), subagents=(KIND,)) as on:
        await on.run()
    [started] = on.of(SubagentStarted)
    assert {started.call_id} == {event.call_id for event in on.of(SubagentProgress)}
    lines = EventLines(session_id="s", run_id="r", version="1", api_key_source="none")
    shown = [line for event in on.events for line in lines.line_of(event) if line.get("parent_tool_use_id")]
    assert [("assistant", "tool_use"), ("user", "tool_result")] == [
        (line["type"], line["message"]["content"][0]["type"]) for line in shown
    ]
    spoken = attrs.evolve(lines, subagent_text=True)
    assert 4 == len([1 for event in on.events for line in spoken.line_of(event) if line.get("parent_tool_use_id")])
    subtypes = [line.get("subtype") for event in on.events for line in lines.line_of(event)]
    assert 1 == subtypes.count("task_started") == subtypes.count("task_notification")


async def test_rights_are_at_most_the_parents(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    kind = SubagentDefinition(
        name="worker", description="works", permission_mode=PermissionMode.BYPASS, disallowed_tools=("Other",)
    )
    model = model_of(
        {
            "go": in_turn(Turn(agent("look around")), Turn(text("Done."))),
            "look": in_turn(Turn(tool("Probe", {"name": "a"})), Turn(text("End."))),
        }
    )
    tools = (Probe(permission="ask"), Probe("Other"))
    async with stage(tmp_path, model, *tools, subagents=(kind,)) as on:
        result = await on.run()
    assert ["Probe"] == [denial.tool_name for denial in result.permission_denials]
    assert [] == tools[0].log
    asked = next(r for r in model.requests if said(r.body).startswith("look"))
    assert "Other" not in [each["name"] for each in asked.body["tools"]]


async def test_what_children_used_counts_after_a_resume(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    model = model_of(
        {"go": in_turn(Turn(agent("look around")), Turn(text("Done."))), "look": in_turn(Turn(text("Found.")))}
    )
    async with stage(tmp_path, model, subagents=(KIND,)) as on:
        result = await on.run()
        journal = on.session.journal
    resumed, _span = resume_file(journal)
    ledger = Ledger(Catalogue.load())
    for message_id, (name, usage) in resumed.usage.items():
        ledger.record(message_id, name, usage)
    before = Ledger(ledger.catalogue)
    for totals in resumed.usage_below:
        before.carry(totals)
    total = sum((entry.usage for entry in result.model_usage.values()), Usage())
    assert total == ledger.usage + before.usage
