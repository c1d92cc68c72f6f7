"""Grep finds lines and files by expression, within bounds, whatever the files and expressions are like."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.errors import InvalidToolInput, ToolRejected
from atrio.runtime.tool import ToolContext, ToolOutput, Workspace
from atrio.tools import grep_search
from atrio.tools.grep import Grep
from atrio.tools.grep_child import shorten
from atrio.tools.grep_pattern import compile_pattern
from atrio.tools.permissions import Rules, parse_rule_list


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    (tmp_path / "w").mkdir()
    return ToolContext(
        session_id="s",
        run_id="r",
        call_id="c",
        workspace=Workspace(cwd=tmp_path / "w"),
        results_dir=tmp_path / "results",
        progress=lambda text, data=None: None,
    )


def plant(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Files, the later ones older."""
    for age, (name, content) in enumerate(files.items()):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        os.utime(path, (1_000_000 - age, 1_000_000 - age))


async def grep(ctx: ToolContext, pattern: str, *, tool: Grep | None = None, **raw: Any) -> ToolOutput:
    tool = tool or Grep()
    input = tool.parse({"pattern": pattern, **raw})
    await tool.check(input, ctx)
    return await tool.run(input, ctx)


async def lines(ctx: ToolContext, pattern: str, **raw: Any) -> list[str]:
    output = await grep(ctx, pattern, **raw)
    assert isinstance(output.content, str)
    assert not output.is_error
    return output.content.split("\n")


async def content(ctx: ToolContext, pattern: str, **raw: Any) -> list[str]:
    return await lines(ctx, pattern, output_mode="content", **raw)


NOTHING = ["No matches found."]


# --- modes ----------------------------------------------------------------------------------------


async def test_files_are_listed_newest_first(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"z": "needle\nneedle", "m/a": "a needle", "b": "needle", "c": "hay"})
    assert ["z", "m/a", "b"] == await lines(ctx, "needle")


async def test_lines_are_shown_with_path_and_number(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"b": "x\r\nneedle 1\r\n\nneedle 2", "a": "needle"})
    assert ["a:1:needle", "b:2:needle 1", "b:4:needle 2"] == await content(ctx, "needle")
    assert ["a:needle", "b:needle 1", "b:needle 2"] == await content(ctx, "needle", **{"-n": False})


async def test_matching_lines_are_counted(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"a": "x x\nx\n", "b": "y"})
    assert ["a:2"] == await lines(ctx, "x", output_mode="count")


async def test_context_lines_join_where_they_meet(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"a": "1\n2\nx3\n4\n5\n6\nx7\nx8\n9\n", "b": "x"})
    expected = ["a-2-2", "a:3:x3", "a-4-4", "--", "a-6-6", "a:7:x7", "a:8:x8", "a-9-9", "--", "b:1:x"]
    assert expected == await content(ctx, "x", **{"-C": 1})
    assert ["a:3:x3", "a-4-4", "--", "a:7:x7", "a:8:x8", "a-9-9"] == await content(ctx, "x", path="a", **{"-A": 1})
    assert ["a-2-2", "a:3:x3", "--", "a-6-6", "a:7:x7", "a:8:x8"] == await content(ctx, "x", path="a", **{"-B": 1})


async def test_case_can_be_ignored(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"a": "NEEDLE"})
    assert NOTHING == await lines(ctx, "needle")
    assert ["a"] == await lines(ctx, "needle", **{"-i": True})


async def test_limit_and_offset_page_through_lines_and_files(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"a": "x1\nx2\nx3\n", "b": "x4\n"})
    first = await content(ctx, "x", head_limit=2)
    assert ["a:1:x1", "a:2:x2", "(there is more: go on with offset 2, or narrow the search)"] == first
    assert ["a:3:x3", "b:1:x4"] == await content(ctx, "x", head_limit=2, offset=2)
    assert ["a", "(there is more: go on with offset 1, or narrow the search)"] == await lines(ctx, "x", head_limit=1)
    assert ["b"] == await lines(ctx, "x", head_limit=1, offset=1)
    assert ["No matches found after the first 9."] == await lines(ctx, "x", offset=9)


async def test_multiline_goes_over_line_ends(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"a": "0\nstart {\r\n x\r\n}\nend\n"})
    assert ["a:2:start {", "a:3: x", "a:4:}"] == await content(ctx, r"start \{.*?\}", multiline=True)
    assert ["a:4:}", "a:5:end"] == await content(ctx, "}\\nend$", multiline=True)
    assert ["a:1"] == await lines(ctx, "^end", multiline=True, output_mode="count")
    assert NOTHING == await content(ctx, r"start \{.*?\}")


