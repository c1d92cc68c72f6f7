"""NotebookEdit changes one cell and no other byte; Read shows notebooks by their cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.errors import ToolError, ToolRejected
from atrio.runtime.tool import ToolContext, ToolOutput, Workspace
from atrio.tools.notebook import NotebookEdit
from atrio.tools.notebook_format import NotNotebook, parse_notebook, show_notebook
from atrio.tools.permissions import Behavior, PermissionMode, Rules, decide_permission, parse_rule
from atrio.tools.read import Read

READ = Read()
EDIT = NotebookEdit()

CODE: dict[str, Any] = {
    "cell_type": "code",
    "execution_count": 3,
    "id": "aaaa1111",
    "metadata": {"tags": ["keep"]},
    "outputs": [{"name": "stdout", "output_type": "stream", "text": ["one\n", "two\n"]}],
    "source": ["x = 1\n", "print(x)"],
}
TEXT: dict[str, Any] = {"cell_type": "markdown", "id": "bbbb2222", "metadata": {}, "source": ["# Title é"]}
BOOK: dict[str, Any] = {
    "cells": [CODE, TEXT],
    "metadata": {"language_info": {"name": "python"}, "unknown": {"z": 1.50, "a": [1, 2]}},
    "nbformat": 4,
    "nbformat_minor": 5,
    "future": None,
}


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    return ToolContext(
        session_id="s",
        run_id="r",
        call_id="c",
        workspace=Workspace(cwd=tmp_path),
        results_dir=tmp_path / "results",
        progress=lambda text, data=None: None,
    )


def written(book: object, indent: int | str | None = 1, **options: Any) -> str:
    return json.dumps(book, indent=indent, ensure_ascii=False, **options) + "\n"


async def known(ctx: ToolContext, content: str | bytes) -> Path:
    path = ctx.cwd / "a.ipynb"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    await read(ctx)
    return path


async def read(ctx: ToolContext, **raw: Any) -> str:
    output = await READ.run(READ.parse({"file_path": "a.ipynb", **raw}), ctx)
    return str(output.content)


async def edit(ctx: ToolContext, **raw: Any) -> ToolOutput:
    input = EDIT.parse({"notebook_path": "a.ipynb", **raw})
    await EDIT.check(input, ctx)
    return await EDIT.run(input, ctx)


async def error_of(ctx: ToolContext, **raw: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await edit(ctx, **raw)
    return str(caught.value)


# --- changing -------------------------------------------------------------------------------------


async def test_a_replaced_code_cell_loses_its_outputs_and_keeps_the_rest(ctx: ToolContext) -> None:
    path = await known(ctx, written(BOOK))
    output = await edit(ctx, cell_id="aaaa1111", new_source="y = 2\ny")
    changed = {**CODE, "execution_count": None, "outputs": [], "source": ["y = 2\n", "y"]}
    assert written({**BOOK, "cells": [changed, TEXT]}) == path.read_text()
    assert f"Replaced code cell aaaa1111 of {path}." == output.content
    assert {"type": "replace", "filePath": str(path), "cellId": "aaaa1111", "cellType": "code"} == output.details


@pytest.mark.parametrize("indent", [None, 1, 2, 4, "\t"])
async def test_indentation_is_kept(ctx: ToolContext, indent: int | str | None) -> None:
    path = await known(ctx, written(BOOK, indent))
    await edit(ctx, cell_id="bbbb2222", new_source="new")
    assert written({**BOOK, "cells": [CODE, {**TEXT, "source": ["new"]}]}, indent) == path.read_text()


async def test_a_compact_notebook_stays_compact(ctx: ToolContext) -> None:
    path = await known(ctx, written(BOOK, None, separators=(",", ":")))
    await edit(ctx, cell_id="bbbb2222", new_source="new")
    expected = written({**BOOK, "cells": [CODE, {**TEXT, "source": ["new"]}]}, None, separators=(",", ":"))
    assert expected == path.read_text()


async def test_line_ends_byte_order_mark_and_escapes_are_kept(ctx: ToolContext) -> None:
    text = json.dumps(BOOK, indent=1).replace("\n", "\r\n")
    path = await known(ctx, b"\xef\xbb\xbf" + text.encode())
    await edit(ctx, cell_id="aaaa1111", new_source="é", cell_type="markdown")
    changed = {"cell_type": "markdown", "id": "aaaa1111", "metadata": {"tags": ["keep"]}, "source": ["é"]}
    expected = json.dumps({**BOOK, "cells": [changed, TEXT]}, indent=1).replace("\n", "\r\n")
    assert b"\xef\xbb\xbf" + expected.encode() == path.read_bytes()


async def test_every_byte_outside_the_cell_stays(ctx: ToolContext) -> None:
    odd = '{ "cells" : [\n\n {"id":"a" , "cell_type":"raw","source":"1"} ,{"id":"b","source":"2"}]  ,"x":1.50e0 }'
    path = await known(ctx, odd)
    await edit(ctx, cell_id="b", new_source="3", cell_type="raw")
    before, after = odd.split('{"id":"b","source":"2"}')
    text = path.read_text()
    assert text.startswith(before)
    assert text.endswith(after)
    assert {"id": "b", "cell_type": "raw", "source": "3"} == json.loads(text)["cells"][1]


@pytest.mark.parametrize(("after", "place"), [(None, 0), ("aaaa1111", 1), ("bbbb2222", 2), ("cell-0", 1), ("1", 2)])
async def test_a_cell_is_inserted_after_another_or_at_the_beginning(
    ctx: ToolContext, after: str | None, place: int
) -> None:
    path = await known(ctx, written(BOOK))
    output = await edit(ctx, cell_id=after, new_source="z\n", cell_type="code", edit_mode="insert")
    id = output.details["cellId"]
    new = {"cell_type": "code", "execution_count": None, "id": id, "metadata": {}, "outputs": [], "source": ["z\n"]}
    cells = [CODE, TEXT]
    cells.insert(place, new)
    assert written({**BOOK, "cells": cells}) == path.read_text()


@pytest.mark.parametrize("cells", ["[]", "[\n ]"])
async def test_the_first_cell_of_an_older_notebook_has_no_id(ctx: ToolContext, cells: str) -> None:
    path = await known(ctx, '{\n "cells": ' + cells + ',\n "nbformat": 4,\n "nbformat_minor": 4\n}\n')
    await edit(ctx, new_source="# Hi", cell_type="markdown", edit_mode="insert")
    new = {"cell_type": "markdown", "metadata": {}, "source": ["# Hi"]}
    assert written({"cells": [new], "nbformat": 4, "nbformat_minor": 4}) == path.read_text()


@pytest.mark.parametrize("indent", [None, 1])
async def test_cells_are_deleted(ctx: ToolContext, indent: int | None) -> None:
    path = await known(ctx, written({**BOOK, "cells": [CODE, TEXT, {**TEXT, "id": "c"}]}, indent))
    for id, left in (("bbbb2222", [CODE, {**TEXT, "id": "c"}]), ("c", [CODE]), ("aaaa1111", [])):
        await edit(ctx, cell_id=id, edit_mode="delete")
        assert written({**BOOK, "cells": left}, indent) == path.read_text()


@given(
    st.lists(st.text(max_size=5), max_size=4),
    st.sampled_from([None, 0, 1, 4, "\t"]),
    st.sampled_from(["replaced", "inserted", "deleted"]),
    st.integers(-1, 3),
    st.text(max_size=8),
    st.booleans(),
)
def test_any_change_of_any_notebook_gives_the_notebook_meant(
    sources: list[str], indent: int | str | None, act: str, at: int, source: str, ascii: bool
) -> None:
    cells = [{"cell_type": "raw", "metadata": {}, "source": text} for text in sources]
    book = {"metadata": {"a": [{}]}, "cells": cells, "nbformat": 4}
    notebook = parse_notebook(json.dumps(book, indent=indent, ensure_ascii=ascii))
    new = {"cell_type": "raw", "metadata": {}, "source": source}
    at = min(at, len(cells) - 1)
    expected = list(cells)
    if act == "inserted":
        text = notebook.inserted(notebook.cells[at] if at >= 0 else None, new)
        expected.insert(at + 1, new)
    elif at < 0:
        return
    elif act == "replaced":
        text = notebook.replaced(notebook.cells[at], new)
        expected[at] = new
    else:
        text = notebook.deleted(notebook.cells[at])
        del expected[at]
    assert {**book, "cells": expected} == json.loads(text)


# --- refusing -------------------------------------------------------------------------------------


async def test_a_notebook_must_have_been_read_and_be_unchanged(ctx: ToolContext) -> None:
    path = ctx.cwd / "a.ipynb"
    path.write_text(written(BOOK))
    assert "has not been read" in await error_of(ctx, cell_id="aaaa1111", new_source="1")
    await read(ctx)
    path.write_text(written(BOOK, 2))
    assert "has been changed since" in await error_of(ctx, cell_id="aaaa1111", new_source="1")
    await read(ctx)
    await edit(ctx, cell_id="aaaa1111", new_source="1")
    await edit(ctx, cell_id="aaaa1111", new_source="2")


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"cell_id": "aaaa1112", "new_source": "1"}, "has no cell 'aaaa1112'. Did you mean aaaa1111?"),
        ({"cell_id": "cell-9", "new_source": "1"}, "Its cells are aaaa1111, bbbb2222."),
        ({"new_source": "1"}, "cell_id is missing"),
        ({"edit_mode": "delete"}, "cell_id is missing"),
        ({"edit_mode": "insert", "new_source": "1"}, "cell_type is missing"),
        ({"cell_id": "bbbb2222", "new_source": "# Title é"}, "nothing would change"),
    ],
)
async def test_what_can_not_be_done_is_told(ctx: ToolContext, raw: dict[str, Any], problem: str) -> None:
    await known(ctx, written(BOOK))
    assert problem in await error_of(ctx, **raw)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "no valid JSON"),
        ("[]", "no list of cells"),
        ('{"cells": 1}', "no list of cells"),
        ('{"cells": [], "cells": {}}', "no list of cells"),
        ('{"cells": [1]}', "no JSON object"),
        ('{"worksheets": []}', "format of 2013"),
        ("[" * 100_000, "no valid JSON"),
        ('{"cells": ' + "[" * 100_000, "no valid JSON"),
    ],
)
async def test_what_is_no_notebook_is_shown_as_text_and_not_edited(
    ctx: ToolContext, content: str, problem: str
) -> None:
    await known(ctx, content)
    assert problem in await error_of(ctx, cell_id="x", new_source="1")
    with pytest.raises(NotNotebook):
        parse_notebook(content)


async def test_other_files_are_left_to_edit(ctx: ToolContext) -> None:
    with pytest.raises(ToolRejected, match="no Jupyter notebook"):
        await EDIT.check(EDIT.parse({"notebook_path": "a.py", "cell_id": "x"}), ctx)
    with pytest.raises(ToolRejected, match="does not exist"):
        await EDIT.check(EDIT.parse({"notebook_path": "b.ipynb", "cell_id": "x"}), ctx)


def test_edit_rules_are_about_notebooks_too(ctx: ToolContext) -> None:
    rules = Rules(deny=(parse_rule("Edit(secret/**)"),))
    for path, expected in (("secret/a.ipynb", Behavior.DENY), ("a.ipynb", Behavior.ALLOW)):
        input = EDIT.parse({"notebook_path": path})
        assert expected is decide_permission(EDIT, input, ctx, rules, PermissionMode.ACCEPT_EDITS).behavior


# --- showing --------------------------------------------------------------------------------------


async def test_read_shows_cells_with_ids_sources_and_outputs(ctx: ToolContext) -> None:
    await known(ctx, written(BOOK))
    assert (
        "     1\t[cell aaaa1111: code python run=3]\n"
        "     2\tx = 1\n"
        "     3\tprint(x)\n"
        "     4\t[output of aaaa1111]\n"
        "     5\tone\n"
        "     6\ttwo\n"
        "     7\t\n"
        "     8\t[cell bbbb2222: markdown]\n"
        "     9\t# Title é\n"
        "    10\t\n"
        "[A notebook, shown by its cells; change one with NotebookEdit and its id.]"
    ) == await read(ctx)
    assert "[Lines 2-3 of 10 lines." in await read(ctx, offset=2, limit=2)


def test_outputs_are_shown_plainly_and_within_limits() -> None:
    outputs = [
        {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mTraceback\x1b[0m", "E: v"]},
        {"output_type": "error", "ename": "E", "evalue": "v"},
        {"output_type": "display_data", "data": {"text/plain": ["<Figure>"], "image/png": "A" * 1234}},
        {"output_type": "execute_result", "data": {"application/json": {"a": 1}, "text/html": "<b>"}},
        {"output_type": "stream", "text": "y" * 10_007},
        "nonsense",
        {"output_type": "display_data"},
    ]
    cell = {"cell_type": "code", "outputs": outputs, "source": "\ud800"}
    shown = show_notebook(parse_notebook(json.dumps({"cells": [cell]})))
    assert "[cell cell-0: code python]\n?\n[output of cell-0]\nTraceback\nE: v\nE: v\n<Figure>\n" in shown
    assert '[image/png, 1,234 characters: not shown]\n{"a": 1}\n' in shown
    assert "[... 7 characters left out ...]" in shown
    assert "[This notebook has no cells.]\n" == show_notebook(parse_notebook('{"cells": []}'))
