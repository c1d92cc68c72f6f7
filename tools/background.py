"""
Commands that run on while the model does other things: they belong to the session and end with it.

`BackgroundShells` is the actor that owns them; Bash starts them, BashOutput and KillShell (in
`atrio.tools.background_tools`) read and end them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from atrio.runtime.errors import ToolError, ToolRejected

from .background_output import BackgroundOutput
from .process import GRACE, Ended, run_command
from .shapes import close_names

__all__ = ["MAX_RUNNING", "SHUTDOWN_LIMIT", "BackgroundShell", "BackgroundShells", "background_shells"]

MAX_RUNNING: Final = 20
"""Running at the same time: more are nearly always forgotten ones."""

MAX_ENDED: Final = 50
"""Ended ones that can still be read; the oldest are forgotten first."""

SETTLE: Final = 0.1
"""Seconds in which a command that fails at once does so, and in which it is still told by the call that started it."""

SHUTDOWN_LIMIT: Final = 8.0
"""Seconds that the owner needs to end at most: for ``ChildSpec(shutdown=...)``."""

CLEANUP_LIMIT: Final = 1.0
"""Seconds to write the last output to its file while everything ends."""


@attrs.define(eq=False, kw_only=True)
class BackgroundShell:
    """
    One command in the background.

    ``ended`` is set once none of its processes is left; ``outcome`` then says how it ended (None: it was stopped), and
    ``problem`` why it could not be started.
    """

    id: str
    command: str
    output: BackgroundOutput
    started: float = attrs.field(factory=trio.current_time)
    duration: float | None = None
    outcome: Ended | None = None
    problem: str | None = None
    killed: bool = False
    """Somebody asked for its end."""
    ended: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @property
    def running(self) -> bool:
        return not self.ended.is_set()

    @property
    def status(self) -> str:
        """``running``, ``completed``, ``failed`` or ``killed``."""
        if self.running:
            return "running"
        if self.problem is not None:
            return "failed"
        if self.outcome is None or self.killed:
            return "killed"
        return "completed" if self.outcome.status == 0 else "failed"


@attrs.define(eq=False)
class BackgroundShells:
    """
    A session's commands in the background.

    It is an actor: `run` owns the processes, and when it is left, in whichever way, none of them is there any more.
    The methods are for tasks of the same Trio run. What has ended can be read on, also after a restart of the actor.
    """

    max_running: int = MAX_RUNNING
    _shells: dict[str, BackgroundShell] = attrs.field(init=False, factory=dict)
    _nursery: trio.Nursery | None = attrs.field(init=False, default=None)
    _count: int = attrs.field(init=False, default=0)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the processes. Cancelled: all of them are gone, within `SHUTDOWN_LIMIT` seconds."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None  # from now on nothing is started

    async def start(
        self, command: str, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], path: Path
    ) -> BackgroundShell:
        """
        Start ``argv`` (``command`` is for people), with all of its output in the file ``path``. It returns after a
        moment, by which a command that can't work has often failed already. Raises `ToolRejected`.

        Cancelled: the command runs on, as it does not belong to the caller.
        """
        nursery = self._nursery
        if nursery is None:
            raise ToolRejected("Nothing can be run in the background now, as the session ends or its owner restarts.")
        running = self.running()
        if len(running) >= self.max_running:
            raise ToolRejected(
                f"{len(running)} commands run in the background, which is the limit: "
                f"{', '.join(shell.id for shell in running)}. End those that aren't needed with KillShell."
            )
        self._count += 1
        shell = BackgroundShell(id=f"bash_{self._count}", command=command, output=BackgroundOutput(path=path))
        self._shells[shell.id] = shell
        self._forget()
        nursery.start_soon(_live, shell, tuple(argv), cwd, dict(env), name=f"background {shell.id}")
        with trio.move_on_after(SETTLE):
            await shell.ended.wait()
        return shell

    def running(self) -> list[BackgroundShell]:
        """Those that run now, in the order of their start."""
        return [shell for shell in self._shells.values() if shell.running]

    def all(self) -> list[BackgroundShell]:
        """All that are known, in the order of their start."""
        return list(self._shells.values())

    def find(self, id: str) -> BackgroundShell:
        """The command of this id. Raises `ToolRejected`, which names those that there are."""
        shell = self._shells.get(id.strip())
        if shell is not None:
            return shell
        close = close_names(id, list(self._shells))
        if not self._shells:
            hint = "No command was started in the background in this session."
        elif len(close) == 1 and re.sub(r"\W", "", id) == re.sub(r"\W", "", close[0]):
            hint = f"Did you mean {close[0]}?"
        else:
            hint = f"There are: {', '.join(f'{shell.id} ({shell.status})' for shell in self._shells.values())}."
        raise ToolRejected(f"There is no background command {id[:80]!r}. {hint}")

    async def kill(self, id: str) -> BackgroundShell:
        """
        End the command with all of its processes, and wait until they are gone. One that has ended is left as it is.
        Raises `ToolRejected`.

        Cancelled: they end all the same.
        """
        shell = self.find(id)
        if shell.running:
            shell.killed = True
            shell.scope.cancel(reason="killed on demand")
            await shell.ended.wait()
        return shell

    def _forget(self) -> None:
        ended = [shell.id for shell in self._shells.values() if not shell.running]
        for id in ended[: max(0, len(ended) - MAX_ENDED)]:
            del self._shells[id]


@asynccontextmanager
async def background_shells(max_running: int = MAX_RUNNING) -> AsyncIterator[BackgroundShells]:
    """`BackgroundShells` that run within a block, for programs and tests without a supervisor."""
    shells = BackgroundShells(max_running)
    async with trio.open_nursery() as nursery:
        await nursery.start(shells.run)
        try:
            yield shells
        finally:
            nursery.cancel_scope.cancel(reason="the block is left")


async def _live(shell: BackgroundShell, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
    try:
        with shell.scope:
            shell.outcome = await run_command(argv, cwd=cwd, env=env, on_output=shell.output.add, grace=GRACE)
    except ToolError as error:
        shell.problem = error.message_for_model
    finally:
        with trio.move_on_after(CLEANUP_LIMIT, shield=True):
            await shell.output.finish()
        shell.duration = trio.current_time() - shell.started
        shell.ended.set()
