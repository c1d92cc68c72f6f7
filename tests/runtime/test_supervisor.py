"""Supervisors: starting, restarting, giving up, and stopping in order."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import pytest
import trio
from tests.support.scene import Behaviour, Scene, fails, forever, lingers, returns, slow
from trio.testing import MockClock

from atrio.runtime.actor import FunctionActor
from atrio.runtime.errors import (
    ConfigError,
    InvariantError,
    RestartIntensityExceeded,
    ShutdownOverrun,
    StartFailed,
    StartTimedOut,
)
from atrio.runtime.supervisor import ActorState, ChildExit, ChildSpec, Restart, Strategy, Supervisor

ALL, ONE, REST = Strategy.ONE_FOR_ALL, Strategy.ONE_FOR_ONE, Strategy.REST_FOR_ONE
PERMANENT, TRANSIENT, TEMPORARY = Restart.PERMANENT, Restart.TRANSIENT, Restart.TEMPORARY


async def live_for(supervisor: Supervisor, seconds: float) -> None:
    async with supervisor.running():
        await trio.sleep(seconds)


# --- starting -------------------------------------------------------------------------------------


async def test_children_start_in_order_each_after_the_one_before_is_ready_and_stop_in_reverse(
    autojump_clock: MockClock,
) -> None:
    scene = Scene()
    supervisor = Supervisor("app", [scene.child("a", slow(2)), scene.child("b", slow(3)), scene.child("c")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        for moment, running in ((1, ["+a"]), (2, ["+b"]), (3, ["+c"])):
            await trio.sleep(moment)
            assert scene.take() == running
        supervisor.stop()
    assert scene.take() == ["-c", "-b", "-a"]
    assert trio.current_time() == 6


async def test_the_supervisor_is_ready_when_its_last_child_is(autojump_clock: MockClock) -> None:
    scene = Scene()
    async with Supervisor("app", [scene.child("a", slow(2)), scene.child("b", slow(3))]).running():
        assert trio.current_time() == 5


def no_actor() -> FunctionActor:
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (lambda scene: scene.child("c", fails(ready=False)), "ValueError: boom"),
        (lambda scene: scene.child("c", returns(ready=False)), "it returned before it reported ready"),
        (lambda scene: ChildSpec("c", no_actor), "ValueError: boom"),
    ],
)
async def test_a_child_that_does_not_start_stops_those_before_it_and_is_named(
    autojump_clock: MockClock, spec: Callable[[Scene], ChildSpec], reason: str
) -> None:
    scene = Scene()
    supervisor = Supervisor("app", [scene.child("a"), scene.child("b"), spec(scene), scene.child("never")])
    with pytest.raises(StartFailed) as caught:
        await supervisor.run()
    assert str(caught.value) == f"app/c did not start: {reason}"
    assert [entry for entry in scene.log if "c" not in entry] == ["+a", "+b", "-b", "-a"]
    assert (caught.value.__cause__ is None) == (reason.startswith("it returned"))


async def test_a_child_that_is_not_ready_in_time_is_stopped_and_named(autojump_clock: MockClock) -> None:
    scene = Scene()
    supervisor = Supervisor(
        "app", [scene.child("a"), scene.child("b", slow(60), start_timeout=7)], on_exit=scene.on_exit
    )
    with pytest.raises(StartTimedOut, match="app/b did not report ready within 7 s"):
        await supervisor.run()
    assert trio.current_time() == 7
    assert scene.log == ["+a", "+b", "-b", "-a"]
    assert [(end.name, type(end.error), end.will_restart) for end in scene.exits] == [
        ("b", StartTimedOut, False),
        ("a", type(None), False),
    ]


async def test_a_failed_start_below_keeps_its_own_place_on_the_way_up(autojump_clock: MockClock) -> None:
    scene = Scene()
    engine = ChildSpec("engine", lambda: Supervisor("engine", [scene.child("streamer", fails(ready=False))]))
    with pytest.raises(StartFailed) as caught:
        await live_for(Supervisor("app", [engine]), 1)
    assert str(caught.value) == "app/engine/streamer did not start: ValueError: boom"


async def test_reporting_ready_twice_is_a_crash(autojump_clock: MockClock) -> None:
    async def twice(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.lowlevel.checkpoint()
        task_status.started()

    supervisor = Supervisor("app", [Scene().child("a", twice)], max_restarts=0)
    with pytest.raises(RuntimeError, match="app/a reported ready twice"):
        await live_for(supervisor, 1)


async def test_stopping_a_supervisor_that_still_starts_is_no_failure(autojump_clock: MockClock) -> None:
    scene = Scene()
    supervisor = Supervisor("app", [scene.child("a"), scene.child("b", slow(60)), scene.child("c")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await trio.sleep(1)
        supervisor.stop()
    assert scene.log == ["+a", "+b", "-b", "-a"]
    assert trio.current_time() == 1


async def test_a_supervisor_can_run_again_but_not_twice_at_once(autojump_clock: MockClock) -> None:
    scene = Scene()
    supervisor = Supervisor("app", [scene.child("a")])
    async with supervisor.running():
        with pytest.raises(InvariantError, match="app is running already"):
            await supervisor.run()
    await live_for(supervisor, 1)
    assert scene.log == ["+a", "-a", "+a", "-a"]


# --- restarting -----------------------------------------------------------------------------------

CRASH, RETURN = fails(after=1), returns(after=1)

# What happens after the middle one of three children ended once: the log from then on.
TABLE: list[tuple[Strategy, Restart, Behaviour, list[str]]] = [
    (ONE, PERMANENT, CRASH, ["+b"]),
    (ONE, PERMANENT, RETURN, ["+b"]),
    (ONE, TRANSIENT, CRASH, ["+b"]),
    (ONE, TRANSIENT, RETURN, []),
    (ONE, TEMPORARY, CRASH, []),
    (ONE, TEMPORARY, RETURN, []),
    (ALL, PERMANENT, CRASH, ["-c", "-a", "+a", "+b", "+c"]),
    (ALL, PERMANENT, RETURN, ["-c", "-a", "+a", "+b", "+c"]),
    (ALL, TRANSIENT, CRASH, ["-c", "-a", "+a", "+b", "+c"]),
    (ALL, TRANSIENT, RETURN, []),
    (ALL, TEMPORARY, CRASH, []),
    (ALL, TEMPORARY, RETURN, []),
    (REST, PERMANENT, CRASH, ["-c", "+b", "+c"]),
    (REST, PERMANENT, RETURN, ["-c", "+b", "+c"]),
    (REST, TRANSIENT, CRASH, ["-c", "+b", "+c"]),
    (REST, TRANSIENT, RETURN, []),
    (REST, TEMPORARY, CRASH, []),
    (REST, TEMPORARY, RETURN, []),
]


@pytest.mark.parametrize(("strategy", "restart", "end", "after"), TABLE)
async def test_who_runs_again_after_one_child_ended(
    autojump_clock: MockClock, strategy: Strategy, restart: Restart, end: Behaviour, after: list[str]
) -> None:
    scene = Scene()
    children = [scene.child("a"), scene.child("b", end, forever, restart=restart), scene.child("c")]
    async with Supervisor("app", children, strategy=strategy, on_exit=scene.on_exit).running():
        await trio.sleep(2)
        assert scene.take() == ["+a", "+b", "+c", "-b", *after]
        error = scene.exits[0].error
        assert (error is None) is (end is RETURN)
        assert scene.exits[0] == ChildExit(name="b", path="app/b", error=error, restarts=0, will_restart="+b" in after)
        assert all(later.will_restart for later in scene.exits[1:])


async def test_a_temporary_child_in_a_restarted_group_is_stopped_and_forgotten(autojump_clock: MockClock) -> None:
    scene = Scene()
    children = [scene.child("a", CRASH, forever), scene.child("b", restart=TEMPORARY), scene.child("c")]
    async with Supervisor("app", children, strategy=ALL).running() as supervisor:
        await trio.sleep(2)
        assert scene.take() == ["+a", "+b", "+c", "-a", "-c", "-b", "+a", "+c"]
        assert [child.name for child in supervisor.tree().children] == ["a", "c"]


async def test_a_finished_transient_child_comes_back_with_its_group(autojump_clock: MockClock) -> None:
    scene = Scene()
    children = [
        scene.child("a", returns(after=1), forever, restart=TRANSIENT),
        scene.child("b", fails(after=2), forever),
    ]
    await live_for(Supervisor("app", children, strategy=ALL), 5)
    assert scene.log[:6] == ["+a", "+b", "-a", "-b", "+a", "+b"]


async def test_siblings_that_fail_while_their_group_is_restarted_count_once(autojump_clock: MockClock) -> None:
    scene = Scene()
    children = [scene.child(name, fails(after=1), forever) for name in "abc"]
    async with Supervisor("app", children, strategy=ALL, max_restarts=1).running() as supervisor:
        await trio.sleep(2)
        assert [child.restarts for child in supervisor.tree().children] == [1, 1, 1]


async def test_independent_failures_at_the_same_moment_count_each(autojump_clock: MockClock) -> None:
    scene = Scene()
    children = [scene.child(name, fails(after=1), forever) for name in "abc"]
    with pytest.raises(ValueError, match="boom"):
        await live_for(Supervisor("app", children, max_restarts=2), 2)


async def test_an_earlier_sibling_that_fails_during_a_restart_enlarges_the_group(autojump_clock: MockClock) -> None:
    scene = Scene()
    children = [
        scene.child("a", fails(after=2), forever),
        scene.child("b", fails(after=1), forever),
        scene.child("c", lingers(3), forever),
    ]
    async with Supervisor("app", children, strategy=REST).running():
        await trio.sleep(10)
        assert scene.take() == ["+a", "+b", "+c", "-b", "-a", "-c", "+a", "+b", "+c"]


async def test_a_child_that_fails_to_start_again_is_tried_until_the_intensity_is_reached(
    autojump_clock: MockClock,
) -> None:
    scene = Scene()
    crash = fails(ValueError("first"), after=1)
    again = fails(ValueError("no start"), after=0, ready=False)
    supervisor = Supervisor("app", [scene.child("a", crash, again)], on_exit=scene.on_exit)
    with pytest.raises(ValueError, match="no start"):
        await live_for(supervisor, 10)
    assert scene.log == ["+a", "-a"] * 4
    assert [end.will_restart for end in scene.exits] == [True, True, True, False]


async def test_a_restart_that_is_not_ready_in_time_counts_as_a_failure(autojump_clock: MockClock) -> None:
    scene = Scene()
    child = scene.child("a", fails(after=1), slow(60), forever, start_timeout=2)
    async with Supervisor("app", [child], on_exit=scene.on_exit).running() as supervisor:
        await trio.sleep(4)
        assert scene.take() == ["+a", "-a", "+a", "-a", "+a"]
        assert [type(end.error) for end in scene.exits] == [ValueError, StartTimedOut]
        assert supervisor.tree().children[0].last_error == "StartTimedOut: app/a did not report ready within 2 s"


async def test_a_significant_child_that_ends_by_itself_ends_the_supervisor_in_order(autojump_clock: MockClock) -> None:
    scene = Scene()
    children = [
        scene.child("a"),
        scene.child("loop", fails(after=1), returns(after=1), restart=TRANSIENT, significant=True),
        scene.child("c"),
    ]
    await Supervisor("run", children).run()
    assert scene.log == ["+a", "+loop", "+c", "-loop", "+loop", "-loop", "-c", "-a"]
    assert trio.current_time() == 2


# --- giving up ------------------------------------------------------------------------------------


async def test_the_failure_after_the_last_tolerated_one_goes_up_as_itself_with_its_place(
    autojump_clock: MockClock,
) -> None:
    scene = Scene()
    error = LookupError("gone")
    supervisor = Supervisor(
        "app", [scene.child("a"), scene.child("b", fails(error)), scene.child("c")], on_exit=scene.on_exit
    )
    with pytest.raises(LookupError) as caught:
        await supervisor.run()
    assert caught.value is error
    assert error.__notes__ == [
        "app/b failed after 3 restarts; its supervisor gave up, as it tolerates 3 restarts within 5 s"
    ]
    assert scene.log[-4:] == ["+b", "-b", "-c", "-a"]
    assert [(end.restarts, end.will_restart) for end in scene.exits if end.name == "b"] == [
        (0, True),
        (1, True),
        (2, True),
        (3, False),
    ]
    assert supervisor.gave_up is not None
    assert (supervisor.gave_up.path, supervisor.gave_up.restarts) == ("app/b", 3)


async def test_failures_further_apart_than_the_period_allows_go_on_for_ever(autojump_clock: MockClock) -> None:
    scene = Scene()
    await live_for(Supervisor("app", [scene.child("a", fails(after=3))], max_restarts=2, period=5), 149)
    assert scene.log.count("+a") == 50


async def test_a_permanent_child_that_keeps_returning_is_given_up_too(autojump_clock: MockClock) -> None:
    with pytest.raises(RestartIntensityExceeded, match="app/a failed after 3 restarts"):
        await Supervisor("app", [Scene().child("a", returns())]).run()


async def test_no_restart_is_tolerated_with_an_intensity_of_zero(autojump_clock: MockClock) -> None:
    scene = Scene()
    with pytest.raises(ValueError, match="boom"):
        await Supervisor("app", [scene.child("a", fails())], max_restarts=0).run()
    assert scene.log == ["+a", "-a"]


async def test_one_failure_deep_in_nurseries_and_supervisors_arrives_as_itself(autojump_clock: MockClock) -> None:
    error = LookupError("deep")

    async def deep(task_status: trio.TaskStatus[None], depth: int = 4) -> None:
        async with trio.open_nursery() as nursery:
            if depth:
                await nursery.start(nested, depth - 1)
            else:
                nursery.start_soon(trio.sleep_forever)
                task_status.started()
                await trio.sleep(1)
                raise error
            task_status.started()

    async def nested(depth: int, *, task_status: trio.TaskStatus[None]) -> None:
        await deep(task_status, depth)

    scene = Scene()
    inner = ChildSpec("inner", lambda: Supervisor("inner", [scene.child("a", deep)], max_restarts=1))
    with pytest.raises(LookupError) as caught:
        await live_for(Supervisor("app", [inner], max_restarts=0), 10)
    assert caught.value is error
    assert [note.split(";")[0] for note in error.__notes__][-2:] == [
        "app/inner/a failed after 1 restarts",
        "app/inner failed after 0 restarts",
    ]


async def test_several_real_errors_arrive_as_one_group(autojump_clock: MockClock) -> None:
    async def both(task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(dirty)
            task_status.started()
            await trio.sleep(1)
            raise ValueError("one")

    async def dirty(*, task_status: trio.TaskStatus[None]) -> None:
        try:
            await forever(task_status)
        finally:
            raise LookupError("two")

    supervisor = Supervisor("app", [Scene().child("a", both)], max_restarts=0)
    with pytest.RaisesGroup(ValueError, LookupError) as caught:
        await live_for(supervisor, 2)
    assert caught.value.__notes__[0].startswith("app/a failed after 0 restarts")


async def test_levels_multiply_each_with_its_own_intensity(autojump_clock: MockClock) -> None:
    scene = Scene()
    inner = ChildSpec("inner", lambda: Supervisor("inner", [scene.child("a", fails())], max_restarts=1))
    with pytest.raises(ValueError, match="boom"):
        await Supervisor("app", [inner], max_restarts=2, period=60).run()
    assert scene.log.count("+a") == (1 + 1) * (1 + 2)


async def test_a_failure_of_the_supervisor_cancels_the_block_that_runs_it(autojump_clock: MockClock) -> None:
    with pytest.raises(ValueError, match="boom") as caught:
        async with Supervisor("app", [Scene().child("a", fails(after=3))], max_restarts=0).running():
            await trio.sleep_forever()
    assert trio.current_time() == 3
    assert caught.value.__context__ is None


# --- stopping -------------------------------------------------------------------------------------


async def test_a_cancellation_from_outside_stops_in_reverse_order_each_within_its_grace(
    autojump_clock: MockClock,
) -> None:
    scene = Scene()
    children = [scene.child("a", lingers(1)), scene.child("b", lingers(2)), scene.child("c", lingers(3))]
    supervisor = Supervisor("app", children, on_exit=scene.on_exit)
    with trio.move_on_after(10) as scope:
        await supervisor.run()
    assert scope.cancelled_caught
    assert trio.current_time() == 16
    assert scene.log == ["+a", "+b", "+c", "-c", "-b", "-a"]
    assert [(end.error, end.will_restart) for end in scene.exits] == [(None, False)] * 3


async def test_nested_supervisors_stop_in_reverse_order_as_one(autojump_clock: MockClock) -> None:
    scene = Scene()
    inner = ChildSpec(
        "inner",
        lambda: Supervisor("inner", [scene.child("b", lingers(1)), scene.child("c", lingers(1))]),
        shutdown=math.inf,
    )
    with trio.move_on_after(10):
        await Supervisor("app", [scene.child("a"), inner, scene.child("d")]).run()
    assert scene.log == ["+a", "+b", "+c", "+d", "-d", "-c", "-b", "-a"]
    assert trio.current_time() == 12


async def test_a_child_past_its_grace_is_shown_logged_and_waited_for(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    children = [scene.child("a"), scene.child("b", lingers(60), shutdown=2)]
    supervisor = Supervisor("app", children, on_exit=scene.on_exit)
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        supervisor.stop()
        await trio.sleep(3)
        tree = supervisor.tree()
        assert [(child.state, child.last_error) for child in tree.children] == [
            (ActorState.RUNNING, None),
            (ActorState.STOPPING, "ShutdownOverrun: app/b did not end within its grace period of 2 s"),
        ]
        assert "app/b did not end within its grace period of 2 s; waiting for it" in caplog.text
        assert scene.exits == []
    assert trio.current_time() == 60
    assert scene.log == ["+a", "+b", "-b", "-a"]
    assert [type(end.error) for end in scene.exits] == [ShutdownOverrun, type(None)]


async def test_a_child_that_fights_its_cancellation_costs_no_cpu_while_waited_for(autojump_clock: MockClock) -> None:
    steps = 0

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += 1

    instrument = Steps()
    supervisor = Supervisor("app", [Scene().child("a", lingers(1000), shutdown=1)])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        supervisor.stop()
        trio.lowlevel.add_instrument(instrument)
    trio.lowlevel.remove_instrument(instrument)
    assert trio.current_time() == 1000
    assert steps < 50


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_an_error_in_cleanup_during_shutdown_is_reported_not_lost(
    autojump_clock: MockClock, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    children = [scene.child("a"), scene.child("b", lingers(1, OSError("disk full"))), scene.child("c")]
    supervisor = Supervisor("app", children, on_exit=scene.on_exit)
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        if how == "stop":
            supervisor.stop()
        else:
            nursery.cancel_scope.cancel(reason="test")
    assert scene.log[3:] == ["-c", "-b", "-a"]
    assert [(end.name, repr(end.error), end.will_restart) for end in scene.exits] == [
        ("c", "None", False),
        ("b", "OSError('disk full')", False),
        ("a", "None", False),
    ]
    assert "app/b failed: OSError: disk full" in caplog.text


async def test_an_error_in_cleanup_after_giving_up_is_a_note_of_the_failure(autojump_clock: MockClock) -> None:
    scene = Scene()
    children = [scene.child("a", lingers(1, OSError("disk full"))), scene.child("b", fails())]
    with pytest.raises(ValueError, match="boom") as caught:
        await Supervisor("app", children, max_restarts=0).run()
    assert caught.value.__notes__[1:] == ["while stopping, app/a failed too: OSError: disk full"]


async def test_what_on_exit_raises_is_logged_and_changes_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(end: ChildExit) -> None:
        raise LookupError("in the callback")

    scene = Scene()
    await live_for(Supervisor("app", [scene.child("a", fails(), forever)], on_exit=broken), 5)
    assert scene.log == ["+a", "-a", "+a", "-a"]
    assert "in the callback" in caplog.text


async def test_ends_are_logged_by_their_weight(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "atrio.supervision")
    await live_for(Supervisor("app", [Scene().child("a", fails(), forever)]), 5)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "app/a failed: ValueError: boom; restarting it"),
        ("DEBUG", "app/a ended"),
    ]


async def test_a_keyboard_interrupt_in_a_child_stops_the_others_in_order_and_passes(autojump_clock: MockClock) -> None:
    async def interrupted(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep(1)
        raise KeyboardInterrupt

    scene = Scene()
    children = [scene.child("a"), scene.child("b", interrupted), scene.child("c", lingers(2))]
    supervisor = Supervisor("app", children, on_exit=scene.on_exit)
    with pytest.raises(BaseExceptionGroup) as caught:
        await supervisor.run()
    assert caught.value.split(KeyboardInterrupt)[0] is not None
    assert scene.log == ["+a", "+b", "+c", "-b", "-c", "-a"]
    assert [(end.name, type(end.error).__name__) for end in scene.exits] == [
        ("b", "KeyboardInterrupt"),
        ("c", "NoneType"),
        ("a", "NoneType"),
    ]


@pytest.mark.parametrize("way", ["end", "raise", "cancel"])
async def test_leaving_the_block_by_any_way_leaves_nothing_behind(autojump_clock: MockClock, way: str) -> None:
    scene = Scene()

    async def use() -> None:
        with trio.CancelScope() as scope:
            async with Supervisor("app", [scene.child("a"), scene.child("b", lingers(1))]).running():
                if way == "raise":
                    raise LookupError("in the block")
                if way == "cancel":
                    scope.cancel(reason="test")
                    await trio.sleep_forever()

    if way == "raise":
        with pytest.raises(LookupError, match="in the block"):
            await use()
    else:
        await use()
    assert scene.log == ["+a", "+b", "-b", "-a"]


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChildSpec("", no_actor),
        lambda: ChildSpec("a/b", no_actor),
        lambda: ChildSpec("a", no_actor, shutdown=-1),
        lambda: ChildSpec("a", no_actor, shutdown=math.nan),
        lambda: ChildSpec("a", no_actor, start_timeout=0),
        lambda: ChildSpec("a", no_actor, significant=True),
        lambda: Supervisor(""),
        lambda: Supervisor("a/b"),
        lambda: Supervisor("a", max_restarts=-1),
        lambda: Supervisor("a", period=0),
        lambda: Supervisor("a", [ChildSpec("twin", no_actor), ChildSpec("twin", no_actor)]),
    ],
)
def test_settings_that_make_no_sense_are_refused_when_made(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        make()
