"""
One supervised child: the Trio task it runs in, its readiness, and its record over all its restarts.

Decides nothing: what an end means is its supervisor's business (`supervisor`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import attrs
import trio

from .actor import Actor, HasDepth, Inspectable, Status, Wait
from .childspec import ChildSpec
from .errors import ShutdownOverrun, StartFailed, StartTimedOut
from .groups import collapse
from .tree import ActorInfo, ActorState

__all__ = ["Child", "describe_error", "path_for"]

# The path of the child this Trio task lives in, and its actor: names things, steers nothing.
_owner: Final[ContextVar[tuple[str, Actor] | None]] = ContextVar("atrio_owner", default=None)


def path_for(name: str, actor: Actor) -> str:
    """The path of a supervisor called ``name``: its own as a child, below the actor that runs it, or a root's."""
    owner = _owner.get()
    if owner is None:
        return name
    path, owning = owner
    return path if owning is actor else f"{path}/{name}"


def describe_error(error: BaseException) -> str:
    """An error as the tree shows it."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Readiness:
    """The ``task_status`` of one run. Trio's own would move the task between nurseries, under two cancellations."""

    __slots__ = ("_child", "_used")

    def __init__(self, child: Child) -> None:
        self._child = child
        self._used = False

    def started(self, value: None = None) -> None:
        if self._used:
            raise RuntimeError(f"{self._child.path} reported ready twice")
        self._used = True
        self._child.report_ready(self)


@attrs.define(eq=False)
class Child:
    """
    The record of one child, over all its runs.

    Args:
        ended: called once at the end of each run, in the child's task, without a checkpoint after the end.
        changed: called when the child reported ready.
    """

    spec: ChildSpec
    path: str
    ended: Callable[[Child, BaseException | None], None]
    changed: Callable[[], None]
    state: ActorState = ActorState.STOPPED
    since: float = attrs.field(factory=trio.current_time)
    restarts: int = 0
    last_error: str | None = None
    # Of the current run:
    alive: bool = False
    ready: bool = False
    again: bool = False
    told: bool = False
    start_error: StartFailed | StartTimedOut | None = None
    overrun: ShutdownOverrun | None = None
    _actor: Actor | None = None
    _scope: trio.CancelScope | None = None
    _readiness: _Readiness | None = None

    def enter(self, state: ActorState) -> None:
        """Note a change of state, and when."""
        if state is not self.state:
            self.state = state
            self.since = trio.current_time()

    def launch(self, nursery: trio.Nursery, *, again: bool) -> None:
        """
        Begin a new run.

        Shielded for its whole life, so that a cancellation from outside reaches it only through `tell`, in its turn.
        """
        self.alive = True
        self.ready = self.told = False
        self.again = again
        self.start_error = self.overrun = None
        self._scope = trio.CancelScope(shield=True)
        self._readiness = _Readiness(self)
        self.enter(ActorState.STARTING)
        nursery.start_soon(self._live, self._scope, self._readiness, name=self.path)

    async def _live(self, scope: trio.CancelScope, readiness: _Readiness) -> None:
        try:
            with scope:
                actor = self.spec.start()
                self._actor = actor
                _owner.set((self.path, actor))
                await actor.run(task_status=readiness)
        except Exception as error:
            self._end(collapse(error))
        finally:
            if self.alive:  # returned, was stopped, or a KeyboardInterrupt is on its way through
                self._end(sys.exception())

    def _end(self, error: BaseException | None) -> None:
        self.alive = False
        self._actor = self._scope = self._readiness = None
        self.ended(self, error)

    def report_ready(self, readiness: _Readiness) -> None:
        """Take the news that a run is ready; news of an earlier run, or of one told to stop, is none."""
        if readiness is self._readiness and not self.told:
            self.ready = True
            self.enter(ActorState.RUNNING)
            self.changed()

    def tell(self, reason: str) -> None:
        """Tell the current run to stop."""
        self.told = True
        self.enter(ActorState.STOPPING)
        if self._scope is not None:
            self._scope.cancel(reason=f"{self.path}: {reason}")

    def info(self) -> ActorInfo:
        """The child as it is now, and what is below it."""
        actor = self._actor
        wait = _wait_of(actor) if self.state is ActorState.RUNNING else None
        inbox: object = getattr(actor, "inbox", None) or self.spec.inbox
        return ActorInfo(
            name=self.spec.name,
            path=self.path,
            state=ActorState.WAITING if wait is not None else self.state,
            taken=trio.current_time(),
            since=wait.since if wait is not None else self.since,
            restarts=self.restarts,
            last_error=self.last_error,
            inbox_depth=inbox.depth if isinstance(inbox, HasDepth) else None,
            waiting_for=wait.reason if wait is not None else None,
            until=wait.until if wait is not None else None,
            children=_children_of(actor),
        )


def _wait_of(actor: object) -> Wait | None:
    status: object = getattr(actor, "status", None)
    return status.current if isinstance(status, Status) else None


def _children_of(actor: object) -> tuple[ActorInfo, ...]:
    return actor.tree().children if isinstance(actor, Inspectable) else ()