# --- which files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"glob": "*.js"}, ["a.js", "d/b.js"]),
        ({"glob": "d/*.js"}, ["d/b.js"]),
        ({"glob": "d/**"}, ["d/b.js", "d/c.test.ts"]),
        ({"glob": "*.{js,ts}"}, ["a.js", "d/b.js", "d/c.test.ts"]),
        ({"glob": "*.js, *.ts"}, ["a.js", "d/b.js", "d/c.test.ts"]),
        ({"glob": "!*.js"}, ["d/c.test.ts", "Makefile"]),
        ({"glob": "*.ts !*.test.ts"}, NOTHING),
        ({"type": "js"}, ["a.js", "d/b.js"]),
        ({"type": "make"}, ["Makefile"]),
        ({"path": "d"}, ["d/b.js", "d/c.test.ts"]),
        ({"path": "d", "glob": "*.ts"}, ["d/c.test.ts"]),
        ({"path": "a.js"}, ["a.js"]),
        ({"path": "lib"}, ["lib/x.js"]),
        ({"path": "lib/x.js"}, ["lib/x.js"]),
    ],
)
async def test_files_are_chosen(ctx: ToolContext, more: dict[str, Any], names: list[str]) -> None:
    files = ("a.js", "d/b.js", "d/c.test.ts", "Makefile", "lib/x.js", ".git/config")
    plant(ctx.cwd, {name: "x" for name in files} | {".gitignore": "lib/\n"})
    assert names == await lines(ctx, "x", **more)


async def test_paths_outside_are_shown_in_full(ctx: ToolContext, tmp_path: Path) -> None:
    plant(tmp_path, {"other/a": "x"})
    assert [str(tmp_path / "other/a")] == await lines(ctx, "x", path="../other")


async def test_denied_files_and_links_to_the_outside_are_not_searched(ctx: ToolContext, tmp_path: Path) -> None:
    plant(tmp_path, {"secret": "KEY=1"})
    plant(ctx.cwd, {".env": "KEY=2", "a": "KEY=3"})
    (ctx.cwd / "link").symlink_to(tmp_path / "secret")
    (ctx.cwd / "alias").symlink_to(ctx.cwd / ".env")
    tool = Grep(Rules(deny=parse_rule_list(["Read(.env)"])))
    assert "a:1:KEY=3" == (await grep(ctx, "KEY", tool=tool, output_mode="content")).content
    for path in (".env", "alias"):
        assert "No matches found." == (await grep(ctx, "KEY", tool=tool, path=path)).content


async def test_binary_files_are_skipped_and_said_so(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"a.bin": b"x\0y"})
    assert ["No matches found.", "(1 binary files were not searched)"] == await lines(ctx, "x")


async def test_encodings(ctx: ToolContext) -> None:
    plant(
        ctx.cwd,
        {
            "bom": b"\xef\xbb\xbfna\xc3\xafve",
            "le": "\ufeffnaïve\nx".encode("utf-16-le"),
            "be": "\ufeffnaïve".encode("utf-16-be"),
            "bad": b"na\xefve \xff naive",
        },
    )
    assert ["be:1:naïve", "bom:1:naïve", "le:1:naïve"] == await content(ctx, "^naïve$")
    assert ["bad:1:na\ufffdve \ufffd naive"] == await content(ctx, "naive")


async def test_only_line_feeds_part_lines(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"a": "a\u2028b\x0bc\x85d\rx\nx"})
    assert ["a:1:a\u2028b\x0bc\x85d\rx", "a:2:x"] == await content(ctx, "x")


async def test_names_of_any_bytes_are_searched(ctx: ToolContext) -> None:
    plant(ctx.cwd, {os.fsdecode(b"\xff\xe9"): "x", "sp ace\n": "x"})
    assert {"\ufffd\ufffd", "sp ace", ""} == set(await lines(ctx, "x"))


async def test_pipes_are_not_opened(ctx: ToolContext) -> None:
    os.mkfifo(ctx.cwd / "pipe")
    assert NOTHING == await lines(ctx, "x")
    assert NOTHING == await lines(ctx, "x", path="pipe")


# --- bounds ---------------------------------------------------------------------------------------


async def test_long_lines_are_cut_around_the_match(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"a": "y" * 3000 + "needle" + "z" * 3000})
    (line,) = await content(ctx, "needle")
    assert "needle" in line
    assert len(line) < 600
    assert line.endswith("(5506 more characters)")


async def test_text_after_64_ki_characters_of_a_line_is_not_searched(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"a": "needle1" + "y" * 1_000_000 + "needle2\nneedle3"})
    assert ["a:2:needle3"] == await content(ctx, "needle[23]")


async def test_the_result_is_bounded_whatever_the_limit(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"a": ("x" * 400 + "\n") * 5000})
    output = await content(ctx, "x", head_limit=0)
    assert sum(map(len, output)) < 50_000
    assert output[-1] == f"(there is more: go on with offset {len(output) - 1}, or narrow the search)"


@pytest.mark.slow
async def test_large_files_are_searched_in_pieces(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"a": "hay\n" * 500_000 + "needle\n" + "hay\n" * 10})
    assert ["a:500001:needle"] == await content(ctx, "needle")
    assert ["a:500001:needle"] == await content(ctx, "n[e]+dle")
    assert ["a-500000-hay", "a:500001:needle"] == await content(ctx, "needle", **{"-B": 1})


