"""Edit replaces exactly what is meant, keeps the rest, and says why it can't."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.errors import ToolError, ToolRejected
from atrio.runtime.tool import ToolContext, ToolOutput, Workspace
from atrio.tools.edit import Edit
from atrio.tools.edit_matching import explain_absence, find_spans, line_number
from atrio.tools.read import Read

READ = Read()
EDIT = Edit()


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


async def edit(ctx: ToolContext, old: str, new: str, *, path: str = "a.txt", replace_all: bool = False) -> ToolOutput:
    raw = {"file_path": path, "old_string": old, "new_string": new, "replace_all": replace_all}
    input = EDIT.parse(raw)
    await EDIT.check(input, ctx)
    return await EDIT.run(input, ctx)


async def known(ctx: ToolContext, content: bytes | str) -> Path:
    """A file that has been read."""
    path = ctx.cwd / "a.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    await READ.run(READ.parse({"file_path": "a.txt"}), ctx)
    return path


async def error_of(ctx: ToolContext, old: str, new: str = "new") -> str:
    with pytest.raises(ToolError) as caught:
        await edit(ctx, old, new)
    return str(caught.value)


async def test_the_text_is_replaced_and_the_place_shown(ctx: ToolContext) -> None:
    path = await known(ctx, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n")
    output = await edit(ctx, "6\n", "six\nsechs\n")
    assert "1\n2\n3\n4\n5\nsix\nsechs\n7\n8\n9\n10\n" == path.read_text()
    assert isinstance(output.content, str)
    assert "     2\t2\n" in output.content
    assert "     6\tsix\n     7\tsechs\n     8\t7\n" in output.content
    assert "     1\t" not in output.content
    assert {"type": "update", "filePath": str(path), "replacements": 1, "line": 6} == output.details


async def test_edits_follow_one_another_without_reading_again(ctx: ToolContext) -> None:
    path = await known(ctx, "a b\n")
    await edit(ctx, "a", "c")
    await edit(ctx, "b", "d")
    assert "c d\n" == path.read_text()


async def test_a_text_that_occurs_more_than_once_is_refused_with_lines(ctx: ToolContext) -> None:
    path = await known(ctx, "x\ny\nx\nx\n")
    text = await error_of(ctx, "x")
    assert "occurs 3 times" in text
    assert "lines 1, 3, 4" in text
    assert "x\ny\nx\nx\n" == path.read_text()


async def test_overlapping_places_are_not_unique(ctx: ToolContext) -> None:
    await known(ctx, "aaa")
    assert "occurs 2 times" in await error_of(ctx, "aa")


async def test_replace_all_replaces_all(ctx: ToolContext) -> None:
    path = await known(ctx, "x y x\nx\n")
    output = await edit(ctx, "x", "z", replace_all=True)
    assert "z y z\nz\n" == path.read_text()
    assert "3 replacements" in str(output.content)


async def test_equal_texts_are_refused(ctx: ToolContext) -> None:
    await known(ctx, "x")
    assert "are the same" in await error_of(ctx, "x", "x")


async def test_an_unread_file_is_refused(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_text("x")
    assert "has not been read" in await error_of(ctx, "x")


async def test_a_changed_file_is_refused(ctx: ToolContext) -> None:
    path = await known(ctx, "x")
    path.write_text("x y")
    assert "changed since it was read" in await error_of(ctx, "x")


async def test_any_part_read_is_enough(ctx: ToolContext) -> None:
    path = await known(ctx, "1\n2\n3\n")
    ctx.files.clear()
    await READ.run(READ.parse({"file_path": "a.txt", "limit": 1}), ctx)
    await edit(ctx, "3", "4")
    assert "1\n2\n4\n" == path.read_text()
    assert ctx.files[path].partial


async def test_an_empty_old_string_creates_a_file(ctx: ToolContext) -> None:
    await edit(ctx, "", "content\n", path="new/a.txt")
    assert "content\n" == (ctx.cwd / "new/a.txt").read_text()
    await edit(ctx, "content", "more", path="new/a.txt")


async def test_an_empty_old_string_fills_an_empty_file(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").touch()
    await edit(ctx, "", "content\n")
    assert "content\n" == (ctx.cwd / "a.txt").read_text()


async def test_an_empty_old_string_is_no_place_in_a_full_file(ctx: ToolContext) -> None:
    await known(ctx, "x")
    assert "not empty" in await error_of(ctx, "")


async def test_a_missing_file_is_reported(ctx: ToolContext) -> None:
    assert "does not exist" in await error_of(ctx, "x")


async def test_lf_matches_crlf_and_crlf_is_kept(ctx: ToolContext) -> None:
    path = await known(ctx, b"a\r\nb\r\nc\r\n")
    await edit(ctx, "a\nb\n", "x\ny\nz\n")
    assert b"x\r\ny\r\nz\r\nc\r\n" == path.read_bytes()


async def test_other_line_ends_of_a_mixed_file_stay(ctx: ToolContext) -> None:
    path = await known(ctx, b"a\r\nb\r\nc\nd\n\r\n")
    await edit(ctx, "b\nc", "b\nC")
    assert b"a\r\nb\r\nC\nd\n\r\n" == path.read_bytes()


async def test_line_ends_can_be_changed_on_purpose(ctx: ToolContext) -> None:
    path = await known(ctx, b"a\r\nb\r\n")
    await edit(ctx, "a\r\nb", "a\nb")
    assert b"a\nb\r\n" == path.read_bytes()


async def test_crlf_from_the_model_matches_lf(ctx: ToolContext) -> None:
    path = await known(ctx, b"a\nb\n")
    await edit(ctx, "a\r\nb", "c\r\nd")
    assert b"c\nd\n" == path.read_bytes()


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-32", "cp1252"])
async def test_an_encoding_is_kept(ctx: ToolContext, codec: str) -> None:
    path = await known(ctx, "süß\r\nöde\r\n".encode(codec))
    await edit(ctx, "öde", "äh")
    assert "süß\r\näh\r\n".encode(codec) == path.read_bytes()


async def test_what_an_encoding_cannot_hold_is_refused(ctx: ToolContext) -> None:
    path = await known(ctx, "süß".encode("cp1252"))
    text = await error_of(ctx, "s", "漢")
    assert "Windows-1252, which has no '漢'" in text
    assert "süß".encode("cp1252") == path.read_bytes()


async def test_binary_files_are_refused(ctx: ToolContext) -> None:
    (ctx.cwd / "a.txt").write_bytes(b"a\0b")
    assert "binary" in await error_of(ctx, "a")


async def test_line_numbers_in_the_text_are_recognised(ctx: ToolContext) -> None:
    await known(ctx, "def f():\n    pass\n")
    assert "line numbers" in await error_of(ctx, "     1\tdef f():\n     2\t    pass")


async def test_curly_quotes_are_recognised(ctx: ToolContext) -> None:
    await known(ctx, "x\nsay \u201chi\u201d\n")
    text = await error_of(ctx, 'say "hi"')
    assert "typographic" in text
    assert "     2\tsay \u201chi\u201d" in text


async def test_wrong_indentation_is_recognised(ctx: ToolContext) -> None:
    await known(ctx, "if x:\n\ty = 1\n\tz = 2\n")
    text = await error_of(ctx, "    y = 1\n    z = 2\n")
    assert "indentation" in text
    assert "     2\t\ty = 1\n     3\t\tz = 2" in text


async def test_wrong_inner_whitespace_is_recognised(ctx: ToolContext) -> None:
    await known(ctx, "a  =  1\n")
    assert "only in whitespace" in await error_of(ctx, "a = 1")


async def test_escapes_for_line_ends_are_recognised(ctx: ToolContext) -> None:
    await known(ctx, "a\nb\n")
    assert "two characters" in await error_of(ctx, "a\\nb")


async def test_the_closest_lines_are_shown(ctx: ToolContext) -> None:
    await known(ctx, "import os\n\ndef population(city):\n    return ask(city)\n")
    text = await error_of(ctx, "def population(town):\n    return ask(town)")
    assert "     3\tdef population(city):\n     4\t    return ask(city)" in text


async def test_nothing_alike_is_said(ctx: ToolContext) -> None:
    await known(ctx, "alpha\n")
    assert "Nothing like it" in await error_of(ctx, "0123456789")


@pytest.mark.slow
def test_the_search_for_the_closest_lines_is_bounded() -> None:
    text = "".join(f"value_{n} = compute({n}, {n * 7})\n" * 3 for n in range(20_000))
    assert "closest" in explain_absence(Path("a"), text, "value_x = compute_it(17, y)\n" * 50)


async def test_a_long_change_is_shown_in_part(ctx: ToolContext) -> None:
    await known(ctx, "a\n")
    output = await edit(ctx, "a", "\n".join("x" * 900 for _ in range(200)))
    assert len(str(output.content)) < 25_000
    assert "lines ...]" in str(output.content)


async def test_a_check_changes_nothing(ctx: ToolContext) -> None:
    path = await known(ctx, "a")
    await EDIT.check(EDIT.parse({"file_path": "a.txt", "old_string": "a", "new_string": "b"}), ctx)
    assert "a" == path.read_text()


async def test_a_refusal_is_a_rejection(ctx: ToolContext) -> None:
    await known(ctx, "a")
    with pytest.raises(ToolRejected):
        await edit(ctx, "b", "c")


@given(st.text(alphabet="ab \n\r", max_size=30), st.text(alphabet="ab\n", min_size=1, max_size=4))
def test_places_are_those_of_the_text_with_plain_line_ends(text: str, old: str) -> None:
    spans = find_spans(text, old, "", every=True).spans
    for start, end in spans:
        assert old == text[start:end].replace("\r\n", "\n").replace("\r", "\n")
        assert line_number(text, start) >= 1
    assert spans == sorted(spans)


def test_declarations() -> None:
    input = EDIT.parse({"file_path": "a", "old_string": "x", "new_string": "y"})
    assert "edit" == EDIT.permission
    assert not EDIT.concurrency_safe(input)
    assert "a" == EDIT.specifier(input)
    assert ["file_path", "old_string", "new_string", "replace_all"] == list(EDIT.input_schema["properties"])
