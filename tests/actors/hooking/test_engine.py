"""Hooks run, all at once and within bounds; whatever one does, the event goes on, and nothing of it is left."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
import trio

from atrio.actors.hooking import engine as engine_module
from atrio.actors.hooking.config import parse_hooks
from atrio.actors.hooking.engine import HookEngine
from atrio.actors.hooking.payloads import (
    HookEvent,
    HookSession,
    pre_tool_use,
    session_end,
    session_start,
    stop,
    user_prompt_submit,
)
from atrio.actors.hooking.verdicts import HookNotice, HookOutcome, Permission
from atrio.tools.reaper import TOKEN_VARIABLE

CALL = pre_tool_use("Bash", {"command": "ls"}, "c1")
STOP = stop("done", active=False)
LONG = 7_561
"""Seconds that a sleeping process in these tests would live: nobody waits for it."""

BOUND = 1.5
"""Seconds on top of the limits under test, for a machine under load."""


class Scene:
    """A folder to run hooks in, and a mark in their environment by which they are found."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.mark = uuid.uuid4().hex
        self.late: list[HookOutcome] = []
        self.heard = trio.Event()
        for name in ("up", "go"):  # pipes that open only when both ends do: a meeting, and no polling
            os.mkfifo(cwd / name)

    def hear(self, outcome: HookOutcome) -> None:
        self.late.append(outcome)
        self.heard.set()

    async def wait_until_up(self) -> None:
        """Until a hook does ``echo > up``."""
        with trio.fail_after(5):
            await trio.to_thread.run_sync((self.cwd / "up").read_bytes, abandon_on_cancel=True)

    async def let_go(self) -> None:
        """Until a hook does ``read x < go``."""
        with trio.fail_after(5):
            await trio.to_thread.run_sync((self.cwd / "go").write_text, "go", abandon_on_cancel=True)

    def engine(self, hooks: dict[str, list[Any]], **more: Any) -> HookEngine:
        return HookEngine(
            config=parse_hooks(hooks),
            session=HookSession(session_id="s", transcript_path=str(self.cwd / "t"), cwd=str(self.cwd)),
            cwd=self.cwd,
            environ={"PATH": os.environ["PATH"], TOKEN_VARIABLE: self.mark},
            on_late=self.hear,
            **more,
        )

    async def fire(self, event: HookEvent, *scripts: str, limit: float | None = None, **more: Any) -> HookOutcome:
        timeout = {} if limit is None else {"timeout": limit}
        handlers = [{"type": "command", "command": script, **timeout} for script in scripts]
        return await self.engine({event.name.value: [{"hooks": handlers}]}, **more).fire(event)

    def left(self) -> list[str]:
        found: list[str] = []
        for entry in Path("/proc").iterdir():
            try:
                if self.mark in (entry / "environ").read_text(errors="replace"):
                    found.append((entry / "cmdline").read_text(errors="replace"))
            except OSError:
                continue
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def say(**fields: Any) -> str:
    return f"echo '{json.dumps(fields)}'"


def decide(permission: str, **fields: Any) -> str:
    return say(hookSpecificOutput={"hookEventName": "PreToolUse", "permissionDecision": permission, **fields})


# --- what is told and heard -----------------------------------------------------------------------


async def test_a_command_reads_the_event_and_runs_in_the_projects_folder(scene: Scene) -> None:
    assert HookOutcome() == await scene.fire(CALL, 'cat > told; pwd > where; echo "$CLAUDE_PROJECT_DIR" >> where')
    told = json.loads((scene.cwd / "told").read_bytes())
    assert ("PreToolUse", "Bash", {"command": "ls"}, "s") == (
        told["hook_event_name"],
        told["tool_name"],
        told["tool_input"],
        told["session_id"],
    )
    assert [str(scene.cwd)] * 2 == (scene.cwd / "where").read_text().split()


async def test_status_2_denies_and_stderr_says_why(scene: Scene) -> None:
    outcome = await scene.fire(CALL, "echo ignored; echo not here >&2; exit 2")
    assert HookOutcome(permission=Permission.DENY, reason="not here") == outcome


async def test_the_strictest_of_several_hooks_holds(scene: Scene) -> None:
    outcome = await scene.fire(CALL, decide("allow"), decide("deny", permissionDecisionReason="r"), decide("ask"))
    assert HookOutcome(permission=Permission.DENY, reason="r") == outcome


async def test_hooks_run_at_the_same_time(scene: Scene) -> None:
    # Each waits for the other: one after the other, neither would end.
    scripts = [f"touch {a}; while ! test -e {b}; do sleep 0.01; done; echo {a}" for a, b in (("a", "b"), ("b", "a"))]
    with trio.fail_after(5):
        outcome = await scene.fire(session_start("startup"), *scripts)
    assert ("a", "b") == outcome.contexts


