"""
Supervisors: they start actors in order, restart those that fail, and stop them in reverse order.

Restart types, strategies and intensity are OTP's; ``docs/supervision.md`` says where this differs and why. Nothing
here knows about language models: a supervisor serves any Trio program.

The supervisor is an actor too, so supervisors nest. One Trio task makes all moves, one after the other: starting,
stopping, restarting, and what the methods ask for. A child's end is judged and reported in the child's own task,
at once and without a checkpoint, so that no end is lost, not even one that comes in the middle of a shutdown.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NoReturn

import attrs
import trio

from .child import Child, describe_error, path_for
from .childspec import ChildExit, ChildSpec, Restart, Strategy, wants_restart
from .errors import (
    ChildRejected,
    ConfigError,
    InvariantError,
    ReplyDropped,
    RestartIntensityExceeded,
    ShutdownOverrun,
    StartFailed,
    StartTimedOut,
    SupervisionError,
    SupervisorNotRunning,
)
from .groups import collapse
from .intensity import RestartWindow
from .mailbox import Pending, Reply, open_reply
from .tree import ActorInfo, ActorState, render

__all__ = [
    "ActorInfo",
    "ActorState",
    "ChildExit",
    "ChildSpec",
    "Restart",
    "Strategy",
    "Supervisor",
    "render",
]

MAX_RESTARTS: Final = 3
PERIOD: Final = 5.0

_log: Final = logging.getLogger("atrio.supervision")
_log.addHandler(logging.NullHandler())  # a library prints nothing unless the program asks for it


def _raise_as_it_is(error: BaseException) -> NoReturn:
    """Raise an error again without putting what is being handled now in the place of its own context."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context
        del error, context  # its traceback holds this frame


@attrs.define(eq=False)
class _Request:
    """
    Something a method asks of the supervisor's task.

    ``abandoned``: nobody waits for it any more. ``child``: the one it starts, if it is of that kind; ``adopts`` if
    that one was not known before.
    """

    work: Callable[[_Request], Awaitable[SupervisionError | None]]
    reply: Reply[SupervisionError | None]
    pending: Pending[SupervisionError | None]
    abandoned: bool = False
    child: Child | None = None
    adopts: bool = False


