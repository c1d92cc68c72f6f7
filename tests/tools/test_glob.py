"""Glob finds files by pattern, newest first, and says what it left out."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.errors import InvalidToolInput, ToolRejected
from atrio.runtime.tool import ToolContext, ToolOutput, Workspace
from atrio.tools.glob import Glob
from atrio.tools.paths import glob_regex, literal_prefix
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


def plant(root: Path, *names: str) -> None:
    """Files, the later ones older."""
    for age, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        os.utime(path, (1_000_000 - age, 1_000_000 - age))


async def glob(ctx: ToolContext, pattern: str, path: str | None = None, *, tool: Glob | None = None) -> ToolOutput:
    tool = tool or Glob()
    input = tool.parse({"pattern": pattern, "path": path})
    await tool.check(input, ctx)
    return await tool.run(input, ctx)


async def found(ctx: ToolContext, pattern: str, path: str | None = None) -> list[str]:
    output = await glob(ctx, pattern, path)
    assert isinstance(output.content, str)
    return [] if output.content.startswith("No files") else output.content.split("\n")


async def test_newest_come_first(ctx: ToolContext) -> None:
    plant(ctx.cwd, "z.py", "m/a.py", "b.py", "c.txt")
    assert ["z.py", "m/a.py", "b.py"] == await found(ctx, "**/*.py")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", ["a.py"]),
        ("./*.py", ["a.py"]),
        ("src/**/*.ts", ["src/a.ts", "src/d/b.ts"]),
        ("src/**", ["src/a.ts", "src/b.tsx", "src/d/b.ts"]),
        ("**/*.{ts,tsx}", ["src/a.ts", "src/b.tsx", "src/d/b.ts"]),
        ("{src/d,none}/*", ["src/d/b.ts"]),
        ("src/[ab].ts*", ["src/a.ts", "src/b.tsx"]),
        ("src/[!a].tsx", ["src/b.tsx"]),
        ("**/.h*", [".hidden"]),
        ("src/?.ts", ["src/a.ts"]),
        ("src/a.ts", ["src/a.ts"]),
        ("*/d/*", ["src/d/b.ts"]),
        ("a.PY", []),
    ],
)
async def test_patterns(ctx: ToolContext, pattern: str, names: list[str]) -> None:
    plant(ctx.cwd, "a.py", "src/a.ts", "src/b.tsx", "src/d/b.ts", ".hidden", ".git/config")
    assert names == await found(ctx, pattern)


async def test_absolute_patterns_and_paths(ctx: ToolContext, tmp_path: Path) -> None:
    plant(ctx.cwd, "d/x")
    plant(tmp_path, "other/y")
    assert ["d/x"] == await found(ctx, f"{ctx.cwd}/**/x")
    assert [str(tmp_path / "other/y")] == await found(ctx, "*", str(tmp_path / "other"))
    assert [str(tmp_path / "other/y")] == await found(ctx, "../other/*")


def test_rules_see_the_folder_that_is_searched(ctx: ToolContext, tmp_path: Path) -> None:
    tool = Glob()
    for pattern, path, root in (
        ("**/*", None, ctx.cwd),
        ("/etc/**", None, Path("/etc")),
        ("../x/*", None, tmp_path / "x"),
        ("sub/*", "../y", tmp_path / "y" / "sub"),
        ("/*", "sub", Path("/")),
    ):
        assert (root,) == tool.paths(tool.parse({"pattern": pattern, "path": path}), ctx)


async def test_ignored_files_are_found_only_when_named(ctx: ToolContext) -> None:
    plant(ctx.cwd, ".env", "lib/x.js", "x.js")
    (ctx.cwd / ".gitignore").write_text(".env\nlib/\n")
    assert ["x.js"] == await found(ctx, "**/*.js")
    assert ["lib/x.js"] == await found(ctx, "lib/*.js")
    assert [".env"] == await found(ctx, ".env")


async def test_denied_files_are_not_found(ctx: ToolContext) -> None:
    plant(ctx.cwd, ".env", "a", "keys/x")
    tool = Glob(Rules(deny=parse_rule_list(["Read(.env),Read(keys/**)"])))
    assert "a" == (await glob(ctx, "**", tool=tool)).content
    assert "No files match" in str((await glob(ctx, ".env", tool=tool)).content)


async def test_at_most_100_are_shown_and_the_rest_is_counted(ctx: ToolContext) -> None:
    plant(ctx.cwd, *(f"f{number}" for number in range(103)))
    lines = await found(ctx, "*")
    assert (101, "f0", "f99") == (len(lines), lines[0], lines[99])
    assert lines[100].startswith("(3 older files left out")


async def test_no_match_is_a_clear_text_and_no_error(ctx: ToolContext) -> None:
    output = await glob(ctx, "*.rs")
    assert not output.is_error
    expected = (
        "No files match *.rs in the working directory. Only the folder itself was searched; **/*.rs searches all below."
    )
    assert expected == output.content


async def test_a_missing_folder_is_named_with_similar_ones(ctx: ToolContext) -> None:
    plant(ctx.cwd, "source/x")
    with pytest.raises(ToolRejected, match=r"There is no folder sorce .*Did you mean source"):
        await glob(ctx, "*", "sorce")
    with pytest.raises(ToolRejected, match="source/x is a file"):
        await glob(ctx, "*", "source/x")
    with pytest.raises(ToolRejected):
        await glob(ctx, "*", "a\0b")


async def test_patterns_that_would_take_for_ever_are_refused(ctx: ToolContext) -> None:
    for pattern in ("*a" * 30, "**/" * 30, "x" * 2000):
        with pytest.raises(ToolRejected, match="too many wildcards"):
            await glob(ctx, pattern)


async def test_names_that_are_no_utf8_are_shown_with_replacement(ctx: ToolContext) -> None:
    plant(ctx.cwd, os.fsdecode(b"a\xff"))
    assert ["a\ufffd"] == await found(ctx, "*")


def test_unknown_fields_are_named() -> None:
    with pytest.raises(InvalidToolInput, match="patern"):
        Glob().parse({"patern": "*"})


@given(st.text(alphabet="ab/*?[]!-^{},\\.", max_size=30))
def test_any_pattern_is_a_regular_expression(pattern: str) -> None:
    regex = re.compile(glob_regex(pattern), re.DOTALL)
    if not set("*?[{\\") & set(pattern):
        assert regex.fullmatch(pattern)
    head, rest = literal_prefix(pattern)
    assert not set("*?[{") & set(head)
    assert pattern.endswith(rest)
