"""The Bash tool: runs one shell command in the working folder and tells how it ended."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs
import trio

from atrio.runtime.errors import ToolError, ToolRejected, ToolTimedOut
from atrio.runtime.messages import JsonObject
from atrio.runtime.preview import result_file_name
from atrio.runtime.tool import Tool, ToolContext, ToolOutput

from .background import BackgroundShell, BackgroundShells
from .background_tools import describe_shell, fresh_text
from .output import OutputCollector
from .process import Ended, run_command
from .sandbox import Sandbox
from .schema import Field, json_schema, structure
from .shell_syntax import is_read_only, last_command

__all__ = ["Bash", "BashInput", "BashOrBackgroundInput"]

DEFAULT_TIMEOUT_MS: Final = 120_000
MAX_TIMEOUT_MS: Final = 600_000

PROGRESS_PERIOD: Final = 0.3
"""Seconds between two reports of progress: people can't follow more, and each one is an event for every client."""

PROGRESS_LINES: Final = 5
PROGRESS_CHARS: Final = 1_000

SHELLS: Final = ("/bin/bash", "/bin/sh")

_NO_MATCH: Final = {1: "no match"}
_DIFFERENT: Final = {1: "the files differ"}
_FALSE: Final = {1: "the condition is false"}

NOT_FAILURES: Final[Mapping[str, Mapping[int, str]]] = {
    "grep": _NO_MATCH,
    "egrep": _NO_MATCH,
    "fgrep": _NO_MATCH,
    "rg": _NO_MATCH,
    "pgrep": _NO_MATCH,
    "diff": _DIFFERENT,
    "cmp": _DIFFERENT,
    "test": _FALSE,
    "[": _FALSE,
    "find": {1: "some places could not be searched"},
}
"""Exit statuses that answer a question rather than tell of trouble."""


@attrs.frozen(kw_only=True)
class BashInput:
    """The input of `Bash`. ``timeout`` is in milliseconds."""

    command: Annotated[str, Field(description="The shell command to run")]
    timeout: Annotated[
        int | None,
        Field(
            ge=1,
            le=MAX_TIMEOUT_MS,
            description=f"Milliseconds until it is stopped (default {DEFAULT_TIMEOUT_MS}, at most {MAX_TIMEOUT_MS})",
        ),
    ] = None
    description: Annotated[
        str | None, Field(description="What the command does, in 5 to 10 words, for the people who watch")
    ] = None


@attrs.frozen(kw_only=True)
class BashOrBackgroundInput(BashInput):
    """The input of `Bash` where commands can run in the background; they have no time limit there."""

    run_in_background: Annotated[
        bool,
        Field(
            description="Return at once with an id and let the command run on, without timeout: for servers, watchers "
            "and long builds. Look at it with BashOutput, end it with KillShell. Don't append & to the command then"
        ),
    ] = False


class Bash(Tool):
    """
    Runs a command with bash (or sh, where there is no bash).

    When a call is over, in whichever way, none of the processes that it started is left; but for those of a command
    that is to run in the background, which ``background`` then owns. Without it none can.

    ``sandbox`` confines all commands (`atrio.tools.sandbox.choose_sandbox` makes one); without it nothing does.
    """

    name = "Bash"
    description = (
        "Runs a shell command in the working folder and returns what it prints (stdout and stderr together). "
        "Each call starts a new shell: cd, variables and processes started with & don't outlast it. "
        "There is no terminal and standard input is empty, so pass flags that avoid questions (such as -y). "
        "Prefer Read, Edit, Write, Glob and Grep for files. Quote paths that hold blanks."
    )
    permission: Literal["allow", "read", "edit", "ask"] = "ask"
    interrupt: Literal["cancel", "block"] = "cancel"

    def __init__(self, background: BackgroundShells | None = None, *, sandbox: Sandbox | None = None) -> None:
        self._background = background
        self.sandbox = sandbox
        if sandbox is not None:
            self.description = f"{type(self).description} {sandbox.describe_to_model()}"
        self._input_class: type[BashInput] = BashInput if background is None else BashOrBackgroundInput
        self.input_schema: JsonObject = json_schema(self._input_class)

    def parse(self, raw: Mapping[str, Any]) -> BashInput:
        return structure(self._input_class, raw, tool=self.name)

    def concurrency_safe(self, input: BashInput) -> bool:
        return is_read_only(input.command)

    def specifier(self, input: BashInput) -> str:
        return input.command

    async def check(self, input: BashInput, ctx: ToolContext) -> None:
        if not input.command.strip():
            raise ToolRejected("the command is empty; say what to run")
        if "\0" in input.command:
            raise ToolRejected("the command holds a NUL character, which no shell takes; use printf '\\0' to make one")

    async def run(self, input: BashInput, ctx: ToolContext) -> ToolOutput:
        """
        Run the command. Raises `CommandNotStarted` and `SandboxUnusable`, and `ToolRejected` where too many run in the
        background.

        Cancelled: all of its processes are gone, but for a command in the background, which runs on.
        """
        if self._background is not None and isinstance(input, BashOrBackgroundInput) and input.run_in_background:
            return await _start_in_background(self._background, input.command, ctx, self.sandbox)
        limit = (DEFAULT_TIMEOUT_MS if input.timeout is None else input.timeout) / 1000
        output = OutputCollector(path=ctx.results_dir / f"output-{result_file_name(ctx.call_id)}")
        ended: Ended | None = None
        with trio.move_on_after(limit):
            ended = await _run_reporting(input.command, ctx, output, self.sandbox)
        await output.finish()
        if ended is None:
            return _timed_out(self.name, limit, output)
        return _conclude(input.command, ended, output)