@pytest.mark.slow
async def test_a_catastrophic_expression_delays_nothing_and_ends_in_time(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grep_search, "SEARCH_LIMIT", 0.2)
    monkeypatch.setattr(grep_search, "PATIENCE", 0.2)
    plant(ctx.cwd, {"a": "aaaa", "b": "a" * 50 + "!"})
    output = await grep(ctx, "^(a+)+$", output_mode="content")
    assert isinstance(output.content, str)
    assert output.content.startswith("a:1:aaaa\n(stopped after")
    output = await grep(ctx, "^(a+)+$", path="b")
    assert output.is_error


@pytest.mark.slow
async def test_a_cancelled_search_ends_at_once_and_leaves_nothing(
    ctx: ToolContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plant(ctx.cwd, {"b": "a" * 50 + "!"})
    began = time.monotonic()
    with trio.move_on_after(0.3) as scope:
        await grep(ctx, "^(a+)+$")
    assert scope.cancelled_caught
    assert time.monotonic() - began < 2
    assert [] == _left_behind(tmp_path)


def _left_behind(folder: Path) -> list[Path]:
    """Job files, and processes that were given one."""
    left = list(folder.glob("atrio-grep-*"))
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if b"%s/atrio-grep-" % os.fsencode(folder) in command.read_bytes():
                left.append(command)
    return left


@given(st.text(max_size=3000), st.integers(min_value=0, max_value=3000))
def test_shortened_lines_hold_the_place_of_the_match(text: str, at: int) -> None:
    short = shorten(text, min(at, len(text)))
    assert len(short) < 600
    assert text[at : at + 1] in short


# --- patterns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"interface{}", "interface{}", True),
        (r"interface\{\}", "interface{}", True),
        (r"(?<year>\d+)-(?P=year)", "12-12", True),
        (r"(?<!x)y(?<=y)", "xy", False),
        (r"\<foo\>", "a foo b", True),
        (r"\<foo\>", "afoo", False),
        (r"[[:alpha:]_]+[[:digit:]]", "ab_1", True),
        (r"[^[:space:]]", " ", False),
        (r"[[]x]", "[x]", True),
        (r"[]a]", "]", True),
        (r"\p{L}\PN", "éa", True),
        (r"\p{N}", "x", False),
        (r"\x{e9}", "é", True),
        (r"foo\z", "foo", True),
        (r"a\\n", "a\\n", True),
        (r"(?i)ABC", "abc", True),
    ],
)
def test_expressions_of_ripgrep(pattern: str, text: str, matches: bool) -> None:
    assert matches == bool(compile_pattern(pattern, ignore_case=False, multiline=False).search(text))


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("foo(", r"missing \), unterminated subpattern at character 4\. .*write \\\("),
        ("*.py", r"nothing to repeat at character 1\. .*\\\*"),
        ("[a", "unterminated character set"),
        ("a\\nb", "multiline: true"),
        (r"\p{Greek}", "only"),
        (r"[a&&b]", "in brackets"),
        ("x(?i)y", "very beginning"),
        ("(?<=a+)b", "fixed width"),
        ("a" * 20_000, "longer than"),
        (r"\x{110000}", "no character"),
        ("a\\", "bad escape"),
    ],
)
async def test_a_bad_expression_is_refused_with_place_and_way_out(ctx: ToolContext, pattern: str, told: str) -> None:
    with pytest.raises(ToolRejected, match=told):
        await grep(ctx, pattern)


@given(st.text(alphabet="ab[]()\\{}<>?*+^$|:p&-x1,", max_size=20))
def test_any_text_compiles_or_is_refused(pattern: str) -> None:
    with contextlib.suppress(ToolRejected):
        compile_pattern(pattern, ignore_case=True, multiline=True)


@given(st.text(alphabet="ab.*\\+-_ /#é(", min_size=1, max_size=8))
def test_plain_expressions_are_known_as_such(text: str) -> None:
    needle = grep_search._needle(re.compile(re.escape(text)))
    assert needle in (None, text)


async def test_unknown_types_and_paths_are_told_with_similar_ones(ctx: ToolContext) -> None:
    plant(ctx.cwd, {"source/x": ""})
    with pytest.raises(ToolRejected, match="Unknown file type 'pyt'; did you mean py"):
        await grep(ctx, "x", type="pyt")
    with pytest.raises(ToolRejected, match=r"no file or folder sorce .*Did you mean source"):
        await grep(ctx, "x", path="sorce")
    with pytest.raises(ToolRejected):
        await grep(ctx, "x", path="a\0b")


def test_a_wrong_mode_is_named() -> None:
    with pytest.raises(InvalidToolInput, match="output_mode"):
        Grep().parse({"pattern": "x", "output_mode": "lines"})
