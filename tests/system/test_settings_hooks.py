"""Hooks from a project's settings file, in whole sessions with real processes."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.support.agents import Probe, config, stage

from atrio.actors.testing import Fault, ScriptedModel, Turn, text, tool
from atrio.runtime.errors import PromptBlocked
from atrio.runtime.result import TerminalReason
from atrio.runtime.settings import load_settings

pytestmark = pytest.mark.slow

DONE = Turn(text("done"))


def script(tmp_path: Path, body: str) -> str:
    """A hook: Python that has its input as ``event``, and notes each in hooks.log."""
    path = tmp_path / f"hook{len(list(tmp_path.glob('hook*.py')))}.py"
    log = tmp_path / "hooks.log"
    path.write_text(
        "import json, sys\nevent = json.load(sys.stdin)\n"
        f"open({str(log)!r}, 'a').write(event['hook_event_name'] + '\\n')\n{body}\n"
    )
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(path))}"


def told(tmp_path: Path) -> list[str]:
    return (tmp_path / "hooks.log").read_text().split()


def session(tmp_path: Path, **hooks: str) -> dict[str, Any]:
    """Options of a session whose project has these hooks, by event."""
    folder = tmp_path / ".claude"
    folder.mkdir()
    groups = {name: [{"hooks": [{"type": "command", "command": command}]}] for name, command in hooks.items()}
    (folder / "settings.json").write_text(json.dumps({"hooks": groups}))
    settings = load_settings(tmp_path, tmp_path / "home", None, ("project",))
    return {"project": True, "config": attrs.evolve(config(tmp_path / "home"), settings=settings)}


async def test_all_of_them_are_told(tmp_path: Path) -> None:
    command = script(tmp_path, "")
    names = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolBatch", "Stop", "SessionEnd"]
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"})), DONE])
    async with stage(tmp_path, model, Probe(), session=session(tmp_path, **dict.fromkeys(names, command))) as on:
        assert (await on.run()).is_success
    assert names == told(tmp_path)


async def test_a_prompt_that_is_refused_leaves_no_trace(tmp_path: Path) -> None:
    command = script(tmp_path, "print('not on a Friday', file=sys.stderr)\nsys.exit(2)")
    async with stage(tmp_path, ScriptedModel([DONE]), session=session(tmp_path, UserPromptSubmit=command)) as on:
        with pytest.raises(PromptBlocked, match="not on a Friday"):
            await on.run()
        assert () == on.session.messages


async def test_a_call_that_is_refused_does_not_run_and_what_hooks_add_reaches_the_model(tmp_path: Path) -> None:
    deny = script(tmp_path, "print('never that', file=sys.stderr)\nsys.exit(2)")
    add = script(tmp_path, "print('the branch is main')")
    probe = Probe()
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"}, "t1")), DONE])
    options = session(tmp_path, PreToolUse=deny, SessionStart=add)
    async with stage(tmp_path, model, probe, session=options) as on:
        result = await on.run()
        assert result.is_success
        assert [] == probe.log
        assert "never that" in on.results()[0][1]
    assert "the branch is main" in str(model.requests[0].messages)


async def test_a_check_after_a_call_is_heard(tmp_path: Path) -> None:
    check = script(tmp_path, "print('the file is badly formatted', file=sys.stderr)\nsys.exit(2)")
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"}, "t1")), DONE])
    async with stage(tmp_path, model, Probe(), session=session(tmp_path, PostToolUse=check)) as on:
        await on.run()
        assert "badly formatted" in on.results()[0][1]


async def test_a_failing_call_is_told_as_one(tmp_path: Path) -> None:
    async def fails(name: str, ctx: Any) -> str:
        raise ZeroDivisionError("no")

    model = ScriptedModel([Turn(tool("Probe", {"name": "a"})), DONE])
    options = session(tmp_path, PostToolUseFailure=script(tmp_path, ""))
    async with stage(tmp_path, model, Probe(behave=fails), session=options) as on:
        await on.run()
    assert ["PostToolUseFailure"] == told(tmp_path)


async def test_a_stop_hook_makes_the_run_go_on(tmp_path: Path) -> None:
    block = script(
        tmp_path,
        "if not event['stop_hook_active']:\n    print('run the tests first', file=sys.stderr)\n    sys.exit(2)",
    )
    model = ScriptedModel([Turn(text("done?")), Turn(text("done!"))])
    async with stage(tmp_path, model, session=session(tmp_path, Stop=block)) as on:
        assert "done!" == (await on.run()).text
        assert any("run the tests first" in prompt for prompt in on.prompts())


async def test_a_batch_hook_may_end_the_run(tmp_path: Path) -> None:
    stop = script(tmp_path, "print(json.dumps({'continue': False, 'stopReason': 'enough'}))")
    model = ScriptedModel([Turn(tool("Probe", {"name": "a"})), DONE])
    async with stage(tmp_path, model, Probe(), session=session(tmp_path, PostToolBatch=stop)) as on:
        assert TerminalReason.HOOK_STOPPED is (await on.run()).terminal_reason


async def test_a_model_failure_is_told(tmp_path: Path) -> None:
    options = session(tmp_path, StopFailure=script(tmp_path, ""), Stop=script(tmp_path, ""))
    async with stage(tmp_path, ScriptedModel([DONE], faults={1: Fault.status(400)}), session=options) as on:
        await on.run()
    assert ["StopFailure"] == told(tmp_path)


async def test_without_the_project_its_hooks_are_not_run(tmp_path: Path) -> None:
    options = session(tmp_path, SessionStart=script(tmp_path, ""))
    async with stage(tmp_path, ScriptedModel([DONE]), session={**options, "project": False}) as on:
        await on.run()
    assert not (tmp_path / "hooks.log").exists()