async def _run_reporting(command: str, ctx: ToolContext, output: OutputCollector, sandbox: Sandbox | None) -> Ended:
    """Run it, and report progress meanwhile."""
    outcome: Ended | ToolError
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_report, ctx, output)
        try:
            argv, env = await _confined(command, ctx, sandbox)
            outcome = await run_command(argv, cwd=ctx.cwd, env=env, on_output=output.add)
        except ToolError as error:  # raised below, where the nursery can't wrap it
            outcome = error
        nursery.cancel_scope.cancel(reason="the command has ended")
    if isinstance(outcome, ToolError):
        raise outcome
    return outcome


async def _report(ctx: ToolContext, output: OutputCollector) -> None:
    reported = 0
    while True:
        await trio.sleep(PROGRESS_PERIOD)
        if output.total_chars != reported:
            reported = output.total_chars
            ctx.progress(output.last_lines(PROGRESS_LINES, PROGRESS_CHARS), {"outputChars": reported})


async def _start_in_background(
    background: BackgroundShells, command: str, ctx: ToolContext, sandbox: Sandbox | None
) -> ToolOutput:
    path = ctx.results_dir / f"output-{result_file_name(ctx.call_id)}"
    argv, env = await _confined(command, ctx, sandbox)
    shell = await background.start(command, argv, cwd=ctx.cwd, env=env, path=path)
    details: JsonObject = {"backgroundTaskId": shell.id, "status": shell.status, "outputFile": str(path)}
    if shell.running:
        text = f"Running in the background as {shell.id}. Look at its output with BashOutput, end it with KillShell."
        return ToolOutput(text, details=details)
    return _ended_at_once(shell, details)


def _ended_at_once(shell: BackgroundShell, details: JsonObject) -> ToolOutput:
    text = f"{describe_shell(shell)}\n{fresh_text(shell.output.take(), shell)}".rstrip("\n")
    return ToolOutput(text, is_error=shell.status != "completed", details=details)


async def _confined(command: str, ctx: ToolContext, sandbox: Sandbox | None) -> tuple[list[str], Mapping[str, str]]:
    """The command line and the environment to run the command with."""
    argv = [_shell(), "-c", "--", command]
    if sandbox is None:
        return argv, ctx.environ
    return await sandbox.enter(argv, ctx.environ, workspace=ctx.workspace, results_dir=ctx.results_dir)


@functools.cache
def _shell() -> str:
    return next((path for path in SHELLS if os.access(path, os.X_OK)), SHELLS[-1])


def _timed_out(tool: str, limit: float, output: OutputCollector) -> ToolOutput:
    text = str(ToolTimedOut(tool, limit, output.text()))
    if limit * 1000 < MAX_TIMEOUT_MS:
        text = f"{text.rstrip()}\n[If it needs longer, set timeout (milliseconds, at most {MAX_TIMEOUT_MS}).]"
    return ToolOutput(text, is_error=True, cancel_siblings=True, details=_details(output, None, timed_out=True))


def _conclude(command: str, ended: Ended, output: OutputCollector) -> ToolOutput:
    convention = _convention(command, ended.status)
    failed = ended.status != 0 and convention is None
    notes: list[str] = []
    if ended.signal is not None:
        notes.append(f"Ended by signal {ended.signal} ({_signal_name(ended.signal)})")
    elif failed:
        notes.append(_exit_note(ended.status))
    elif convention is not None:
        notes.append(f"Exit code {ended.status} ({convention}; not an error)")
    notes += _remarks(ended)
    text = output.text()
    if notes:
        text = "\n".join([*([text.rstrip("\n")] if text.strip() else []), *notes])
    return ToolOutput(text, is_error=failed, cancel_siblings=failed, details=_details(output, ended, timed_out=False))


def _convention(command: str, status: int | None) -> str | None:
    """What this status says, where it is none of a failure."""
    if not status:
        return None
    words = last_command(command).split(maxsplit=1)
    return NOT_FAILURES.get(Path(words[0]).name, {}).get(status) if words else None


def _exit_note(status: int | None) -> str:
    """A shell tells of a signal to its last child by a status of 128 and the signal's number."""
    if status is not None and status > 128 and (name := _signal_name(status - 128)) != "unknown":
        return f"Exit code {status} (ended by {name})"
    return f"Exit code {status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _remarks(ended: Ended) -> list[str]:
    """What the model has to know of the end beside its status."""
    remarks: list[str] = []
    if ended.stopped:
        names = ", ".join(dict.fromkeys(ended.stopped))
        remarks.append(
            f"[{len(ended.stopped)} background process(es) still running when the command ended were stopped: {names}. "
            "Nothing outlasts its command; run what must keep on in the foreground of one command, or with "
            "run_in_background where Bash has it.]"
        )
    if ended.survivors:
        remarks.append(f"[Could not be stopped: {', '.join(dict.fromkeys(ended.survivors))}.]")
    if ended.cut:
        remarks.append("[The output may be incomplete: a process that could not be stopped holds it open.]")
    return remarks


def _details(output: OutputCollector, ended: Ended | None, *, timed_out: bool) -> JsonObject:
    saved_to = output.saved_to
    return {
        "stdout": output.text(),
        "exitCode": ended.status if ended is not None else None,
        "signal": ended.signal if ended is not None else None,
        "interrupted": timed_out,
        "timedOut": timed_out,
        "stopped": list(ended.stopped) if ended is not None else [],
        "outputFile": str(saved_to) if saved_to is not None else None,
    }
