"""The Edit tool: one text replaced by another in a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs

from atrio.runtime.errors import ToolRejected
from atrio.runtime.tool import FileState, Tool, ToolContext, ToolOutput

from .edit_matching import MAX_PLACES, Spans, explain_absence, find_spans, line_number, unified
from .files import FilePath, check_path, in_thread, load, missing, require_current, write_atomic
from .paths import locate
from .schema import Field, json_schema, structure
from .text_format import TextFormat, decode, numbered

__all__ = ["Edit", "EditInput"]

CONTEXT_LINES: Final = 4
SNIPPET_LINES: Final = 40
SNIPPET_LINE_CHARS: Final = 500
SHOWN_PLACES: Final = 5


@attrs.frozen(kw_only=True)
class EditInput:
    """What to replace where."""

    file_path: FilePath = attrs.field(validator=check_path)
    old_string: Annotated[str, Field(description="the text to replace, exactly as in the file, without line numbers")]
    new_string: Annotated[str, Field(description="the text to put in its place")]
    replace_all: Annotated[bool, Field(description="replace every occurrence, not exactly one")] = False


@attrs.frozen(kw_only=True)
class Plan:
    """An edit that can be done: the new text, and where in it the first change is."""

    real: Path
    text: str
    format: TextFormat
    start: int
    end: int
    count: int
    created: bool = False
    partial: bool = False


class Edit(Tool):
    """
    Replaces text in a file that the session has read (any part of it) and that is unchanged since.

    Without any CR in the two texts, LF stands for whatever line ends the file has, and new lines get the file's own;
    with one, both are taken literally. Encoding and byte order mark are kept. An empty ``old_string`` creates a file,
    or fills an empty one.
    """

    name = "Edit"
    description = (
        "Replaces old_string by new_string in a file. The file must have been read in this session. old_string must "
        "be the file's exact text (indentation too; without the line numbers that Read shows) and occur once: add "
        "surrounding lines to make it unique, or set replace_all. An empty old_string creates a new file."
    )
    input_schema = json_schema(EditInput)
    permission: Literal["allow", "read", "edit", "ask"] = "edit"

    def parse(self, raw: Mapping[str, Any]) -> EditInput:
        return structure(EditInput, raw, tool=self.name)

    def paths(self, input: EditInput, ctx: ToolContext) -> tuple[Path, ...]:
        return (locate(input.file_path, ctx.cwd),)

    def specifier(self, input: EditInput) -> str:
        return input.file_path

    async def check(self, input: EditInput, ctx: ToolContext) -> None:
        """Raises `ToolRejected` if the edit can't be done now; the text says what stands in the way."""
        await in_thread(_plan, locate(input.file_path, ctx.cwd), ctx.cwd, dict(ctx.files), input)

    async def run(self, input: EditInput, ctx: ToolContext) -> ToolOutput:
        """Edit, and note the new state in ``ctx.files``. When cancelled, the file is wholly old or wholly new."""
        path = locate(input.file_path, ctx.cwd)
        real, state, output = await in_thread(_edit, path, ctx.cwd, dict(ctx.files), input)
        ctx.files[real] = state
        return output


def _plan(path: Path, cwd: Path, files: Mapping[Path, FileState], input: EditInput) -> Plan:
    if input.old_string == input.new_string:
        raise ToolRejected("old_string and new_string are the same; nothing would change.")
    if not os.path.lexists(path) or not path.exists():
        if input.old_string or input.file_path.endswith("/"):
            raise missing(path, cwd)
        return _creation(Path(os.path.realpath(path)), input.new_string, TextFormat())
    found = load(path, cwd)
    known = files.get(found.path)
    if found.data is None:
        raise ToolRejected(f"{path} is too large for Edit ({found.size:,} bytes); change it with Bash (sed, a script).")
    decoded = decode(found.data)
    if decoded is None:
        raise ToolRejected(f"{path} is a binary file; Edit changes text only.")
    text, format = decoded
    if not input.old_string and not text:
        return _creation(found.path, input.new_string, format)
    require_current(path, known, found)
    if not input.old_string:
        raise ToolRejected(
            f"{path} exists and is not empty, so an empty old_string says nothing about the place. Give the text to "
            "replace, or replace the whole file with Write."
        )
    return _replacement(path, found.path, text, format, input, partial=known is not None and known.partial)


