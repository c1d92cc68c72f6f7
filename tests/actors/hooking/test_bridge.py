"""A hook engine as an agent's hooks: what the settings' hooks say arrives as decisions, and closed where in doubt."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from atrio.actors.hooking import bridge
from atrio.actors.hooking.bridge import EngineApproval, EngineStopHook, EngineToolHook, Subagent
from atrio.actors.hooking.config import parse_hooks
from atrio.actors.hooking.engine import HookEngine
from atrio.actors.hooking.payloads import HookEvent, HookName, HookSession
from atrio.actors.hooking.verdicts import HookOutcome
from atrio.actors.hooks import StopContext, StopDecision, ToolCall, ToolDecision, ask_tool_hooks, run_stop_hooks
from atrio.runtime.messages import TextBlock, ToolResultBlock
from atrio.runtime.observations import StopHooksEnded
from atrio.runtime.tool import ToolContext, Workspace

CALL = ToolCall(session_id="s", run_id="r", call_id="c1", name="Bash", input={"command": "ls"})
ENDED = StopContext(session_id="s", run_id="r", text="done", messages=(), active=True)


@attrs.define
class Scene:
    cwd: Path
    told: list[tuple[HookName, HookOutcome]] = attrs.field(factory=list)

    def engine(self, **scripts: str) -> HookEngine:
        hooks = {name: [{"hooks": [{"type": "command", "command": script}]}] for name, script in scripts.items()}
        return HookEngine(
            config=parse_hooks(hooks),
            session=HookSession(session_id="s", transcript_path="", cwd=str(self.cwd)),
            cwd=self.cwd,
            environ={"PATH": os.environ["PATH"]},
        )

    def tell(self, event: HookEvent, outcome: HookOutcome) -> None:
        self.told.append((event.name, outcome))

    def payload(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.cwd / "told").read_bytes())
        return value

    @property
    def context(self) -> ToolContext:
        return ToolContext(
            session_id="s",
            run_id="r",
            call_id="c1",
            workspace=Workspace(cwd=self.cwd),
            results_dir=self.cwd,
            progress=lambda text, data=None: None,
        )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def say(event: str, **fields: Any) -> str:
    return f"echo '{json.dumps({'hookSpecificOutput': {'hookEventName': event, **fields}})}'"


# --- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("true", ToolDecision()),
        ("echo no >&2; exit 2", ToolDecision(deny="no")),
        (say("PreToolUse", permissionDecision="allow"), ToolDecision(allow=True)),
        (say("PreToolUse", permissionDecision="defer"), ToolDecision(defer=True)),
        (say("PreToolUse", updatedInput={"command": "pwd"}), ToolDecision(input={"command": "pwd"})),
        ('echo \'{"continue": false, "stopReason": "enough"}\'', ToolDecision(stop="enough")),
        (
            say("PreToolUse", permissionDecision="ask"),
            ToolDecision(deny="a hook wants this call to be approved, and nobody is there to approve it"),
        ),
    ],
)
async def test_what_hooks_say_before_a_call_is_its_decision(scene: Scene, script: str, expected: ToolDecision) -> None:
    hook = EngineToolHook(scene.engine(PreToolUse=script), tell=scene.tell)
    assert (expected, ()) == await ask_tool_hooks([hook], lambda each: each.before(CALL))
    assert [HookName.PRE_TOOL_USE] == [name for name, _ in scene.told]


async def test_text_for_the_model_is_told(scene: Scene) -> None:
    hook = EngineToolHook(scene.engine(PreToolUse=say("PreToolUse", additionalContext="c")), tell=scene.tell)
    assert ToolDecision() == await hook.before(CALL)
    assert [(HookName.PRE_TOOL_USE, HookOutcome(contexts=("c",)))] == scene.told


async def test_without_hooks_nothing_is_asked(scene: Scene) -> None:
    hook = EngineToolHook(scene.engine(), tell=scene.tell)
    assert await hook.before(CALL) is None
    assert await hook.after(CALL, ToolResultBlock("c1", "x")) is None
    assert await EngineStopHook(scene.engine(), tell=scene.tell)(ENDED) is None
    assert [] == scene.told


@pytest.mark.parametrize(
    ("result", "event", "field"),
    [
        (ToolResultBlock("c1", "out"), "PostToolUse", "tool_response"),
        (ToolResultBlock("c1", (TextBlock("out"),)), "PostToolUse", "tool_response"),
        (ToolResultBlock("c1", "out", is_error=True), "PostToolUseFailure", "error"),
    ],
)
async def test_after_a_call_success_and_failure_are_told_apart(
    scene: Scene, result: ToolResultBlock, event: str, field: str
) -> None:
    engine = scene.engine(**{event: 'cat > told; echo \'{"continue": false, "decision": "block", "reason": "r"}\''})
    decision = await EngineToolHook(engine, tell=scene.tell).after(CALL, result)
    assert ToolDecision(stop="a hook ended the run and gave no reason", feedback="r") == decision
    assert ("out", event) == (scene.payload()[field], scene.payload()["hook_event_name"])
    assert "r" == scene.told[0][1].block


ASKING = say("PreToolUse", permissionDecision="ask", permissionDecisionReason="why", updatedInput={"command": "pwd"})


@pytest.mark.parametrize(
    ("answer", "deny"), [(True, None), (False, "the user denied this call"), ("not now", "not now")]
)
async def test_where_a_hook_asks_somebody_is_asked(scene: Scene, answer: bool | str, deny: str | None) -> None:
    asked: list[tuple[object, str]] = []

    async def approve(call: ToolCall, reason: str) -> bool | str:
        await trio.lowlevel.checkpoint()
        asked.append((call.input, reason))
        return answer

    hook = EngineToolHook(scene.engine(PreToolUse=ASKING), approve=approve)
    assert ToolDecision(deny=deny, input={"command": "pwd"}) == await hook.before(CALL)
    assert [({"command": "pwd"}, "why")] == asked


async def test_an_approval_that_fails_or_never_comes_is_a_denial(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(call: ToolCall, reason: str) -> bool:
        await trio.lowlevel.checkpoint()
        raise OSError("gone")

    async def hang(call: ToolCall, reason: str) -> bool:
        await trio.sleep_forever()
        return True

    engine = scene.engine(PreToolUse=ASKING)
    failed = await EngineToolHook(engine, approve=fail).before(CALL)
    assert failed is not None
    assert "the approval failed: OSError: gone" == failed.deny
    monkeypatch.setattr(bridge, "BRIDGE_LIMIT", 0.2)
    late = await EngineToolHook(engine, approve=hang).before(CALL)
    assert late is not None
    assert "no approval came in time" == late.deny


@pytest.mark.slow
async def test_a_deny_is_not_lost_by_another_hook_that_hangs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "BRIDGE_LIMIT", 0.3)
    handlers = [{"type": "command", "command": text} for text in ("sleep 7571", "echo no >&2; exit 2")]
    engine = attrs.evolve(scene.engine(), config=parse_hooks({"PreToolUse": [{"hooks": handlers}]}))
    decision = await EngineToolHook(engine).before(CALL)
    assert ToolDecision(deny="no") == decision


# --- approvals ------------------------------------------------------------------------------------


def request(behavior: str, **fields: Any) -> str:
    return say("PermissionRequest", decision={"behavior": behavior, **fields})


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (request("allow"), True),
        (request("allow", updatedInput={"command": "ls"}), True),
        (
            request("allow", updatedInput={"command": "pwd"}),
            "a hook allows this call only with another input, which can't be taken over here",
        ),
        (request("deny", message="no"), "no"),
        ("true", "no rule allows this call and nobody is there to approve it"),
        ("exit 2", "no rule allows this call and nobody is there to approve it"),
        ("echo broken {", "no rule allows this call and nobody is there to approve it"),
    ],
)
async def test_a_request_for_permission_is_answered_by_hooks(scene: Scene, script: str, expected: bool | str) -> None:
    ask = EngineApproval(scene.engine(PermissionRequest=script), tell=scene.tell)
    assert expected == await ask("Bash", {"command": "ls"}, scene.context)


async def test_where_no_hook_decides_the_embedding_program_does(scene: Scene) -> None:
    async def otherwise(name: str, input: object, ctx: ToolContext) -> bool | str:
        await trio.lowlevel.checkpoint()
        return f"{name} {ctx.call_id}"

    for engine in (scene.engine(), scene.engine(PermissionRequest="true")):
        ask = EngineApproval(engine, otherwise=otherwise)
        assert "Bash c1" == await ask("Bash", {"command": "ls"}, scene.context)


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("true", StopHooksEnded()),
        ("echo more >&2; exit 2", StopHooksEnded(blocking=("more",))),
        (say("Stop", additionalContext="look"), StopHooksEnded(blocking=("look",))),
        ('echo \'{"continue": false, "stopReason": "r"}\'', StopHooksEnded(prevent="r")),
        ("exit 1", StopHooksEnded()),
    ],
)
async def test_what_hooks_say_at_the_end_is_the_stop_decision(
    scene: Scene, script: str, expected: StopHooksEnded
) -> None:
    hook = EngineStopHook(scene.engine(Stop=f"cat > told; {script}"), tell=scene.tell)
    reports: list[str] = []
    assert expected == await run_stop_hooks([hook], ENDED, reports.append)
    assert [] == reports
    assert (True, "done") == (scene.payload()["stop_hook_active"], scene.payload()["last_assistant_message"])


async def test_a_subagents_end_is_told_as_such(scene: Scene) -> None:
    engine = scene.engine(SubagentStop="cat > told; echo x >&2; exit 2", Stop="touch wrong")
    hook = EngineStopHook(engine, subagent=Subagent(agent_id="a1", agent_type="Explore", transcript_path="/t"))
    assert StopDecision(block="x") == await hook(ENDED)
    told = scene.payload()
    assert ("a1", "Explore", "/t") == (told["agent_id"], told["agent_type"], told["agent_transcript_path"])
    assert not (scene.cwd / "wrong").exists()
