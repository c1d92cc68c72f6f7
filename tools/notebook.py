"""The NotebookEdit tool: one cell of a Jupyter notebook replaced, inserted or deleted."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs

from atrio.runtime.errors import ToolRejected
from atrio.runtime.messages import JsonObject
from atrio.runtime.tool import FileState, Tool, ToolContext, ToolOutput

from .files import FilePath, Loaded, check_path, in_thread, load, missing, require_current, write_atomic
from .notebook_format import Cell, Notebook, NotNotebook, parse_notebook, source_value
from .paths import locate
from .schema import Field, json_schema, structure
from .shapes import close_names
from .text_format import TextFormat, decode

__all__ = ["NotebookEdit", "NotebookEditInput"]

LISTED_CELLS: Final = 40

CellType = Literal["code", "markdown", "raw"]


@attrs.frozen(kw_only=True)
class NotebookEditInput:
    """Which cell, and what becomes of it."""

    notebook_path: FilePath = attrs.field(validator=check_path)
    cell_id: Annotated[
        str | None,
        Field(
            min_length=1,
            description="id of the cell as Read shows it. For insert: the new cell comes after this one, or at the "
            "beginning without it",
        ),
    ] = None
    new_source: Annotated[str, Field(description="the cell's whole new text; nothing for delete")] = ""
    cell_type: Annotated[
        CellType | None, Field(description="needed for insert; for replace the cell keeps its type without it")
    ] = None
    edit_mode: Annotated[Literal["replace", "insert", "delete"], Field(description="what to do")] = "replace"


@attrs.frozen(kw_only=True)
class Change:
    """An edit that can be done: the file's new text, and the cell that it is about."""

    real: Path
    text: str
    format: TextFormat
    label: str
    kind: str


class NotebookEdit(Tool):
    """
    Edits a notebook that the session has read and that is unchanged since.

    Only the cell's own text in the file changes. A code cell with a new source loses its outputs, which no longer
    belong to it; its other fields stay.
    """

    name = "NotebookEdit"
    description = (
        "Changes one cell of a Jupyter notebook (.ipynb): replaces its source, inserts a new cell after it, or deletes "
        "it. The notebook must have been read in this session; Read shows the ids of the cells."
    )
    input_schema = json_schema(NotebookEditInput)
    permission: Literal["allow", "read", "edit", "ask"] = "edit"

    def parse(self, raw: Mapping[str, Any]) -> NotebookEditInput:
        return structure(NotebookEditInput, raw, tool=self.name)

    def paths(self, input: NotebookEditInput, ctx: ToolContext) -> tuple[Path, ...]:
        return (locate(input.notebook_path, ctx.cwd),)

    def specifier(self, input: NotebookEditInput) -> str:
        return input.notebook_path

    async def check(self, input: NotebookEditInput, ctx: ToolContext) -> None:
        """Raises `ToolRejected` if the edit can't be done now; the text says what stands in the way."""
        await in_thread(_plan, locate(input.notebook_path, ctx.cwd), ctx.cwd, dict(ctx.files), input)

    async def run(self, input: NotebookEditInput, ctx: ToolContext) -> ToolOutput:
        """Edit, and note the new state in ``ctx.files``. When cancelled, the file is wholly old or wholly new."""
        path = locate(input.notebook_path, ctx.cwd)
        real, state, output = await in_thread(_edit, path, ctx.cwd, dict(ctx.files), input)
        ctx.files[real] = state
        return output


def _edit(
    path: Path, cwd: Path, files: Mapping[Path, FileState], input: NotebookEditInput
) -> tuple[Path, FileState, ToolOutput]:
    # Planned anew and not taken from the check: hooks and the question to the user came in between.
    change = _plan(path, cwd, files, input)
    known = files.get(change.real)
    state = write_atomic(path, change.format.encode(change.text))
    state = attrs.evolve(state, partial=known is not None and known.partial)
    done = {"replace": "Replaced", "insert": "Inserted", "delete": "Deleted"}[input.edit_mode]
    details = {"type": input.edit_mode, "filePath": str(path), "cellId": change.label, "cellType": change.kind}
    return change.real, state, ToolOutput(f"{done} {change.kind} cell {change.label} of {path}.", details=details)