async def test_without_a_hook_for_it_an_event_costs_nothing(scene: Scene) -> None:
    hooks = {"PreToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command": "touch ran"}]}]}
    engine = scene.engine(hooks)
    assert HookOutcome() == await engine.fire(CALL)
    assert HookOutcome() == await engine.fire(STOP)
    assert not (scene.cwd / "ran").exists()


async def test_input_that_is_not_read_hinders_nothing(scene: Scene) -> None:
    event = pre_tool_use("Write", {"content": "x" * 1_000_000}, "c1")
    assert HookOutcome() == await scene.fire(event, "exit 0", "exec <&-; exit 0")


async def test_the_session_of_a_subagent_is_told(scene: Scene) -> None:
    engine = scene.engine({"Stop": [{"hooks": [{"type": "command", "command": "cat > told"}]}]})
    await engine.fire(STOP, session=HookSession(session_id="s", transcript_path="", cwd="", agent_id="a7"))
    assert "a7" == json.loads((scene.cwd / "told").read_bytes())["agent_id"]


# --- hooks that misbehave -------------------------------------------------------------------------


@pytest.mark.slow
async def test_one_that_hangs_is_stopped_and_the_others_are_heard(scene: Scene) -> None:
    start = trio.current_time()
    outcome = await scene.fire(CALL, f"sleep {LONG}", decide("deny"), limit=0.3)
    assert 0.3 <= trio.current_time() - start < 0.3 + BOUND
    assert outcome.permission is Permission.DENY
    said = f"hook command 'sleep {LONG}' said nothing within 0.3 s, so it was stopped and has no say"
    assert (HookNotice(said),) == outcome.notices
    assert [] == scene.left()


@pytest.mark.slow
async def test_one_that_ignores_signals_and_leaves_the_session_is_stopped_too(scene: Scene) -> None:
    stubborn = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & sleep {LONG}"
    with trio.fail_after(5):
        outcome = await scene.fire(STOP, stubborn, limit=0.2)
    assert 1 == len(outcome.notices)
    assert [] == scene.left()


@pytest.mark.slow
async def test_what_it_leaves_in_the_background_is_stopped_and_holds_nothing_up(scene: Scene) -> None:
    with trio.fail_after(5):
        outcome = await scene.fire(CALL, f"(setsid sleep {LONG} &) ; sleep {LONG} & {decide('deny')}")
    assert outcome.permission is Permission.DENY
    assert [] == scene.left()


async def test_one_that_dies_has_no_say(scene: Scene) -> None:
    outcome = await scene.fire(CALL, "kill -9 $$", "exit 1", "no-such-program-7561")
    assert outcome.permission is None
    how = [notice.text.partition("failed with ")[2][:9] for notice in outcome.notices]
    assert ["signal 9", "status 1", "status 12"] == how


@pytest.mark.parametrize("garbage", ["head -c 100000 /dev/urandom", "echo '{broken'", "printf '\\0\\377{'", "echo 5"])
async def test_garbage_has_no_say(scene: Scene, garbage: str) -> None:
    outcome = await scene.fire(CALL, garbage)
    assert HookOutcome(notices=outcome.notices) == outcome


@pytest.mark.slow
@pytest.mark.parametrize("where", ["", " >&2"])
async def test_a_flood_is_read_to_its_end_and_kept_within_bounds(scene: Scene, where: str) -> None:
    script = f"yes x | head -c 1000000000{where}; echo last >&2; exit 2"
    with trio.fail_after(30):
        outcome = await scene.fire(CALL, script, results_dir=scene.cwd / "results")
    assert outcome.permission is Permission.DENY
    assert outcome.reason is not None
    assert outcome.reason.startswith("The output is 262,143 characters long" if where else "last")


@pytest.mark.slow
async def test_a_flood_without_an_end_is_stopped_at_the_deadline(scene: Scene) -> None:
    with trio.fail_after(5):
        outcome = await scene.fire(STOP, "yes '{'", limit=0.3)
    assert 1 == len(outcome.notices)
    assert [] == scene.left()


async def test_a_folder_that_is_gone_is_told_and_blocks_nothing(scene: Scene) -> None:
    gone = scene.cwd / "gone"
    gone.mkdir()
    engine = HookEngine(
        config=parse_hooks({"Stop": [{"hooks": [{"type": "command", "command": "exit 2"}]}]}),
        session=HookSession(session_id="s", transcript_path="", cwd=""),
        cwd=gone,
    )
    gone.rmdir()
    outcome = await engine.fire(STOP)
    assert ((), 1) == (outcome.blocks, len(outcome.notices))
    assert "No such file or directory (the working folder)" in outcome.notices[0].text


