"""Tools that a session brings along: commands in the background, skills, questions, confinement."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from tests.support.agents import stage

from atrio.actors.testing import ScriptedModel, Turn, text, tool
from atrio.runtime.events import RunStarted
from atrio.tools import Bash
from atrio.tools.sandbox import SandboxKind, SandboxPolicy, probe

pytestmark = pytest.mark.slow

DONE = Turn(text("done"))


async def test_a_command_in_the_background_lives_across_turns_and_ends_with_the_session(tmp_path: Path) -> None:
    mark = tmp_path / "beats"
    command = f"while true; do echo beat >> {mark}; sleep 0.05; done"
    model = ScriptedModel(
        [
            Turn(tool("Bash", {"command": command, "run_in_background": True}, "t1")),
            Turn(text("it runs")),
            Turn(tool("BashOutput", {"bash_id": "bash_1"}, "t2")),
            DONE,
        ]
    )
    async with stage(tmp_path, model, Bash(), session={"project": True}, allowed_tools=["Bash"]) as on:
        assert (await on.run("start it")).is_success
        before = len(mark.read_text())
        assert (await on.run("look at it")).is_success
        assert [False] == [is_error for _, _, is_error in on.results()]
        await trio.sleep(0.3)
        assert len(mark.read_text()) > before
    after = mark.read_text()
    await trio.sleep(0.3)
    assert after == mark.read_text()


async def test_a_skill_is_offered_and_loaded(tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "skills" / "deploy"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: deploy\ndescription: How to deploy\n---\nPush the button.\n")
    model = ScriptedModel([Turn(tool("Skill", {"name": "deploy"}, "t1")), DONE])
    async with stage(tmp_path, model, session={"project": True}) as on:
        assert (await on.run()).is_success
        assert "Push the button." in on.results()[0][1]
        assert "Skill" in on.of(RunStarted)[0].tools


@pytest.mark.skipif(probe() is SandboxKind.NONE, reason="no sandbox works here")
async def test_a_confined_command_cannot_write_outside(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    command = f"echo in > in.txt; echo out > {outside}/out.txt"
    model = ScriptedModel([Turn(tool("Bash", {"command": command}, "t1")), DONE])
    async with stage(work, model, Bash(), allowed_tools=["Bash"], sandbox=SandboxPolicy.REQUIRED) as on:
        await on.run()
        assert "sandbox" in on.of(RunStarted)[0].sandbox
    assert "in\n" == (work / "in.txt").read_text()
    assert not (outside / "out.txt").exists()