@attrs.define(eq=False)
class Supervisor:
    """
    Runs children under a restart strategy.

    Args:
        name: its name at the root, or below an actor that runs it; as a child it has the child's path.
        children: started in this order, stopped in the reverse.
        strategy: who is restarted together.
        max_restarts: this many failures that call for a restart are tolerated within ``period`` seconds; at one
            more the children are stopped and the failure goes up.
        on_exit: called at every end of every child, in the child's task, before anything is done about it. It must
            not block; what it raises is logged and otherwise ignored.
    """

    name: str
    children: Sequence[ChildSpec] = ()
    strategy: Strategy = attrs.field(default=Strategy.ONE_FOR_ONE, kw_only=True)
    max_restarts: int = attrs.field(default=MAX_RESTARTS, kw_only=True)
    period: float = attrs.field(default=PERIOD, kw_only=True)
    on_exit: Callable[[ChildExit], None] | None = attrs.field(default=None, kw_only=True)

    path: str = attrs.field(init=False)
    gave_up: RestartIntensityExceeded | None = attrs.field(init=False, default=None)
    _state: ActorState = attrs.field(init=False, default=ActorState.STOPPED)
    _since: float = attrs.field(init=False, default=0.0)
    _nursery: trio.Nursery | None = attrs.field(init=False, default=None)
    _wake: trio.Event | None = attrs.field(init=False, default=None)
    _children: dict[str, Child] = attrs.field(init=False, factory=dict)
    _to_restart: set[Child] = attrs.field(init=False, factory=set)
    _requests: deque[_Request] = attrs.field(init=False, factory=deque)
    _window: RestartWindow = attrs.field(init=False)
    _failure: Exception | None = attrs.field(init=False, default=None)
    _stop_reason: str | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise ConfigError(f"supervisor {self.name!r}", "a supervisor's name is not empty and has no slash")
        names = [spec.name for spec in self.children]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"supervisor {self.name!r}", f"two children are called {name!r}")
        self.path = self.name
        self._window = RestartWindow(self.max_restarts, self.period)

    # --- life -------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """
        Start the children, keep them running, and stop them: the whole life of a supervisor, as often as wanted.

        Returns after `stop`, or when a significant child has ended. If cancelled, the children are stopped first,
        in reverse order and each within its grace period, and then the cancellation passes.

        Raises:
            StartFailed, StartTimedOut: a child did not start; those already started were stopped.
            Exception: the error of a child that failed once too often, with the child's path in a note. If the
                child had returned instead of failing, `RestartIntensityExceeded`.
        """
        if self._nursery is not None:
            raise InvariantError(f"supervisor {self.path} is running already")
        self._reset()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    await self._manage(task_status)
                finally:
                    # No limit here: each child's own grace limits its stop, and past that we wait in sight of all.
                    with trio.CancelScope(shield=True):
                        await self._stop_all()  # noqa: ASYNC102
        finally:
            self._nursery = None
            self._enter(ActorState.STOPPED if self._failure is None else ActorState.FAILED)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            _raise_as_it_is(failure)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Supervisor]:
        """
        Run it for the length of an ``async with`` block, which begins when the children are ready.

        At the end of the block the children are stopped. If the supervisor fails, the block is cancelled and the
        failure raised, without a group around it. If cancelled, as `run`.
        """
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.run)
                try:
                    yield self
                finally:
                    self.stop("the block that ran it has ended")
        except BaseExceptionGroup as group:
            _raise_as_it_is(collapse(group))

    def stop(self, reason: str = "told to stop") -> None:
        """Ask for an orderly end: `run` stops the children and returns. Does nothing if it isn't running."""
        if self._nursery is not None and self._stop_reason is None:
            self._stop_reason = reason
            self._notify()

    def _reset(self) -> None:
        self.path = path_for(self.name, self)
        self.gave_up = self._failure = self._stop_reason = None
        self._children = {}
        self._to_restart = set()
        self._requests.clear()
        self._window = RestartWindow(self.max_restarts, self.period)
        self._enter(ActorState.STARTING)
        for spec in self.children:
            self._adopt(spec)

    def _enter(self, state: ActorState) -> None:
        self._state = state
        self._since = trio.current_time()

    @property
    def _over(self) -> bool:
        return self._failure is not None or self._stop_reason is not None

    # --- the supervisor's task --------------------------------------------------------------------

    async def _manage(self, task_status: trio.TaskStatus[None]) -> None:
        for child in list(self._children.values()):
            if not await self._start(child, again=False):
                if not self._over:
                    self._failure = child.start_error
                return
        self._enter(ActorState.RUNNING)
        task_status.started()
        while not self._over:
            if self._to_restart:
                await self._restart_step()
            elif self._requests:
                await self._perform(self._requests.popleft())
            else:
                await self._until(lambda: self._over or bool(self._to_restart) or bool(self._requests))

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            self._wake = trio.Event()
            await self._wake.wait()

    def _notify(self) -> None:
        if self._wake is not None:
            self._wake.set()

    async def _start(self, child: Child, *, again: bool, request: _Request | None = None) -> bool:
        """Start a child and wait until it is ready. False if it isn't: it failed, or the wait was given up."""
        if self._over or self._nursery is None:
            return False
        child.launch(self._nursery, again=again)

        def settled() -> bool:
            return child.ready or not child.alive or self._over or (request is not None and request.abandoned)

        with trio.move_on_after(child.spec.start_timeout):
            await self._until(settled)
        if not settled():
            child.start_error = StartTimedOut(child.path, child.spec.start_timeout)
            await self._stop(child, "it did not report ready in time")
        return child.ready

    async def _stop(self, child: Child, reason: str) -> None:
        """Tell a child to stop and wait until it has ended; report it, and wait on, if that takes too long."""
        if child.alive and not child.told:
            child.tell(reason)
        with trio.move_on_after(child.spec.shutdown):
            await self._until(lambda: not child.alive)
        if child.alive and child.overrun is None:
            child.overrun = ShutdownOverrun(child.path, child.spec.shutdown)
            child.last_error = describe_error(child.overrun)
            _log.error("%s; waiting for it", child.overrun)
        await self._until(lambda: not child.alive)

    async def _restart_step(self) -> None:
        """
        One move towards having every child in ``_to_restart`` run again: stop the last that still runs, else start
        the first. One at a time, since each wait may bring another failure and with it a larger group.
        """
        group = [child for child in self._children.values() if child in self._to_restart]
        running = [child for child in group if child.alive]
        if running:
            await self._stop(running[-1], "restarting, as a sibling failed")
        else:
            child = group[0]
            self._to_restart.discard(child)
            child.restarts += 1
            await self._start(child, again=True)

    async def _stop_all(self) -> None:
        self._enter(ActorState.STOPPING)
        if self._stop_reason is None:
            self._stop_reason = "its supervisor was cancelled" if self._failure is None else "a sibling failed for good"
        for child in reversed(list(self._children.values())):
            if child.alive:
                await self._stop(child, self._stop_reason)
            elif child.state is ActorState.RESTARTING:
                child.enter(ActorState.FAILED)
        while self._requests:
            self._requests.popleft().reply.close()

    # --- a child's end ----------------------------------------------------------------------------

    def _ended(self, child: Child, error: BaseException | None) -> None:
        """Judge, report and note the end of a child's run. Runs in the child's task and has no checkpoint."""
        error = self._named_error(child, error)
        will_restart = self._judge(child, error)
        if will_restart:
            child.enter(ActorState.RESTARTING)
        elif error is not None and not child.told:
            child.enter(ActorState.FAILED)
        else:
            child.enter(ActorState.STOPPED if child.told else ActorState.FINISHED)
        if error is not None:
            child.last_error = describe_error(error)
        self._report(
            ChildExit(
                name=child.spec.name,
                path=child.path,
                error=error,
                restarts=child.restarts,
                will_restart=will_restart,
            )
        )
        self._notify()

    def _named_error(self, child: Child, error: BaseException | None) -> BaseException | None:
        """The error to report: the child's own, or what its supervisor has to say about the way it ended."""
        if isinstance(child.start_error, StartTimedOut):
            child.start_error.__cause__ = error
            return child.start_error
        if child.overrun is not None:
            child.overrun.__cause__ = error
            return child.overrun
        if child.told or child.ready:
            return error
        if isinstance(error, StartFailed | StartTimedOut) and error.path.startswith(f"{child.path}/"):
            child.start_error = error  # from below, and it names the place already
            return error
        reason = "it returned before it reported ready" if error is None else describe_error(error)
        child.start_error = StartFailed(child.path, reason)
        child.start_error.__cause__ = error
        return child.start_error if error is None else error

    def _judge(self, child: Child, error: BaseException | None) -> bool:
        """Whether the child will run again; notes what follows from that for the others."""
        restart = child.spec.restart
        if restart is Restart.TEMPORARY:
            self._forget(child)
        if error is not None and not isinstance(error, Exception):
            return False  # KeyboardInterrupt or SystemExit: it ends the nursery, and with it the supervisor
        if self._over:
            if error is not None and self._failure is not None:
                self._failure.add_note(f"while stopping, {child.path} failed too: {describe_error(error)}")
            return False
        if child in self._to_restart:
            return True  # told to stop for its group's restart, or failed while the group waits: counts once
        started = child.ready
        if (child.told and child.start_error is None) or (not started and not child.again):
            return False  # stopped by request; or a first start, whose failure goes to whoever asked for it
        if started and not wants_restart(restart, failed=error is not None):
            if child.spec.significant:
                self._stop_reason = f"{child.path} has ended, and it is significant"
            return False
        return self._count_failure(child, error)

    def _count_failure(self, child: Child, error: Exception | None) -> bool:
        self._window = self._window.record(trio.current_time())
        if not self._window.exceeded:
            self._to_restart.update(self._group_of(child))
            return True
        self.gave_up = RestartIntensityExceeded(child.path, child.restarts, self.max_restarts, self.period)
        self._failure = error if error is not None else self.gave_up
        if error is not None:
            error.add_note(str(self.gave_up))
        return False

    def _group_of(self, failed: Child) -> list[Child]:
        """Who is restarted together with ``failed``, itself included, in start order."""
        everyone = list(self._children.values())
        if self.strategy is Strategy.ONE_FOR_ALL:
            return everyone
        if self.strategy is Strategy.REST_FOR_ONE:
            return everyone[everyone.index(failed) :]
        return [failed]

    def _report(self, end: ChildExit) -> None:
        if end.error is None:
            _log.debug("%s ended", end.path)
        else:
            following = "; restarting it" if end.will_restart else ""
            _log.warning("%s failed: %s%s", end.path, describe_error(end.error), following, exc_info=end.error)
        if self.on_exit is not None:
            try:
                self.on_exit(end)
            except Exception:
                _log.exception("on_exit of supervisor %s failed at the end of %s", self.path, end.path)

    # --- requests from other tasks ----------------------------------------------------------------

    async def start_child(self, spec: ChildSpec) -> None:
        """
        Add a child after the present ones and start it; returns when it is ready.

        If cancelled, the child is stopped and removed again, which may take its grace period after this returned.
        Must not be called by a child that has not reported ready: the supervisor waits for that one first.

        Raises:
            StartFailed, StartTimedOut: it did not start, and was not kept.
            ChildRejected: the name is taken.
            SupervisorNotRunning: the supervisor does not run, or ended meanwhile.
        """
        await self._ask(lambda request: self._add(spec, request))

    async def terminate_child(self, name: str) -> None:
        """
        Stop a child and keep its spec (unless it is temporary); returns when it has ended.

        If cancelled, the child is stopped all the same. Its later restart is up to `restart_child`, or to a
        restart of its group.

        Raises:
            ChildRejected: there is no such child.
            SupervisorNotRunning: as `start_child`.
        """
        await self._ask(lambda request: self._terminate(name))

    async def restart_child(self, name: str) -> None:
        """
        Start a child again that was terminated or has ended; returns when it is ready.

        If cancelled, the child is stopped again and its spec kept.

        Raises:
            ChildRejected: there is no such child, or it is running.
            StartFailed, StartTimedOut: it did not start; its spec is kept.
            SupervisorNotRunning: as `start_child`.
        """
        await self._ask(lambda request: self._start_again(name, request))

    async def delete_child(self, name: str) -> None:
        """
        Forget the spec of a child that doesn't run. If cancelled, it is forgotten all the same.

        Raises:
            ChildRejected: there is no such child, or it is running.
            SupervisorNotRunning: as `start_child`.
        """
        await self._ask(lambda request: self._delete(name))

    async def _ask(self, work: Callable[[_Request], Awaitable[SupervisionError | None]]) -> None:
        if self._nursery is None or self._over:
            raise SupervisorNotRunning(self.path)
        request = _Request(work, *open_reply())
        self._requests.append(request)
        self._notify()
        answered = False
        try:
            error = await request.pending.get()
            answered = True
        except ReplyDropped:
            raise SupervisorNotRunning(self.path) from None
        finally:
            if not answered:
                self._abandon(request)
        if error is not None:
            raise error

    def _abandon(self, request: _Request) -> None:
        request.abandoned = True
        if request.child is not None and request.pending.settled:  # cancelled before the answer was heard
            self._requests.append(_Request(lambda _: self._withdraw(request), *open_reply()))
        self._notify()

    async def _perform(self, request: _Request) -> None:
        with request.reply as reply:
            reply.put(await request.work(request))

    def _adopt(self, spec: ChildSpec) -> Child:
        child = Child(spec=spec, path=f"{self.path}/{spec.name}", ended=self._ended, changed=self._notify)
        self._children[spec.name] = child
        return child

    def _forget(self, child: Child) -> None:
        self._children.pop(child.spec.name, None)
        self._to_restart.discard(child)

    def _no_such(self, name: str) -> ChildRejected:
        return ChildRejected(f"{self.path}/{name}", "there is no such child")

    async def _add(self, spec: ChildSpec, request: _Request) -> SupervisionError | None:
        if spec.name in self._children:
            return ChildRejected(f"{self.path}/{spec.name}", "a child of this name exists already")
        child = self._adopt(spec)
        request.adopts = True
        error = await self._start_for(child, request)
        if error is not None and not child.alive:  # one that lives on is stopped with all the others
            self._forget(child)
        return error

    async def _start_again(self, name: str, request: _Request) -> SupervisionError | None:
        child = self._children.get(name)
        if child is None:
            return self._no_such(name)
        if child.alive:
            return ChildRejected(child.path, "it is running; terminate it first")
        return await self._start_for(child, request)

    async def _start_for(self, child: Child, request: _Request) -> SupervisionError | None:
        """Start a child for whoever waits for ``request``; nobody waiting means it must not run."""
        request.child = child
        if not request.abandoned:
            await self._start(child, again=False, request=request)
        if request.abandoned:
            await self._withdraw(request)
        if self._over:
            return SupervisorNotRunning(self.path)
        return child.start_error

    async def _withdraw(self, request: _Request) -> None:
        """Undo a start that nobody heard of."""
        child = request.child
        if child is not None:
            await self._stop(child, "whoever asked for its start was cancelled")
            self._to_restart.discard(child)
            if request.adopts:
                self._forget(child)

    async def _terminate(self, name: str) -> SupervisionError | None:
        child = self._children.get(name)
        if child is None:
            return self._no_such(name)
        await self._stop(child, "terminated by request")
        return None

    async def _delete(self, name: str) -> SupervisionError | None:
        child = self._children.get(name)
        if child is None:
            return self._no_such(name)
        if child.alive:
            return ChildRejected(child.path, "it is running; terminate it first")
        self._forget(child)
        return None

    # --- inspection -------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """It has begun to stop its children, last to first; those before them still run."""
        return self._state is ActorState.STOPPING

    def tree(self) -> ActorInfo:
        """The supervisor and everything below it, as it is now."""
        return ActorInfo(
            name=self.name,
            path=self.path,
            state=self._state,
            taken=trio.current_time(),
            since=self._since,
            last_error=str(self.gave_up) if self.gave_up is not None else None,
            children=tuple(child.info() for child in self._children.values()),
        )
