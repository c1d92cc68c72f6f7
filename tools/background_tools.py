"""The BashOutput and KillShell tools: to look at and to end what Bash runs in the background."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs

from atrio.runtime.messages import JsonObject
from atrio.runtime.tool import Tool, ToolContext, ToolOutput

from .background import BackgroundShell, BackgroundShells
from .background_output import Fresh
from .files import in_thread
from .grep_pattern import compile_pattern
from .grep_search import search_files
from .schema import Field, json_schema, structure

__all__ = ["BashOutput", "BashOutputInput", "KillShell", "KillShellInput", "describe_shell", "fresh_text"]

MAX_MATCHES: Final = 1_000


@attrs.frozen(kw_only=True)
class BashOutputInput:
    """Which command to look at."""

    bash_id: Annotated[
        str, Field(min_length=1, aliases=("shell_id", "id"), description="the id that Bash gave, such as bash_1")
    ]
    filter: Annotated[
        str | None,
        Field(
            min_length=1, description="a regular expression: only lines that match it are shown, the rest is skipped"
        ),
    ] = None


@attrs.frozen(kw_only=True)
class KillShellInput:
    """Which command to end."""

    bash_id: Annotated[
        str, Field(min_length=1, aliases=("shell_id", "id"), description="the id that Bash gave, such as bash_1")
    ]


class BashOutput(Tool):
    """Tells what a background command has written since the last look, and how it is."""

    name = "BashOutput"
    description = (
        "Shows what a command that Bash runs in the background has printed since you last looked, and whether it "
        "still runs. It returns at once; do other work between two looks rather than look again and again."
    )
    input_schema = json_schema(BashOutputInput)
    read_only = True
    permission: Literal["allow", "read", "edit", "ask"] = "allow"

    def __init__(self, shells: BackgroundShells) -> None:
        self._shells = shells

    def parse(self, raw: Mapping[str, Any]) -> BashOutputInput:
        return structure(BashOutputInput, raw, tool=self.name)

    def concurrency_safe(self, input: BashOutputInput) -> bool:
        return False  # a look takes what is new, so their order counts

    async def check(self, input: BashOutputInput, ctx: ToolContext) -> None:
        """Raises `ToolRejected` for an unknown id or a bad pattern."""
        self._shells.find(input.bash_id)
        if input.filter is not None:
            compile_pattern(input.filter, ignore_case=False, multiline=False)

    async def run(self, input: BashOutputInput, ctx: ToolContext) -> ToolOutput:
        """Look. Cancelled: what was new may be gone from the next look; it is in the file."""
        shell = self._shells.find(input.bash_id)
        status = describe_shell(shell)  # first: what is written after it belongs to the next look
        await shell.output.flush()
        fresh = shell.output.take()
        if fresh.empty:
            text = "[No new output.]"
        elif input.filter is None:
            text = fresh_text(fresh, shell)
        else:
            text = await _filtered(fresh, shell, input.filter)
        details: JsonObject = {"shellId": shell.id, "status": shell.status, "outputFile": str(shell.output.path)}
        if shell.outcome is not None:
            details["exitCode"] = shell.outcome.status
        newline = "" if text.endswith("\n") else "\n"
        return ToolOutput(f"{status}\n{text}{newline}".rstrip("\n"), details=details)


class KillShell(Tool):
    """Ends a background command with its whole process tree."""

    name = "KillShell"
    description = "Ends a command that Bash runs in the background, with all processes that it started."
    input_schema = json_schema(KillShellInput)
    aliases: tuple[str, ...] = ("KillBash",)
    idempotent = True
    # The processes are the session's own, and starting them was permitted.
    permission: Literal["allow", "read", "edit", "ask"] = "allow"

    def __init__(self, shells: BackgroundShells) -> None:
        self._shells = shells

    def parse(self, raw: Mapping[str, Any]) -> KillShellInput:
        return structure(KillShellInput, raw, tool=self.name)

    async def check(self, input: KillShellInput, ctx: ToolContext) -> None:
        """Raises `ToolRejected` for an unknown id."""
        self._shells.find(input.bash_id)

    async def run(self, input: KillShellInput, ctx: ToolContext) -> ToolOutput:
        """End it, and wait until all of its processes are gone. Cancelled: they end all the same."""
        running = self._shells.find(input.bash_id).running
        shell = await self._shells.kill(input.bash_id)
        details: JsonObject = {"shellId": shell.id, "status": shell.status}
        if not running:
            return ToolOutput(f"{describe_shell(shell)} There was nothing to end.", details=details)
        return ToolOutput(f"Stopped {shell.id} ({_short(shell.command)}) and all of its processes.", details=details)


def describe_shell(shell: BackgroundShell) -> str:
    """A background command's state, in a sentence for the model."""
    if shell.problem is not None:
        return f"{shell.id} could not be run: {shell.problem}."
    if shell.running:
        return f"{shell.id} is running."
    after = f" after {shell.duration:.1f} s" if shell.duration is not None else ""
    if shell.killed or shell.outcome is None:
        return f"{shell.id} was stopped{after}."
    if shell.outcome.signal is not None:
        return f"{shell.id} was ended by signal {shell.outcome.signal}{after}."
    return f"{shell.id} has ended{after} with exit code {shell.outcome.status}."


def _short(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= 100 else f"{line[:97]}..."


def fresh_text(fresh: Fresh, shell: BackgroundShell) -> str:
    """What is new, and where the part is that is not kept in memory."""
    if not fresh.left_out:
        return fresh.head + fresh.tail
    newline = "" if fresh.head.endswith("\n") else "\n"
    gap = f"[... {fresh.left_out:,} characters left out; {shell.output.whereabouts()}]"
    return f"{fresh.head}{newline}{gap}\n{fresh.tail}"


async def _filtered(fresh: Fresh, shell: BackgroundShell, pattern: str) -> str:
    """The lines that match. They are looked for in a process of its own: some expressions take for ever."""
    regex = compile_pattern(pattern, ignore_case=False, multiline=False)
    name = await in_thread(_keep, f"{fresh.head}\n{fresh.tail}" if fresh.left_out else fresh.head + fresh.tail)
    try:
        found = await search_files(
            [name], regex, mode="content", multiline=False, before=0, after=0, offset=0, limit=MAX_MATCHES
        )
    finally:
        os.unlink(name)
    lines = [text for hit in found.hits for _, _, text in hit.lines]
    notes = []
    if found.late:
        notes.append(f"[The search took too long; {shell.output.whereabouts()}.]")
    if fresh.left_out:
        notes.append(f"[{fresh.left_out:,} characters in between were not searched; {shell.output.whereabouts()}.]")
    return "\n".join([*(lines or ["[No new line matches the filter.]"]), *notes])


def _keep(text: str) -> str:
    descriptor, name = tempfile.mkstemp(prefix="atrio-output-", suffix=".txt")
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "replace"))
    return str(Path(name))
