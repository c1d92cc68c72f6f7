"""Slash commands as prompts: what needs no model asks none, the others are ordinary runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.agents import Probe, config, stage

from atrio.actors import Agent, Session, open_session
from atrio.actors.testing import ScriptedModel, Turn, text, tool
from atrio.runtime.errors import PeerGone, SessionBusy
from atrio.runtime.events import ContextCompacted, Event, RunEnded, RunStarted
from atrio.runtime.history import check
from atrio.runtime.messages import SystemMessage
from atrio.runtime.replay import replay_file
from atrio.runtime.result import Result, TerminalReason

DONE = Turn(text("All done."))


async def one(session: Session, prompt: str) -> tuple[Result, list[Event]]:
    async with session.submit(prompt) as run:
        events = [event async for event in run]
    assert [] == check(session.messages)
    assert list(session.messages) == list(replay_file(session.journal).messages)
    assert (RunStarted, RunEnded) == (type(events[0]), type(events[-1]))
    return run.result, events


def write(folder: Path, name: str, body: str) -> None:
    path = folder / "commands" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body)


# --- built in -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "part"),
    [
        ("/help", "/compact [what matters in it]"),
        ("/cost", "scripted-1"),
        ("/context", "tokens"),
        ("/model", "The model is scripted-1."),
    ],
)
async def test_what_needs_no_model_asks_none(tmp_path: Path, prompt: str, part: str) -> None:
    model = ScriptedModel([DONE])
    async with stage(tmp_path, model) as on:
        await on.run("hello")
        result, events = await one(on.session, prompt)

        assert (True, TerminalReason.COMPLETED, 0) == (result.is_success, result.terminal_reason, result.num_turns)
        assert part in result.text
        assert 2 == len(events)
        assert 1 == len(model.requests)
        mark = on.session.messages[-1]
        assert isinstance(mark, SystemMessage)
        assert ("local_command", prompt) == (mark.subtype, mark.data["command"])


async def test_the_first_event_lists_the_commands(tmp_path: Path) -> None:
    async with stage(tmp_path, ScriptedModel([DONE])) as on:
        await on.run("hello")
        assert {"compact", "clear", "model", "cost", "context", "help"} == set(on.of(RunStarted)[0].slash_commands)


async def test_clear_forgets_the_conversation_also_for_a_resume(tmp_path: Path) -> None:
    model = ScriptedModel(by=lambda request: DONE)
    async with stage(tmp_path, model) as on:
        await on.run("my name is Ada")
        result, events = await one(on.session, "/clear")
        await on.run("what is my name?")

        assert result.is_success
        assert ["clear"] == [event.trigger for event in events if isinstance(event, ContextCompacted)]
        assert "Ada" not in str(model.requests[-1].body)
        assert 2 == on.session._parts.ledger.by_model["scripted-1"].requests
    async with open_session(
        Agent(model="scripted-1"),
        cwd=tmp_path,
        config=config(tmp_path / "home"),
        transport=model.transport(),
        resume=on.session.id,
    ) as again:
        assert "Ada" not in str(again.messages)
        assert 2 == again._parts.ledger.by_model["scripted-1"].requests


async def test_model_changes_what_answers_from_now_on(tmp_path: Path) -> None:
    model = ScriptedModel(by=lambda request: DONE)
    async with stage(tmp_path, model) as on:
        result, _ = await one(on.session, "/model claude-opus-4-1")
        await on.run("hello")

        assert "The model is now claude-opus-4-1." == result.text
        assert ["claude-opus-4-1"] == [request.body["model"] for request in model.requests]
        assert ["claude-opus-4-1"] == [event.model for event in on.of(RunStarted)]


async def test_compact_costs_a_request_that_is_in_its_result(tmp_path: Path) -> None:
    async def much(name: str, ctx: Any) -> str:
        return "lorem ipsum dolor sit amet " * 300

    def answer(request: Any) -> Turn:
        if "Request and intent" in str(request["messages"][-1]):
            return Turn(text("<summary>The files were read and the plan is clear.</summary>"))
        return next(turns, DONE)

    turns = iter([Turn(tool("Probe", {"name": f"n{number}"})) for number in range(6)])
    model = ScriptedModel(by=answer)
    async with stage(tmp_path, model, Probe(behave=much)) as on:
        await on.run("go")
        result, events = await one(on.session, "/compact the plan")

        assert result.is_success
        assert result.text.startswith("Compacted: about ")
        assert result.usage.output_tokens > 0
        assert ["manual"] == [event.trigger for event in events if isinstance(event, ContextCompacted)]
        assert "the plan" in str(model.requests[-1].body["messages"][-1])


async def test_a_command_that_fails_says_why_and_the_session_goes_on(tmp_path: Path) -> None:
    async with stage(tmp_path, ScriptedModel(by=lambda request: DONE)) as on:
        await on.run("hello")
        result, _ = await one(on.session, "/compact")
        assert ("error_during_execution", TerminalReason.TURN_SETUP_FAILED) == (result.subtype, result.terminal_reason)
        assert "no shorter" in result.errors[0]
        assert (await on.run("hello again")).is_success


async def test_a_command_takes_no_messages_and_keeps_others_out_while_it_runs(tmp_path: Path) -> None:
    async with stage(tmp_path, ScriptedModel([DONE])) as on, on.session.submit("/cost") as run:
        with pytest.raises(SessionBusy, match="has /cost in progress"):
            await on.session.compact()
        with pytest.raises(PeerGone):
            await run.steer("and more")
        await run.wait()


async def test_a_command_that_is_broken_off_has_its_end(tmp_path: Path) -> None:
    async with stage(tmp_path, ScriptedModel([DONE])) as on:
        async with on.session.submit("/cost") as run:
            run.interrupt()
        events = [event async for event in run]
        assert isinstance(events[-1], RunEnded)
        assert on.session.messages[-1] == replay_file(on.session.journal).messages[-1]


# --- unknown ones ---------------------------------------------------------------------------------


async def test_an_unknown_command_is_an_error_that_names_close_ones(tmp_path: Path) -> None:
    model = ScriptedModel([DONE])
    async with stage(tmp_path, model) as on:
        result, _ = await one(on.session, "/compct now")
        assert ("there is no command /compct; did you mean /compact?",) == result.errors
        assert not result.is_success
        assert [] == model.requests


@pytest.mark.parametrize("prompt", ["/tmp is full, why?", "/etc/hosts: what is it?", "look at /cost", "/ what?"])
async def test_paths_and_other_texts_go_to_the_model(tmp_path: Path, prompt: str) -> None:
    model = ScriptedModel([DONE])
    async with stage(tmp_path, model) as on:
        await on.run(prompt)
        assert prompt in str(model.requests[0].body["messages"])


# --- from files -----------------------------------------------------------------------------------


@pytest.fixture
async def project(tmp_path: Path) -> Path:
    write(
        tmp_path / ".claude",
        "git/commit.md",
        "---\ndescription: Write a commit\nargument-hint: [subject]\nallowed-tools: Probe, Bash(git add:*)\n"
        "model: claude-opus-4-1\n---\nCommit with the subject $1; look at @README.md.\n",
    )
    write(tmp_path / ".atrio", "plain.md", "Just do it.\n")
    write(tmp_path / ".claude", "plain.md", "Hidden.\n")
    write(tmp_path / ".atrio", "cost.md", "Hidden by the built-in one.\n")
    return tmp_path


async def test_a_file_is_a_command_with_its_own_model_and_permissions(project: Path) -> None:
    turns = iter([Turn(tool("Probe", {"name": "a"})), DONE, Turn(tool("Probe", {"name": "b"})), DONE])
    model = ScriptedModel(by=lambda request: next(turns))
    probe = Probe(permission="ask")
    async with stage(project, model, probe, session={"project": True}) as on:
        await on.run("/git:commit 'first one' ignored")
        assert "Commit with the subject first one; look at @README.md." == on.prompts()[-1]
        assert ["claude-opus-4-1"] * 2 == [request.body["model"] for request in model.requests]
        assert [False] == [is_error for _, _, is_error in on.results()]

        await on.run("once more")
        assert ["scripted-1"] * 2 == [request.body["model"] for request in model.requests[2:]]
        assert [True] == [is_error for _, _, is_error in on.results()]


async def test_the_nearer_name_wins_and_built_in_ones_always_do(project: Path) -> None:
    model = ScriptedModel(by=lambda request: DONE)
    async with stage(project, model, session={"project": True}) as on:
        await on.run("/plain")
        assert "Just do it." == on.prompts()[-1]
        result, _ = await one(on.session, "/cost")
        assert "scripted-1" in result.text
        listed, _ = await one(on.session, "/help")
        assert "/git:commit [subject]" in listed.text
        assert "Write a commit" in listed.text


async def test_a_skill_can_be_called_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / ".claude" / "skills" / "weave" / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: weave\ndescription: How to weave\n---\nTake $ARGUMENTS and weave.\n")
    async with stage(tmp_path, ScriptedModel([DONE]), session={"project": True}) as on:
        await on.run("/weave wool")
        assert "Take wool and weave." in on.prompts()[-1]


async def test_a_file_that_is_gone_by_now_is_an_error(project: Path) -> None:
    async with stage(project, ScriptedModel([DONE]), session={"project": True}) as on:
        await trio.Path(project / ".atrio" / "commands" / "plain.md").unlink()
        result, _ = await one(on.session, "/plain")
        assert "is gone" in result.errors[0]


async def test_without_a_project_there_are_no_files_of_commands(project: Path) -> None:
    async with stage(project, ScriptedModel([DONE])) as on:
        result, _ = await one(on.session, "/plain")
        assert "there is no command /plain" in result.errors[0]
