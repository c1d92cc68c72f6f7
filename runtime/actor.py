"""
What an actor is, and how it says what it waits for.

An actor is any object with ``async def run(self, *, task_status)``. Three attributes are read by its supervisor if
they are there, and only for `Supervisor.tree`: ``status`` (a `Status`), ``inbox`` (an `Inbox`, or anything with a
``depth``), and a method ``tree()`` if the actor runs a supervisor of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable
from types import TracebackType
from typing import Protocol, runtime_checkable

import attrs
import trio

from .tree import ActorInfo

__all__ = ["Actor", "FunctionActor", "HasDepth", "Inspectable", "Runnable", "Status", "Wait"]


class Actor(Protocol):
    """Something a supervisor can run."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """
        Live: report ready by ``task_status.started()`` once the actor can take messages, then work.

        Returning means done, raising means crashed, and being cancelled means told to stop: clean up within the
        child's grace period and let the cancellation pass.
        """
        ...


@runtime_checkable
class Inspectable(Protocol):
    """An actor with actors below it."""

    def tree(self) -> ActorInfo:
        """The state of everything below, with this actor on top."""
        ...


@runtime_checkable
class HasDepth(Protocol):
    """Something whose unread messages can be counted, such as an `Inbox`."""

    @property
    def depth(self) -> int:
        """How many messages lie unread."""
        ...


class Runnable(Protocol):
    """A function that can be an actor's whole life."""

    def __call__(self, *, task_status: trio.TaskStatus[None]) -> Awaitable[None]: ...


class Wait:
    """One announced wait, entered as a context manager. ``until`` may be moved while it lasts."""

    __slots__ = ("_status", "reason", "since", "until")

    def __init__(self, status: Status, reason: str, until: float | None) -> None:
        self._status = status
        self.reason = reason
        self.since = 0.0
        self.until = until

    def __enter__(self) -> Wait:
        self.since = trio.current_time()
        self._status.waits.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        waits = self._status.waits
        if waits[-1] is self:
            waits.pop()
        else:
            waits.remove(self)


class Status:
    """
    What an actor waits for, as `Supervisor.tree` shows it.

    Costs about as much as two function calls a wait. An actor with several Trio tasks may announce several waits
    at once; the latest that still lasts is shown.
    """

    __slots__ = ("waits",)

    def __init__(self) -> None:
        self.waits: list[Wait] = []

    def waiting(self, reason: str, *, until: float | None = None) -> Wait:
        """
        Announce a wait for the length of a ``with`` block.

        Args:
            reason: what is waited for, for people: "model stream", "fsync".
            until: the deadline, on Trio's clock, if there is one. Nothing is cancelled by it.
        """
        return Wait(self, reason, until)

    @property
    def current(self) -> Wait | None:
        """The wait to show, or None while the actor works."""
        return self.waits[-1] if self.waits else None


@attrs.define(eq=False)
class FunctionActor:
    """An actor made of one async function that takes ``task_status``, for services too small for a class."""

    function: Runnable
    inbox: HasDepth | None = attrs.field(default=None, kw_only=True)
    status: Status = attrs.field(factory=Status, kw_only=True)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run the function. Cancellation reaches it as it is."""
        await self.function(task_status=task_status)