def _plan(path: Path, cwd: Path, files: Mapping[Path, FileState], input: NotebookEditInput) -> Change:
    if path.suffix.lower() != ".ipynb":
        raise ToolRejected(f"{path} is no Jupyter notebook (.ipynb); change other files with Edit.")
    if not os.path.lexists(path) or not path.exists():
        raise missing(path, cwd)
    found = load(path, cwd)
    require_current(path, files.get(found.path), found)
    notebook, format = _parsed(path, found)
    if input.edit_mode == "insert":
        text, label, kind = _insert(path, notebook, input)
    else:
        cell = _cell(path, notebook, input.cell_id)
        label, kind = cell.label, cell.kind
        if input.edit_mode == "delete":
            text = notebook.deleted(cell)
        else:
            kind = input.cell_type or kind
            text = _replace(notebook, cell, kind, input.new_source)
    return Change(real=found.path, text=text, format=format, label=label, kind=kind)


def _parsed(path: Path, found: Loaded) -> tuple[Notebook, TextFormat]:
    if found.data is None:
        raise ToolRejected(f"{path} is too large for NotebookEdit ({found.size:,} bytes); clear its outputs first.")
    decoded = decode(found.data)
    if decoded is None:
        raise ToolRejected(f"{path} is a binary file and no notebook.")
    text, format = decoded
    try:
        return parse_notebook(text), format
    except NotNotebook as error:
        raise ToolRejected(f"{path} can't be edited as a notebook: {error}.") from error


def _cell(path: Path, notebook: Notebook, label: str | None) -> Cell:
    labels = [cell.label for cell in notebook.cells]
    listed = ", ".join(labels[:LISTED_CELLS]) + (", ..." if len(labels) > LISTED_CELLS else "")
    there = f"Its cells are {listed}." if labels else "It has no cells; insert one."
    if label is None:
        raise ToolRejected(f"cell_id is missing: say which cell of {path} is meant. {there}")
    cell = notebook.find(label)
    if cell is None:
        close = close_names(label, labels)
        hint = f"Did you mean {' or '.join(close)}?" if close else there
        raise ToolRejected(f"{path} has no cell {label!r}. {hint}")
    return cell


def _replace(notebook: Notebook, cell: Cell, kind: str, source: str) -> str:
    old = cell.value
    if kind == cell.kind and source == cell.source:
        raise ToolRejected(f"This is what cell {cell.label} holds already; nothing would change.")
    changed: JsonObject = {**old, "cell_type": kind, "source": source_value(source, old.get("source"))}
    if kind == "code":
        changed.update(execution_count=None, outputs=[])
        changed.setdefault("metadata", {})
    else:
        for field in ("execution_count", "outputs"):
            changed.pop(field, None)
    return notebook.replaced(cell, changed)


def _insert(path: Path, notebook: Notebook, input: NotebookEditInput) -> tuple[str, str, str]:
    """The new text, and the new cell's id and type."""
    if input.cell_type is None:
        raise ToolRejected("cell_type is missing: say whether the new cell is code or markdown.")
    after = _cell(path, notebook, input.cell_id) if input.cell_id is not None else None
    like = notebook.cells[0].value.get("source") if notebook.cells else []
    value: JsonObject = {"cell_type": input.cell_type}
    if input.cell_type == "code":
        value["execution_count"] = None
    if notebook.has_ids:
        value["id"] = _new_id({cell.label for cell in notebook.cells})
    value["metadata"] = {}
    if input.cell_type == "code":
        value["outputs"] = []
    value["source"] = source_value(input.new_source, like)
    label = str(value.get("id", f"cell-{0 if after is None else after.index + 1}"))
    return notebook.inserted(after, value), label, input.cell_type


def _new_id(taken: set[str]) -> str:
    while (id := secrets.token_hex(4)) in taken or id.isdecimal():
        pass
    return id
