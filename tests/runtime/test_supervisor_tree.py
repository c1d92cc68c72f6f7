"""What a supervisor shows of itself and of what is below."""

from __future__ import annotations

import attrs
import pytest
import trio
from tests.support.scene import Scene, fails, returns, slow
from trio.testing import MockClock, wait_all_tasks_blocked

from atrio.runtime.actor import FunctionActor, Status
from atrio.runtime.errors import ReplyDropped
from atrio.runtime.mailbox import Address, Inbox, Reply, open_mailbox, open_reply
from atrio.runtime.supervisor import ActorInfo, ActorState, ChildSpec, Restart, Strategy, Supervisor, render


@attrs.define
class Waiter:
    """An actor that shows everything there is to show."""

    inbox: Inbox[str]
    status: Status = attrs.field(factory=Status)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        with self.status.waiting("disk"):
            await trio.sleep(2)
        await trio.sleep(2)
        with self.status.waiting("model stream", until=trio.current_time() + 90):
            await trio.sleep_forever()


async def test_the_tree_tells_state_wait_deadline_and_inbox(autojump_clock: MockClock) -> None:
    address: Address[str]
    address, inbox = open_mailbox(5, name="waiter")
    address.offer("unread")
    async with Supervisor("app", [ChildSpec("waiter", lambda: Waiter(inbox))]).running() as supervisor:
        seen = []
        for _ in range(3):
            await trio.sleep(1)
            (child,) = supervisor.tree().children
            seen.append((child.state, child.since, child.waiting_for, child.until, child.inbox_depth))
            await trio.sleep(1)
        assert seen == [
            (ActorState.WAITING, 0, "disk", None, 1),
            (ActorState.RUNNING, 0, None, None, 1),
            (ActorState.WAITING, 4, "model stream", 94, 1),
        ]


async def test_the_tree_follows_a_child_through_its_life(autojump_clock: MockClock) -> None:
    scene = Scene()
    children = [
        scene.child("a", fails(after=1), slow(2), returns(after=2), restart=Restart.TRANSIENT),
        scene.child("b", fails(LookupError("gone"), after=1), fails(after=9, ready=False)),
    ]
    supervisor = Supervisor("app", children, strategy=Strategy.ONE_FOR_ONE)

    def states() -> list[tuple[str, str, int]]:
        return [(child.name, child.state.value, child.restarts) for child in supervisor.tree().children]

    assert supervisor.tree().state is ActorState.STOPPED
    async with supervisor.running():
        assert states() == [("a", "running", 0), ("b", "running", 0)]
        await trio.sleep(2)
        assert sorted(states()) == [("a", "starting", 1), ("b", "restarting", 0)] or sorted(states()) == [
            ("a", "restarting", 0),
            ("b", "starting", 1),
        ]
        assert {child.last_error for child in supervisor.tree().children} == {"ValueError: boom", "LookupError: gone"}
    assert supervisor.tree().state is ActorState.STOPPED


async def test_a_finished_child_and_a_failed_supervisor_say_so(autojump_clock: MockClock) -> None:
    scene = Scene()
    children = [scene.child("a", returns(after=1), restart=Restart.TRANSIENT), scene.child("b", fails(after=3))]
    supervisor = Supervisor("app", children, max_restarts=0)
    with pytest.raises(ValueError, match="boom"):
        await supervisor.run()
    tree = supervisor.tree()
    assert [(info.path, info.state.value) for info in tree] == [
        ("app", "failed"),
        ("app/a", "finished"),
        ("app/b", "failed"),
    ]
    assert tree.last_error == (
        "app/b failed after 0 restarts; its supervisor gave up, as it tolerates 0 restarts within 5 s"
    )


async def test_a_child_whose_restart_never_came_is_shown_as_failed(autojump_clock: MockClock) -> None:
    scene = Scene()
    children = [scene.child("a", fails(after=1), slow(5)), scene.child("b", fails(after=2))]
    supervisor = Supervisor("app", children)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await trio.sleep(3)
        supervisor.stop()
    assert [(info.name, info.state.value) for info in supervisor.tree().children] == [("a", "stopped"), ("b", "failed")]