def _creation(real: Path, text: str, format: TextFormat) -> Plan:
    return Plan(real=real, text=text, format=format, start=0, end=len(text), count=1, created=True)


def _replacement(path: Path, real: Path, text: str, format: TextFormat, input: EditInput, *, partial: bool) -> Plan:
    found = find_spans(text, input.old_string, input.new_string, every=input.replace_all)
    if not found.spans:
        raise ToolRejected(explain_absence(path, text, input.old_string))
    if len(found.spans) > 1 and not input.replace_all:
        raise ToolRejected(_ambiguous(path, text, found))
    new = found.new if found.literal else unified(found.new).replace("\n", format.newline)
    parts: list[str] = []
    at = 0
    for start, end in found.spans:
        parts += (text[at:start], new)
        at = end
    parts.append(text[at:])
    first = found.spans[0][0]
    changed = "".join(parts)
    if changed == text:
        raise ToolRejected("new_string is what the file holds already; nothing would change.")
    return Plan(
        real=real,
        text=changed,
        format=format,
        start=first,
        end=first + len(new),
        count=len(found.spans),
        partial=partial,
    )


def _ambiguous(path: Path, text: str, found: Spans) -> str:
    places = [str(line_number(text, start)) for start, _ in found.spans[:SHOWN_PLACES]]
    count = f"at least {MAX_PLACES}" if len(found.spans) == MAX_PLACES else str(len(found.spans))
    more = ", ..." if len(found.spans) > SHOWN_PLACES else ""
    return (
        f"old_string occurs {count} times in {path} (lines {', '.join(places)}{more}), so the place is not "
        "clear. Add surrounding lines to old_string until it is unique, or set replace_all to change every one."
    )


def _edit(
    path: Path, cwd: Path, files: Mapping[Path, FileState], input: EditInput
) -> tuple[Path, FileState, ToolOutput]:
    # Planned anew and not taken from the check: hooks and the question to the user came in between.
    plan = _plan(path, cwd, files, input)
    try:
        data = plan.format.encode(plan.text)
    except UnicodeEncodeError as error:
        raise ToolRejected(
            f"{path} is {plan.format.label}, which has no {error.object[error.start]!r}. Use other characters, or "
            "convert the file to UTF-8 with Bash (iconv), read it again and edit it then."
        ) from error
    state = attrs.evolve(write_atomic(path, data), partial=plan.partial)
    line = line_number(plan.text, plan.start)
    details = {
        "type": "create" if plan.created else "update",
        "filePath": str(path),
        "replacements": plan.count,
        "line": line,
    }
    return plan.real, state, ToolOutput(_report(path, plan), details=details)


def _report(path: Path, plan: Plan) -> str:
    if plan.created:
        return f"Created {path}."
    if plan.count > 1:
        head = f"Updated {path}: {plan.count} replacements. Around the first:"
    else:
        head = f"Updated {path}. The result around the change:"
    return f"{head}\n{_snippet(plan)}"


def _snippet(plan: Plan) -> str:
    lines = unified(plan.text).split("\n")
    if lines[-1] == "":
        lines.pop()
    first = max(line_number(plan.text, plan.start) - CONTEXT_LINES, 1)
    last = min(line_number(plan.text, plan.end) + CONTEXT_LINES, len(lines))
    shown = [
        line if len(line) <= SNIPPET_LINE_CHARS else f"{line[:SNIPPET_LINE_CHARS]} [...]"
        for line in lines[first - 1 : last]
    ]
    entries = numbered(shown, first)
    if len(entries) > SNIPPET_LINES:
        half = SNIPPET_LINES // 2
        entries = [*entries[:half], f"[... {len(entries) - 2 * half} lines ...]", *entries[-half:]]
    return "\n".join(entries)
