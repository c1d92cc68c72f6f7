"""The Write tool: a whole file at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs

from atrio.runtime.errors import ToolRejected
from atrio.runtime.tool import FileState, Tool, ToolContext, ToolOutput

from .files import FilePath, Loaded, check_path, in_thread, load, require_current, write_atomic
from .paths import locate
from .schema import Field, json_schema, structure
from .text_format import TextFormat, detect

__all__ = ["Write", "WriteInput"]


@attrs.frozen(kw_only=True)
class WriteInput:
    """What to write where."""

    file_path: FilePath = attrs.field(validator=check_path)
    content: Annotated[str, Field(description="the whole new content")]


class Write(Tool):
    """
    Creates a file, or replaces one that the session has read and that is unchanged since.

    A new file gets the content as it is, in UTF-8. An existing one keeps its form, since a model sees none of it: its
    byte order mark and UTF-16 or UTF-32 always; Windows-1252 or Latin-1 if that can hold the content (else it becomes
    UTF-8); CRLF or CR line ends if the content has no CR of its own.
    """

    name = "Write"
    description = (
        "Writes a file: creates it, and missing folders, or replaces all of its content. An existing file must have "
        "been read in this session first. To change a part of a file use Edit."
    )
    input_schema = json_schema(WriteInput)
    permission: Literal["allow", "read", "edit", "ask"] = "edit"

    def parse(self, raw: Mapping[str, Any]) -> WriteInput:
        return structure(WriteInput, raw, tool=self.name)

    def paths(self, input: WriteInput, ctx: ToolContext) -> tuple[Path, ...]:
        return (locate(input.file_path, ctx.cwd),)

    def specifier(self, input: WriteInput) -> str:
        return input.file_path

    async def check(self, input: WriteInput, ctx: ToolContext) -> None:
        """Raises `ToolRejected` if the file may not be replaced now."""
        await in_thread(_existing, locate(input.file_path, ctx.cwd), ctx.cwd, dict(ctx.files), input)

    async def run(self, input: WriteInput, ctx: ToolContext) -> ToolOutput:
        """Write, and note the new state in ``ctx.files``. When cancelled, the file is wholly old or wholly new."""
        path = locate(input.file_path, ctx.cwd)
        real, state, output = await in_thread(_write, path, ctx.cwd, dict(ctx.files), input)
        ctx.files[real] = state
        return output


def _existing(path: Path, cwd: Path, files: Mapping[Path, FileState], input: WriteInput) -> Loaded | None:
    """The file that is to be replaced, if there is one. Raises `ToolRejected` if it may not be."""
    if input.file_path.endswith("/"):
        raise ToolRejected(f"{input.file_path} names a directory; give the path of a file in it.")
    if not os.path.lexists(path) or not path.exists():  # nothing, or a link to nothing
        return None
    found = load(path, cwd)
    require_current(path, files.get(found.path), found)
    return found


def _write(
    path: Path, cwd: Path, files: Mapping[Path, FileState], input: WriteInput
) -> tuple[Path, FileState, ToolOutput]:
    # The check is repeated as late as possible: hooks and the question to the user came in between.
    old = _existing(path, cwd, files, input)
    format, data = _encoded(input.content, old)
    state = write_atomic(path, data)
    lines = _line_count(input.content)
    count = "1 line" if lines == 1 else f"{lines:,} lines"
    form = f", {format.label}" if format.label else ""
    text = f"{'Created' if old is None else 'Updated'} {path} ({count}{form})."
    details = {
        "type": "create" if old is None else "update",
        "filePath": str(path),
        "numLines": lines,
        "size": state.size,
    }
    return Path(os.path.realpath(path)), state, ToolOutput(text, details=details)


def _encoded(content: str, old: Loaded | None) -> tuple[TextFormat, bytes]:
    """The bytes to write and their format."""
    kept = None if old is None or old.data is None else detect(old.data, complete=True)
    if kept is None:
        plain = TextFormat()
        return plain, plain.encode(content)
    if kept.bom:
        content = content.removeprefix("\ufeff")
    if "\r" in content:
        kept = attrs.evolve(kept, newline="\n")
    elif kept.newline != "\n":
        content = content.replace("\n", kept.newline)
    try:
        return kept, kept.encode(content)
    except UnicodeEncodeError:
        changed = TextFormat(newline=kept.newline)
        return changed, changed.encode(content)


def _line_count(content: str) -> int:
    text = content.replace("\r\n", "\n").replace("\r", "\n")
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)