async def test_a_defect_in_running_a_hook_is_a_notice(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*args: object, **more: object) -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("x")

    monkeypatch.setattr(engine_module, "run_command_hook", broken)
    outcome = await scene.fire(STOP, "true")
    assert ("hook command 'true' could not be run: KeyError: 'x'",) == tuple(each.text for each in outcome.notices)


# --- bounds ---------------------------------------------------------------------------------------


async def test_a_long_text_goes_to_a_file_and_a_preview_takes_its_place(scene: Scene) -> None:
    text = "word " * 4_000
    outcome = await scene.fire(session_start("startup"), f"printf '{text}'", results_dir=scene.cwd / "results")
    (context,) = outcome.contexts
    (path,) = (scene.cwd / "results").iterdir()
    assert text.strip() == path.read_text()
    assert str(path) in context
    assert len(context) < 3_000


async def test_a_long_text_is_cut_where_no_file_can_be_written(scene: Scene) -> None:
    (scene.cwd / "file").touch()
    for folder in (None, scene.cwd / "file" / "results"):
        outcome = await scene.fire(session_start("startup"), "head -c 50000 /dev/zero | tr '\\0' x", results_dir=folder)
        assert len(outcome.contexts[0]) < 11_000
        assert "characters left out" in outcome.contexts[0]


@pytest.mark.parametrize(
    ("event", "own", "limit"),
    [(STOP, 3.0, 0.2), (session_end("other"), 20.0, 60.0), (user_prompt_submit("x"), 0.2, 60.0)],
)
@pytest.mark.slow
async def test_the_shortest_limit_holds(
    scene: Scene, event: HookEvent, own: float, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "SESSION_END_LIMIT", 0.2)
    hooks = [{"type": "command", "command": f"sleep {LONG}", "timeout": own}]
    start = trio.current_time()
    outcome = await scene.engine({event.name.value: [{"hooks": hooks}]}).fire(event, limit=limit)
    assert 0.2 <= trio.current_time() - start < 0.2 + BOUND
    assert "said nothing within 0.2 s" in outcome.notices[0].text


@pytest.mark.slow
async def test_more_hooks_than_may_run_at_once_all_have_their_turn(scene: Scene) -> None:
    count = engine_module.MAX_AT_ONCE + 8
    outcome = await scene.fire(session_start("startup"), *(f"echo {number}" for number in range(count)))
    assert tuple(str(number) for number in range(count)) == outcome.contexts
    assert () == outcome.notices


@pytest.mark.slow
async def test_cancelling_leaves_nothing_of_the_hooks(scene: Scene) -> None:
    before = len(os.listdir("/proc/self/fd"))
    script = f"(setsid sleep {LONG} &); echo > up; sleep {LONG}"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.fire, CALL, script)
        await scene.wait_until_up()
        nursery.cancel_scope.cancel()
        start = trio.current_time()
    assert trio.current_time() - start < BOUND
    assert [] == scene.left()
    assert before == len(os.listdir("/proc/self/fd"))


# --- hooks that nobody waits for ------------------------------------------------------------------


def unawaited(script: str, key: str = "async") -> dict[str, list[Any]]:
    return {"Stop": [{"hooks": [{"type": "command", "command": script, key: True}]}]}


async def test_nobody_waits_for_a_background_hook_and_it_no_longer_decides(scene: Scene) -> None:
    script = "read x < go; echo why >&2; exit 2"
    async with trio.open_nursery() as nursery:
        assert HookOutcome() == await scene.engine(unawaited(script), background=nursery).fire(STOP)
        assert [] == scene.late
        await scene.let_go()
        await scene.heard.wait()
    assert [HookOutcome()] == scene.late


async def test_one_that_may_wake_the_model_is_heard_when_it_objects(scene: Scene) -> None:
    async with trio.open_nursery() as nursery:
        engine = scene.engine(unawaited("echo why >&2; exit 2", "asyncRewake"), background=nursery)
        assert HookOutcome() == await engine.fire(STOP)
    assert [HookOutcome(contexts=("why",))] == scene.late


async def test_without_a_place_for_it_a_background_hook_is_waited_for(scene: Scene) -> None:
    assert HookOutcome() == await scene.engine(unawaited("touch ran; exit 2")).fire(STOP)
    assert (scene.cwd / "ran").exists()
    assert [HookOutcome()] == scene.late


async def test_background_hooks_end_with_their_nursery(scene: Scene) -> None:
    async with trio.open_nursery() as nursery:
        await scene.engine(unawaited(f"echo > up; sleep {LONG}"), background=nursery).fire(STOP)
        await scene.wait_until_up()
        nursery.cancel_scope.cancel()
    assert [] == scene.left()
