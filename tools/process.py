"""
Runs one command as a child process. Nothing else in atrio starts processes for tools.

The child leads a session of its own, reads /dev/null or what it is given, and writes both of its streams into one
pipe, so that they stay in order, unless they are asked for apart. When `run_command` is left, in whichever way, the
command's whole process tree is gone (see `atrio.tools.reaper` for what that covers), it is reaped, and no descriptor
is left.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import subprocess
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import trio

from atrio.runtime.errors import ToolError

from .reaper import KILL_LIMIT, TOKEN_VARIABLE, ProcessTree, Stopped

__all__ = ["BACKGROUND_GRACE", "DRAIN_LIMIT", "GRACE", "CommandNotStarted", "Ended", "TakeOutput", "run_command"]

GRACE: Final = 2.0
"""Seconds between SIGTERM and SIGKILL for a command that is stopped before its end."""

BACKGROUND_GRACE: Final = 0.5
"""The same for what a command left running: shorter, since the caller waits for an answer that is complete."""

DRAIN_LIMIT: Final = 0.2
"""Seconds that output is still awaited for: after the leader's end, and after the end of all."""

STOP_LIMIT: Final = GRACE + KILL_LIMIT + 2.0
"""Seconds for the whole teardown, which nothing can interrupt. The last ones are for a machine under load."""

CHUNK_BYTES: Final = 65_536
"""The size of a Linux pipe: one read empties it."""

SANDBOX_HELPERS: Final = frozenset({"bwrap"})
"""Processes of the sandbox around a command: they end with it, a moment later, and are nothing that it left running."""

TakeOutput: TypeAlias = Callable[[bytes], Awaitable[None]]

_log: Final = logging.getLogger("atrio.tools")


@attrs.define(eq=False, slots=False)
class CommandNotStarted(ToolError):
    """The operating system refused to start ``program`` in ``cwd``."""

    program: str
    cwd: str
    reason: str

    def __str__(self) -> str:
        return f"can't start {self.program} in {self.cwd}: {self.reason}"


@attrs.frozen(kw_only=True)
class Ended:
    """
    How a command ended.

    Args:
        status: its exit status; None when a signal ended it.
        signal: the number of that signal.
        stopped: the names of the processes that it left running and that were stopped.
        survivors: the names of those that could not be stopped.
        cut: a process that could not be stopped still holds the output open, so there may be more of it.
    """

    status: int | None
    signal: int | None = None
    stopped: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    cut: bool = False


async def run_command(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    on_output: TakeOutput,
    on_errors: TakeOutput | None = None,
    stdin: bytes | None = None,
    grace: float = GRACE,
) -> Ended:
    """
    Run ``argv`` and give what it writes to ``on_output``, chunk by chunk.

    With ``on_errors``, what it writes to stderr goes there instead. It reads ``stdin`` (None: nothing), and may leave
    any part of it unread.

    When the first process ends, what it left in the background is stopped, and output that is under way is still
    taken for `DRAIN_LIMIT` seconds. Raises `CommandNotStarted`.

    Cancelled: all of its processes get SIGTERM, SIGKILL after ``grace`` seconds (at most `GRACE`), and are gone
    when the cancellation goes on; until then its output is still taken. So a time limit is a cancel scope
    around the call.
    """
    token = uuid.uuid4().hex
    process = await _start(argv, cwd, _with_token(env, token), feed=stdin is not None, apart=on_errors is not None)
    tree = ProcessTree(process.pid, token, process.poll)
    pumps = _pumps_of(process, on_output, on_errors)
    feeding = trio.CancelScope()
    stopped = Stopped()
    async with trio.open_nursery() as nursery:
        for pump in pumps:
            nursery.start_soon(pump.run)
        if process.stdin is not None:
            nursery.start_soon(_feed, process.stdin, stdin or b"", feeding)
        patience = min(grace, GRACE)
        try:
            await process.wait()
            patience = min(grace, BACKGROUND_GRACE)
            with trio.move_on_after(DRAIN_LIMIT):
                await _wait_for(pumps)
        finally:
            with trio.move_on_after(STOP_LIMIT, shield=True):
                stopped = await tree.stop(patience)
                with trio.move_on_after(DRAIN_LIMIT):
                    await _wait_for(pumps)
            feeding.cancel(reason="the command has ended")
            for pump in pumps:
                pump.scope.cancel(reason="the command has ended")
            if stopped.survivors:
                _log.warning("processes of %s could not be killed: %s", argv[0], ", ".join(stopped.survivors))
    status = process.returncode
    return Ended(
        status=status if status is not None and status >= 0 else None,
        signal=-status if status is not None and status < 0 else None,
        stopped=tuple(name for name in stopped.names if name not in SANDBOX_HELPERS),
        survivors=stopped.survivors,
        cut=not all(pump.complete for pump in pumps),
    )


@attrs.define(eq=False)
class _Pump:
    """
    Moves output from the pipe to its taker, and closes the pipe.

    It is shielded, as what a command says while it is being stopped counts too; ``scope`` ends it.
    """

    stream: trio.abc.ReceiveStream
    take: TakeOutput
    scope: trio.CancelScope = attrs.field(factory=lambda: trio.CancelScope(shield=True))
    ended: trio.Event = attrs.field(factory=trio.Event)
    complete: bool = False
    """The pipe was read to its end."""

    async def run(self) -> None:
        try:
            with self.scope:
                while chunk := await self.stream.receive_some(CHUNK_BYTES):
                    await self.take(bytes(chunk))
                self.complete = True
        finally:
            self.ended.set()
            with trio.move_on_after(DRAIN_LIMIT, shield=True):
                await self.stream.aclose()


def _pumps_of(process: trio.Process, on_output: TakeOutput, on_errors: TakeOutput | None) -> list[_Pump]:
    assert process.stdout is not None
    pumps = [_Pump(process.stdout, on_output)]
    if process.stderr is not None and on_errors is not None:
        pumps.append(_Pump(process.stderr, on_errors))
    return pumps


async def _wait_for(pumps: Sequence[_Pump]) -> None:
    for pump in pumps:
        await pump.ended.wait()


async def _feed(stream: trio.abc.SendStream, data: bytes, scope: trio.CancelScope) -> None:
    """Write what the command reads, as far as it reads it, and close the pipe."""
    try:
        with scope, contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(data)
    finally:
        with trio.move_on_after(DRAIN_LIMIT, shield=True):
            await stream.aclose()


def _with_token(env: Mapping[str, str], token: str) -> dict[str, str]:
    """The environment with this command's token behind those of the commands around it, which look for theirs."""
    outer = env.get(TOKEN_VARIABLE)
    return {**env, TOKEN_VARIABLE: f"{outer}:{token}" if outer else token}


async def _start(argv: Sequence[str], cwd: Path, env: Mapping[str, str], *, feed: bool, apart: bool) -> trio.Process:
    try:
        return await trio.lowlevel.open_process(
            list(argv),
            stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if apart else subprocess.STDOUT,
            start_new_session=True,
            cwd=cwd,
            env=env,
        )
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.E2BIG:
            reason = (
                "the command or its environment is too long; write long text to a file and have the command read it"
            )
        elif error.filename is not None and Path(error.filename) == cwd:
            reason = f"{reason} (the working folder)"
        raise CommandNotStarted(argv[0], str(cwd), reason) from error
    except ValueError as error:
        raise CommandNotStarted(argv[0], str(cwd), str(error)) from error
