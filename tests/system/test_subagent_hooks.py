"""Hooks of settings files, as subagents and their parents are told of."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.support.agents import Probe, config, stage

from atrio.actors.subagents.definitions import SubagentDefinition
from atrio.actors.testing import ScriptedModel, Turn, text, tool
from atrio.runtime.messages import JsonObject
from atrio.runtime.settings import load_settings

pytestmark = pytest.mark.slow

NAMES = ("SessionStart", "UserPromptSubmit", "PreToolUse", "SubagentStart", "SubagentStop", "Stop", "SessionEnd")


def hooked(tmp_path: Path) -> dict[str, Any]:
    """Options of a session whose hooks note what they are told."""
    log, hook = tmp_path / "hooks.log", tmp_path / "hook.py"
    hook.write_text(
        "import json, sys\nevent = json.load(sys.stdin)\n"
        f"open({str(log)!r}, 'a').write(json.dumps(event) + '\\n')\n"
        "said = {'hookEventName': 'SubagentStart', 'additionalContext': 'the branch is main'}\n"
        "if event['hook_event_name'] == 'SubagentStart': print(json.dumps({'hookSpecificOutput': said}))\n"
    )
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(hook))}"
    groups = {name: [{"hooks": [{"type": "command", "command": command}]}] for name in NAMES}
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps({"hooks": groups}))
    settings = load_settings(tmp_path, tmp_path / "home", None, ("project",))
    return {"project": True, "config": attrs.evolve(config(tmp_path / "home"), settings=settings)}


async def test_a_subagent_has_a_start_and_a_stop_and_names_itself(tmp_path: Path) -> None:
    def answer(body: JsonObject) -> Turn:
        mine = json.dumps(body["messages"])
        if "look around" in mine and "toolu" not in mine:
            return Turn(tool("Probe", {"name": "a"}))
        if "look around" in mine and '"Agent"' not in mine:
            return Turn(text("Found."))
        if '"Agent"' not in mine:
            call = {"description": "looks", "prompt": "look around", "subagent_type": "scout"}
            return Turn(tool("Agent", call))
        return Turn(text("Done."))

    kind = SubagentDefinition(name="scout", description="looks around")
    model = ScriptedModel(by=answer)
    async with stage(tmp_path, model, Probe(), subagents=(kind,), session=hooked(tmp_path)) as on:
        result = await on.run()
    assert "Done." == result.text
    told = [json.loads(line) for line in (tmp_path / "hooks.log").read_text().splitlines()]
    assert [
        ("SessionStart", None),
        ("UserPromptSubmit", None),
        ("PreToolUse", None),
        ("SubagentStart", "scout"),
        ("PreToolUse", "scout"),
        ("SubagentStop", "scout"),
        ("Stop", None),
        ("SessionEnd", None),
    ] == [(event["hook_event_name"], event.get("agent_type")) for event in told]
    [stop] = [event for event in told if event["hook_event_name"] == "SubagentStop"]
    assert "Found." == stop["last_assistant_message"]
    assert stop["agent_transcript_path"].endswith(f"agent-{stop['agent_id']}.jsonl")
    assert any("the branch is main" in json.dumps(request.messages) for request in model.requests)
