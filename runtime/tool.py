"""
The tool protocol: what the executor needs to know of a tool, and what a tool gets.

`Tool` is the base class of concrete tools; `atrio.tools.tool` makes one from a function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import attrs

from .messages import DocumentBlock, ImageBlock, JsonObject, RawBlock, TextBlock
from .question import AskHandler

__all__ = ["AskHandler", "FileState", "Progress", "Tool", "ToolContext", "ToolOutput", "Workspace"]

Progress: TypeAlias = Callable[..., None]
"""``progress(text, data=None)``: report at once what is going on. Synchronous, never blocks, may be dropped."""

ResultContent: TypeAlias = str | tuple[TextBlock | ImageBlock | DocumentBlock | RawBlock, ...]


@attrs.frozen
class ToolOutput:
    """
    What a call came to.

    Args:
        content: what the model sees.
        is_error: the call failed in a way the model should act on (a non-zero exit status).
        details: the same in structured form, for transcripts and programs.
        cancel_siblings: the rest of this response's calls shall not run (a failed shell command, whose
            successors tend to depend on it).
    """

    content: ResultContent
    is_error: bool = False
    details: Any = None
    cancel_siblings: bool = False


@attrs.frozen(kw_only=True)
class FileState:
    """What a session knows of a file that the model has read or written: enough to notice outside changes."""

    mtime_ns: int
    size: int
    digest: str
    """SHA-256 of the bytes as they were on disk."""
    partial: bool = False
    """Only a range was read."""


@attrs.frozen(kw_only=True)
class Workspace:
    """Where tools work: ``cwd`` and the additional folders that permission rules treat alike. All are resolved."""

    cwd: Path
    add_dirs: tuple[Path, ...] = ()

    @property
    def roots(self) -> tuple[Path, ...]:
        return (self.cwd, *self.add_dirs)


@attrs.frozen(kw_only=True)
class ToolContext:
    """
    What one call gets from its session.

    ``files`` is the session's record of files read or written (key: resolved path); ``results_dir`` is where
    output goes that is too long for the model (it may not exist yet); ``environ`` is the environment for child
    processes. ``state`` belongs to the session: tools keep there what outlasts a call, each under a key of its own.
    ``ask`` puts a question to a person; None means that nobody is there.
    """

    session_id: str
    run_id: str
    call_id: str
    workspace: Workspace
    results_dir: Path
    progress: Progress
    files: MutableMapping[Path, FileState] = attrs.field(factory=dict)
    environ: Mapping[str, str] = attrs.field(factory=dict)
    state: MutableMapping[str, Any] = attrs.field(factory=dict)
    ask: AskHandler | None = None

    @property
    def cwd(self) -> Path:
        return self.workspace.cwd


class Tool(ABC):
    """
    A tool.

    Class attributes (instances may override them):

    - ``interrupt``: on an abort, ``"cancel"`` tools are cancelled at once, ``"block"`` tools get ``grace`` seconds
      to end by themselves first.
    - ``read_only``: the call changes nothing, so permission rules let it read inside the workspace.
    - ``permission``: what happens without any matching rule: ``"allow"`` (the embedding program vouches for
      it), ``"read"`` (allowed while its paths are inside the workspace), ``"edit"`` (allowed in acceptEdits
      mode), or ``"ask"``.
    - ``idempotent``: may be run again after a crash that hides its outcome.
    - ``max_result_chars``: a longer text result is kept on disk and the model gets a preview; None: never.
    """

    name: str
    description: str
    input_schema: JsonObject
    aliases: tuple[str, ...] = ()
    interrupt: Literal["cancel", "block"] = "cancel"
    grace: float = 5.0
    read_only: bool = False
    idempotent: bool = False
    permission: Literal["allow", "read", "edit", "ask"] = "ask"
    max_result_chars: int | None = 50_000

    DEFAULT_MAX_RESULT_CHARS: ClassVar[int] = 50_000

    @abstractmethod
    def parse(self, raw: Mapping[str, Any]) -> Any:
        """The typed input. Raises `InvalidToolInput` with every problem named."""

    def concurrency_safe(self, input: Any) -> bool:
        """Whether this very call may run beside others. An exception here counts as no."""
        return self.read_only

    def paths(self, input: Any, ctx: ToolContext) -> tuple[Path, ...]:
        """The paths that this call touches, for permission rules. Absolute, not necessarily resolved."""
        return ()

    def specifier(self, input: Any) -> str | None:
        """What a rule ``Tool(specifier)`` is matched with (a command, a path, ...); None: only the bare name."""
        return None

    async def check(self, input: Any, ctx: ToolContext) -> None:
        """Whether the call makes sense now. Raises `ToolRejected`. Changes nothing."""
        return None

    @abstractmethod
    async def run(self, input: Any, ctx: ToolContext) -> ToolOutput:
        """
        Do it. Expected failures are `ToolError`s or outputs with ``is_error``; any other exception is reported
        to the model with its type. When cancelled, it leaves no process and no half-written file behind.
        """

    def definition(self) -> JsonObject:
        """The tool as the API takes it."""
        return {"name": self.name, "description": self.description, "input_schema": self.input_schema}
