"""Runs a hook that is a shell command: the event on its standard input, its two outputs apart and bounded."""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import trio

from atrio.tools.process import run_command

from .answers import OUTPUT_LIMIT_BYTES, CommandReply
from .config import CommandHandler

__all__ = ["Confine", "run_command_hook"]

Confine: TypeAlias = Callable[[Sequence[str], Mapping[str, str]], Awaitable[tuple[list[str], dict[str, str]]]]
"""Puts a command line behind what confines it."""

ERROR_LIMIT_BYTES: Final = 256 * 1024
"""What is kept of stderr: a reason for the model, or an excerpt for the user."""

HOOK_GRACE: Final = 0.5
"""Seconds that a hook which is late, or whose run is broken off, gets to clean up: somebody waits for it."""

SHELLS: Final = ("/bin/bash", "/bin/sh")


async def run_command_hook(
    handler: CommandHandler, payload: bytes, *, cwd: Path, env: Mapping[str, str], confine: Confine | None = None
) -> CommandReply:
    """
    Run it in ``cwd`` until it ends by itself. Raises `CommandNotStarted`, and what ``confine`` raises, which gives the
    command line and the environment for a run in a sandbox.

    Nothing of it is left afterwards, nor when cancelled: what it started in the background is stopped with it. So a
    time limit is a cancel scope around the call.
    """
    argv = [_shell(), "-c", "--", handler.command]
    if confine is not None:
        argv, env = await confine(argv, env)
    output, errors = _Head(OUTPUT_LIMIT_BYTES), _Head(ERROR_LIMIT_BYTES)
    ended = await run_command(
        argv,
        cwd=cwd,
        env=env,
        stdin=payload,
        on_output=output.take,
        on_errors=errors.take,
        grace=HOOK_GRACE,
    )
    return CommandReply(
        status=ended.status,
        signal=ended.signal,
        stdout=bytes(output.data),
        stderr=bytes(errors.data),
        cut=output.cut,
    )


@functools.cache
def _shell() -> str:
    return next((path for path in SHELLS if os.access(path, os.X_OK)), SHELLS[-1])


@attrs.define(eq=False)
class _Head:
    """Keeps the beginning of what comes. All of it is read, so that whoever writes it comes to its end."""

    limit_bytes: int
    data: bytearray = attrs.field(factory=bytearray)
    cut: bool = False

    async def take(self, chunk: bytes) -> None:
        room = self.limit_bytes - len(self.data)
        self.data += chunk[:room]
        self.cut |= len(chunk) > room
        await trio.lowlevel.checkpoint()
