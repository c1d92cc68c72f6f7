"""Children that come and go while the supervisor runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from tests.support.scene import Scene, fails, forever, lingers, returns, slow
from trio.testing import MockClock, wait_all_tasks_blocked

from atrio.runtime.errors import ChildRejected, StartFailed, StartTimedOut, SupervisorNotRunning
from atrio.runtime.supervisor import ActorState, Restart, Strategy, Supervisor


def names(supervisor: Supervisor) -> list[str]:
    return [child.name for child in supervisor.tree().children]


async def test_a_started_child_is_ready_on_return_and_stops_before_those_it_came_after(
    autojump_clock: MockClock,
) -> None:
    scene = Scene()
    async with Supervisor("app", [scene.child("a")]).running() as supervisor:
        await supervisor.start_child(scene.child("b", slow(3)))
        assert trio.current_time() == 3
        assert supervisor.tree().children[1].state is ActorState.RUNNING
    assert scene.log == ["+a", "+b", "-b", "-a"]


async def test_a_child_started_later_is_restarted_like_any_other(autojump_clock: MockClock) -> None:
    scene = Scene()
    async with Supervisor("app", [scene.child("a")], strategy=Strategy.ONE_FOR_ALL).running() as supervisor:
        await supervisor.start_child(scene.child("b", fails(), forever))
        await trio.sleep(2)
        assert scene.log == ["+a", "+b", "-b", "-a", "+a", "+b"]


async def test_a_child_that_fails_to_start_on_request_fails_the_request_only(autojump_clock: MockClock) -> None:
    scene = Scene()
    async with Supervisor("app", [scene.child("a")], on_exit=scene.on_exit).running() as supervisor:
        with pytest.raises(StartFailed, match="app/b did not start: ValueError: boom"):
            await supervisor.start_child(scene.child("b", fails(ready=False)))
        with pytest.raises(StartTimedOut, match="app/b"):
            await supervisor.start_child(scene.child("b", slow(60), start_timeout=2))
        with pytest.raises(ChildRejected, match="app/a: a child of this name exists already"):
            await supervisor.start_child(scene.child("a"))
        assert names(supervisor) == ["a"]
        assert [(end.name, end.will_restart) for end in scene.exits] == [("b", False), ("b", False)]


async def test_a_terminated_child_stays_down_until_it_is_restarted_or_deleted(autojump_clock: MockClock) -> None:
    scene = Scene()
    async with Supervisor("app", [scene.child("a"), scene.child("b", lingers(2))]).running() as supervisor:
        await supervisor.terminate_child("b")
        assert trio.current_time() == 2
        assert supervisor.tree().children[1].state is ActorState.STOPPED
        await supervisor.restart_child("b")
        assert scene.log == ["+a", "+b", "-b", "+b"]
        await supervisor.terminate_child("b")
        await supervisor.terminate_child("b")
        await supervisor.delete_child("b")
        assert names(supervisor) == ["a"]


async def test_requests_about_the_wrong_child_say_what_is_wrong(autojump_clock: MockClock) -> None:
    scene = Scene()
    async with Supervisor("app", [scene.child("a")]).running() as supervisor:
        wrong: list[tuple[Callable[[str], Awaitable[None]], str, str]] = [
            (supervisor.terminate_child, "x", "app/x: there is no such child"),
            (supervisor.restart_child, "x", "app/x: there is no such child"),
            (supervisor.delete_child, "x", "app/x: there is no such child"),
            (supervisor.restart_child, "a", "app/a: it is running; terminate it first"),
            (supervisor.delete_child, "a", "app/a: it is running; terminate it first"),
        ]
        for request, name, problem in wrong:
            with pytest.raises(ChildRejected) as caught:
                await request(name)
            assert str(caught.value) == problem
        assert scene.log == ["+a"]


async def test_a_terminated_temporary_child_is_forgotten_and_its_name_free(autojump_clock: MockClock) -> None:
    scene = Scene()
    async with Supervisor("app").running() as supervisor:
        await supervisor.start_child(scene.child("work", restart=Restart.TEMPORARY))
        await supervisor.terminate_child("work")
        await supervisor.start_child(scene.child("work", returns(), restart=Restart.TEMPORARY))
        await trio.sleep(2)
        assert names(supervisor) == []
    assert scene.log == ["+work", "-work"] * 2


async def test_a_restart_on_request_that_fails_keeps_the_spec_and_costs_no_intensity(autojump_clock: MockClock) -> None:
    scene = Scene()
    child = scene.child("a", returns(), fails(ready=False), forever, restart=Restart.TRANSIENT)
    async with Supervisor("app", [child], max_restarts=0).running() as supervisor:
        await trio.sleep(2)
        with pytest.raises(StartFailed, match="app/a"):
            await supervisor.restart_child("a")
        await supervisor.restart_child("a")
        tree = supervisor.tree().children[0]
        assert (tree.state, tree.restarts) == (ActorState.RUNNING, 0)


async def test_a_terminated_child_comes_back_with_its_group(autojump_clock: MockClock) -> None:
    scene = Scene()
    children = [scene.child("a", fails(after=5), forever), scene.child("b")]
    async with Supervisor("app", children, strategy=Strategy.ONE_FOR_ALL).running() as supervisor:
        await supervisor.terminate_child("b")
        await trio.sleep(6)
        assert scene.log == ["+a", "+b", "-b", "-a", "+a", "+b"]


async def test_giving_up_a_start_stops_and_forgets_the_child(autojump_clock: MockClock) -> None:
    scene = Scene()
    async with Supervisor("app").running() as supervisor:
        with trio.move_on_after(2) as patience:
            await supervisor.start_child(scene.child("a", slow(10)))
        assert patience.cancelled_caught
        await wait_all_tasks_blocked()
        assert scene.log == ["+a", "-a"]
        assert names(supervisor) == []


@pytest.mark.parametrize("steps", range(30))
async def test_a_start_given_up_at_any_moment_leaves_no_child(autojump_clock: MockClock, steps: int) -> None:
    scene = Scene()
    async with Supervisor("app").running() as supervisor:
        started = False
        async with trio.open_nursery() as nursery:

            async def give_up() -> None:
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel(reason="test")

            nursery.start_soon(give_up)
            await supervisor.start_child(scene.child("a"))
            started = True
        await wait_all_tasks_blocked()
        assert names(supervisor) == (["a"] if started else [])
        assert scene.log in ([["+a"]] if started else [[], ["+a", "-a"]])


async def test_giving_up_a_termination_does_not_undo_it(autojump_clock: MockClock) -> None:
    scene = Scene()
    async with Supervisor("app", [scene.child("a", lingers(3))]).running() as supervisor:
        with trio.move_on_after(1):
            await supervisor.terminate_child("a")
        await trio.sleep(5)
        assert scene.log == ["+a", "-a"]
        assert supervisor.tree().children[0].state is ActorState.STOPPED


async def test_requests_to_a_supervisor_that_does_not_run_are_refused(autojump_clock: MockClock) -> None:
    scene = Scene()
    supervisor = Supervisor("app")
    with pytest.raises(SupervisorNotRunning, match="supervisor app is not running"):
        await supervisor.start_child(scene.child("a"))
    async with supervisor.running():
        pass
    with pytest.raises(SupervisorNotRunning):
        await supervisor.terminate_child("a")
    supervisor.stop()


@pytest.mark.parametrize("waiting_behind_another", [False, True])
async def test_requests_open_at_the_end_are_refused_and_leave_no_child(
    autojump_clock: MockClock, waiting_behind_another: bool
) -> None:
    scene = Scene()
    refused: list[str] = []

    async def ask(name: str) -> None:
        try:
            await supervisor.start_child(scene.child(name, slow(20)))
        except SupervisorNotRunning:
            refused.append(name)

    supervisor = Supervisor("app")
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        nursery.start_soon(ask, "a")
        await wait_all_tasks_blocked()
        if waiting_behind_another:
            nursery.start_soon(ask, "b")
            await wait_all_tasks_blocked()
        supervisor.stop()
    assert refused == (["a", "b"] if waiting_behind_another else ["a"])
    assert scene.log == ["+a", "-a"]


async def test_a_child_may_ask_its_own_supervisor_even_to_terminate_itself(autojump_clock: MockClock) -> None:
    scene = Scene()

    async def asks(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await supervisor.start_child(scene.child("helper"))
        await supervisor.terminate_child("a")

    supervisor = Supervisor("app", [scene.child("a", asks)])
    async with supervisor.running():
        await trio.sleep(1)
        assert scene.log == ["+a", "+helper", "-a"]