@attrs.define
class Session:
    """An actor that runs a supervisor inside, as a session runs a run."""

    scene: Scene
    inner: Supervisor | None = None

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        async with Supervisor("run", [self.scene.child("loop")]).running() as self.inner:
            await trio.sleep_forever()

    def tree(self) -> ActorInfo:
        assert self.inner is not None
        return ActorInfo(
            name="session", path="", state=ActorState.RUNNING, taken=0, since=0, children=(self.inner.tree(),)
        )


async def test_paths_lead_through_supervisors_and_through_actors_that_run_one(autojump_clock: MockClock) -> None:
    scene = Scene()
    engine = ChildSpec("engine", lambda: Supervisor("engine-supervisor", [scene.child("streamer")]))
    session = ChildSpec("session", lambda: Session(scene))
    async with Supervisor("app", [engine, session]).running() as supervisor:
        await wait_all_tasks_blocked()
        assert [info.path for info in supervisor.tree()] == [
            "app",
            "app/engine",
            "app/engine/streamer",
            "app/session",
            "app/session/run",
            "app/session/run/loop",
        ]
        found = supervisor.tree().find("app/session/run")
        assert found is not None
        assert found.name == "run"
        assert supervisor.tree().find("app/nothing") is None


def test_a_drawing_has_one_line_for_each_actor() -> None:
    base = ActorInfo(name="", path="", state=ActorState.RUNNING, taken=12.0, since=2.0)
    waiting = attrs.evolve(base, state=ActorState.WAITING)
    recorder = attrs.evolve(waiting, name="recorder", waiting_for="fsync", until=20.0, inbox_depth=3)
    streamer = attrs.evolve(base, name="streamer", restarts=2, last_error="OSError: reset\nmore")
    executor = attrs.evolve(waiting, name="executor", waiting_for="a tool", until=11.5)
    engine = attrs.evolve(base, name="engine", children=(streamer, executor))
    empty = attrs.evolve(base, name="empty", last_error="")
    tree = attrs.evolve(base, name="app", children=(recorder, engine, empty))
    assert render(tree).splitlines() == [
        "app             running 10.0 s",
        "├─ recorder     waiting 10.0 s for fsync, 8.0 s left · inbox 3",
        "├─ engine       running 10.0 s",
        "│  ├─ streamer  running 10.0 s · restarts 2 · last error: OSError: reset",
        "│  └─ executor  waiting 10.0 s for a tool, 0.5 s overdue",
        "└─ empty        running 10.0 s · last error: ",
    ]


async def test_waits_of_several_tasks_may_end_in_any_order(autojump_clock: MockClock) -> None:
    status = Status()

    async def wait(reason: str, seconds: float) -> None:
        with status.waiting(reason):
            await trio.sleep(seconds)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "long", 5)
        await trio.sleep(1)
        nursery.start_soon(wait, "short", 1)
        for moment, reason in ((0.5, "short"), (1, "long"), (5, None)):
            await trio.sleep(moment)
            assert (status.current.reason if status.current else None) == reason
        nursery.start_soon(wait, "first to end", 1)
        await trio.sleep(0.5)
        nursery.start_soon(wait, "last to begin", 2)
        await trio.sleep(1)
        assert [one.reason for one in status.waits] == ["last to begin"]


async def test_a_wait_may_move_its_deadline(autojump_clock: MockClock) -> None:
    status = Status()
    with status.waiting("stream", until=5.0) as wait:
        await trio.sleep(3)
        wait.until = 8.0
        assert status.current is wait
    assert status.current is None


# --- mailboxes across restarts --------------------------------------------------------------------


@attrs.frozen
class Job:
    text: str
    reply: Reply[str]


async def test_a_restarted_actor_finds_the_messages_its_predecessor_left(autojump_clock: MockClock) -> None:
    inbox: Inbox[Job]
    address, inbox = open_mailbox(5, name="worker")

    async def work(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        async for job in inbox:
            with job.reply as reply:
                if job.text == "poison":
                    raise ValueError("boom")
                reply.put(job.text.upper())

    with inbox, address:
        async with Supervisor("app", [ChildSpec("worker", lambda: FunctionActor(work))]).running() as supervisor:
            answers = []
            for text in ("one", "poison", "two"):
                reply: Reply[str]
                reply, pending = open_reply()
                await address.send(Job(text, reply))
                answers.append(pending)
            assert await answers[0].get() == "ONE"
            with pytest.raises(ReplyDropped):
                await answers[1].get()
            assert await answers[2].get() == "TWO"
            assert supervisor.tree().children[0].restarts == 1
