"""Children that do as they are told, and a record of what they and their supervisor did."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import trio

from atrio.runtime.supervisor import ChildExit, ChildSpec, Restart

Behaviour = Callable[[trio.TaskStatus[None]], Awaitable[None]]


async def forever(task_status: trio.TaskStatus[None]) -> None:
    """Be ready at once and live until told to stop."""
    task_status.started()
    await trio.sleep_forever()


def fails(error: Exception | None = None, *, after: float = 1, ready: bool = True) -> Behaviour:
    """Raise after some seconds; before being ready, if so wanted."""

    async def behave(task_status: trio.TaskStatus[None]) -> None:
        if ready:
            task_status.started()
        await trio.sleep(after)
        raise error if error is not None else ValueError("boom")

    return behave


def returns(*, after: float = 1, ready: bool = True) -> Behaviour:
    """Return after some seconds; before being ready, if so wanted."""

    async def behave(task_status: trio.TaskStatus[None]) -> None:
        if ready:
            task_status.started()
        await trio.sleep(after)

    return behave


def slow(seconds: float) -> Behaviour:
    """Be ready only after some seconds."""

    async def behave(task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(seconds)
        await forever(task_status)

    return behave


def lingers(seconds: float, error: Exception | None = None) -> Behaviour:
    """Take some seconds to end once told to; then raise, if so wanted."""

    async def behave(task_status: trio.TaskStatus[None]) -> None:
        try:
            await forever(task_status)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)  # noqa: ASYNC102
            if error is not None:
                raise error

    return behave


@attrs.define
class ScriptedActor:
    """Follows one behaviour and notes its beginning and its end."""

    name: str
    behaviour: Behaviour
    log: list[str]

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.log.append(f"+{self.name}")
        try:
            await self.behaviour(task_status)
        finally:
            self.log.append(f"-{self.name}")


@attrs.define
class Scene:
    """``log``: ``+a`` for each start of child a, ``-a`` for each end. ``exits``: what `on_exit` was told."""

    log: list[str] = attrs.field(factory=list)
    exits: list[ChildExit] = attrs.field(factory=list)

    def on_exit(self, end: ChildExit) -> None:
        self.exits.append(end)

    def child(
        self,
        name: str,
        *behaviours: Behaviour,
        restart: Restart = Restart.PERMANENT,
        shutdown: float = 5.0,
        start_timeout: float = 30.0,
        significant: bool = False,
    ) -> ChildSpec:
        """A child whose n-th run follows the n-th behaviour, and the last one from then on."""
        script = list(behaviours or [forever])

        def start() -> ScriptedActor:
            return ScriptedActor(name, script.pop(0) if len(script) > 1 else script[0], self.log)

        return ChildSpec(
            name,
            start,
            restart=restart,
            shutdown=shutdown,
            start_timeout=start_timeout,
            significant=significant,
        )

    def take(self) -> list[str]:
        """The log until now, which begins anew."""
        taken, self.log[:] = list(self.log), []
        return taken
