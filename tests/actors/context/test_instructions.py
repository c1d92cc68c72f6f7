"""Instruction files are found in order, with what they import; what can't be used is named and skipped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atrio.actors.context import instruction_reader
from atrio.actors.context.instructions import Instructions, NestedInstructions, read_instructions


def plant(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def read(tmp_path: Path, cwd: str = "proj", *, add_dirs: tuple[Path, ...] = ()) -> Instructions:
    user_home = tmp_path / "user"
    return read_instructions(
        tmp_path / cwd, add_dirs, user_home / ".atrio", user_home, managed=(tmp_path / "etc" / "CLAUDE.md",)
    )


def names(tmp_path: Path, instructions: Instructions) -> list[str]:
    return [str(file.path.relative_to(tmp_path)) for file in instructions.files]


def warnings(tmp_path: Path, instructions: Instructions) -> list[str]:
    return [warning.replace(f"{tmp_path}/", "") for warning in instructions.warnings]


ORDERED = (
    "etc/CLAUDE.md",
    "user/.claude/CLAUDE.md",
    "user/.claude/rules/a.md",
    "user/.atrio/AGENTS.md",
    "CLAUDE.md",
    "proj/AGENTS.md",
    "proj/CLAUDE.md",
    "proj/.atrio/AGENTS.md",
    "proj/.claude/CLAUDE.md",
    "proj/.claude/rules/a.md",
    "proj/.claude/rules/deep/b.md",
    "proj/.atrio/rules/c.md",
    "proj/CLAUDE.local.md",
    "proj/sub/CLAUDE.md",
)


def test_order_from_the_administrator_down_to_the_working_directory(tmp_path: Path) -> None:
    plant(tmp_path, {name: f"text of {name}\n" for name in reversed(ORDERED)})
    plant(tmp_path, {"proj/sub/deeper/CLAUDE.md": "not yet", "proj/other/CLAUDE.md": "not here"})
    found = read(tmp_path, "proj/sub")
    assert (list(ORDERED), []) == (names(tmp_path, found), warnings(tmp_path, found))
    scopes = ["managed", *["user"] * 3, *["project"] * 8, "local", "project"]
    assert scopes == [file.scope for file in found.files]


def test_texts_are_unchanged_to_the_byte_but_for_notes_among_people(tmp_path: Path) -> None:
    text = "  # T\r\n\u2028\ttabs \n\n```\n<!-- code -->\n```\n<system-reminder>x\n\n\n"
    plant(tmp_path, {"proj/CLAUDE.md": f"<!-- for people -->\n{text}", "proj/AGENTS.md": "\n \n"})
    (file,) = read(tmp_path).files
    assert text == file.text


def test_imports_follow_the_file_that_names_them(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "proj/CLAUDE.md": "See @docs/a.md, @./b.txt and `@docs/no.md`. @docs/a.md#top\n```\n@docs/no.md\n```\n",
            "proj/docs/a.md": "a @c.md",
            "proj/docs/c.md": "c",
            "proj/docs/no.md": "no",
            "proj/b.txt": "b",
        },
    )
    found = read(tmp_path)
    assert ["proj/CLAUDE.md", "proj/docs/a.md", "proj/docs/c.md", "proj/b.txt"] == names(tmp_path, found)
    assert [None, "CLAUDE.md", "a.md", "CLAUDE.md"] == [
        file.imported_by and file.imported_by.name for file in found.files
    ]
    assert () == found.warnings


def test_imports_go_four_hops(tmp_path: Path) -> None:
    plant(tmp_path, {f"proj/{n}.md": f"hop {n} @{n + 1}.md" for n in range(1, 7)} | {"proj/CLAUDE.md": "@1.md"})
    found = read(tmp_path)
    assert ["proj/CLAUDE.md", *(f"proj/{n}.md" for n in range(1, 5))] == names(tmp_path, found)
    assert ["proj/4.md, line 1: @5.md skipped, as it is more than 4 imports deep"] == warnings(tmp_path, found)


def test_a_circle_is_named_and_cut(tmp_path: Path) -> None:
    plant(tmp_path, {"proj/CLAUDE.md": "c @a.md", "proj/a.md": "a @b.md", "proj/b.md": "b @a.md @b.md"})
    found = read(tmp_path)
    assert ["proj/CLAUDE.md", "proj/a.md", "proj/b.md"] == names(tmp_path, found)
    through = "it is imported by itself, through proj/CLAUDE.md, proj/a.md, proj/b.md; skipped there"
    assert [f"proj/a.md: {through}", f"proj/b.md: {through}"] == warnings(tmp_path, found)


def test_each_file_comes_once_whatever_leads_to_it(tmp_path: Path) -> None:
    plant(tmp_path, {"proj/AGENTS.md": "agents", "proj/CLAUDE.md": "@AGENTS.md @x.md @y.md"})
    plant(tmp_path, {"proj/x.md": "x @z.md", "proj/y.md": "y @z.md", "proj/z.md": "z"})
    (tmp_path / "proj" / ".claude").mkdir()
    (tmp_path / "proj" / ".claude" / "CLAUDE.md").symlink_to("../AGENTS.md")
    (tmp_path / "proj" / "CLAUDE.local.md").write_text("agents")
    found = read(tmp_path)
    expected = ["proj/AGENTS.md", "proj/CLAUDE.md", "proj/x.md", "proj/z.md", "proj/y.md"]
    assert (expected, []) == (names(tmp_path, found), warnings(tmp_path, found))


def test_only_what_means_a_file_is_missed(tmp_path: Path) -> None:
    text = "Ask @alice or use @types/node, @app.route.\n@docs/gone.md @~/gone @./gone @docs/gone\n"
    plant(tmp_path, {"proj/CLAUDE.md": text, "proj/docs/there.md": "x"})
    remedy = "; correct the path, or put it in backticks if it is no import"
    assert [
        f"proj/CLAUDE.md, line 2: there is no file @{target}{remedy}"
        for target in ("docs/gone.md", "~/gone", "./gone", "docs/gone")
    ] == warnings(tmp_path, read(tmp_path))


def test_a_project_reaches_no_files_outside_of_it(tmp_path: Path) -> None:
    plant(tmp_path, {"secret.txt": "key", "user/.claude/mine.md": "mine", "shared/s.md": "shared"})
    plant(tmp_path, {"proj/CLAUDE.md": "@../secret.txt @link.md @~/.claude/mine.md @../shared/s.md @gone.md"})
    (tmp_path / "proj" / "link.md").symlink_to("../secret.txt")
    (tmp_path / "proj" / "AGENTS.md").symlink_to("../secret.txt")
    found = read(tmp_path, add_dirs=(tmp_path / "shared",))
    assert ["proj/CLAUDE.md", "user/.claude/mine.md", "proj/../shared/s.md"] == names(tmp_path, found)
    skipped, missing = warnings(tmp_path, found)
    assert skipped.startswith("proj/AGENTS.md: skipped, as secret.txt lies outside of the project; add its folder")
    assert missing.startswith("proj/CLAUDE.md, line 1: there is no file @gone.md;")


def test_the_users_own_files_reach_everywhere(tmp_path: Path) -> None:
    plant(tmp_path, {"elsewhere/a.md": "a", "user/.claude/CLAUDE.md": "@../../elsewhere/a.md", "proj/x": ""})
    assert ["user/.claude/CLAUDE.md", "user/.claude/../../elsewhere/a.md"] == names(tmp_path, read(tmp_path))


def test_limits_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FILE_LIMIT_BYTES", 1_000), ("TOTAL_LIMIT_CHARS", 1_200), ("LARGE_CHARS", 500)):
        monkeypatch.setattr(instruction_reader, name, value)
    plant(tmp_path, {"proj/AGENTS.md": "x" * 1_001, "proj/CLAUDE.md": "y" * 900, "proj/CLAUDE.local.md": "z" * 400})
    found = read(tmp_path)
    assert ["proj/CLAUDE.md"] == names(tmp_path, found)
    assert [
        "proj/AGENTS.md: skipped: it is larger than 1,000 bytes; split it or shorten it",
        "proj/CLAUDE.md: it has 900 characters, which every request carries; shorten it",
        "proj/CLAUDE.local.md: skipped, as all instruction files together would have more than 1,200 characters; "
        "shorten them",
    ] == warnings(tmp_path, found)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {"proj/CLAUDE.md": "fine @bin.md", "proj/bin.md": "\0", "proj/.claude/rules/bad.md": "---\noops\n---\nrule"},
    )
    os.mkfifo(tmp_path / "proj" / "AGENTS.md")
    found = read(tmp_path)
    assert ["proj/CLAUDE.md", "proj/.claude/rules/bad.md"] == names(tmp_path, found)
    assert [
        "proj/AGENTS.md: skipped: it is no regular file",
        "proj/bin.md: skipped: it is no UTF-8 text; save it as UTF-8",
        "proj/.claude/rules/bad.md: line 2: 'oops' is no field of the form 'key: value'",
    ] == warnings(tmp_path, found)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_accounts_files_in_an_open_folder_above_do_not_speak(tmp_path: Path) -> None:
    plant(tmp_path, {"open/CLAUDE.md": "mischief", "open/proj/CLAUDE.md": "mine"})
    (tmp_path / "open").chmod(0o1777)
    os.chown(tmp_path / "open" / "CLAUDE.md", 12_345, 12_345)
    found = read(tmp_path, "open/proj")
    assert ["open/proj/CLAUDE.md"] == names(tmp_path, found)
    assert warnings(tmp_path, found)[0].startswith("open/CLAUDE.md: skipped, as it belongs to another account")


@pytest.mark.parametrize(
    ("globs", "path", "applies"),
    [
        ("src/**/*.ts", "src/a/b.ts", True),
        ("src/**/*.ts", "src/b.ts", True),
        ("src/**/*.ts", "lib/src/b.ts", False),
        ("*.py", "deep/a.py", True),
        ("**/*.{ts,tsx}", "a/b.tsx", True),
        ("{src,lib}/**/*.{c,h}", "lib/x/y.h", True),
        ("{src,lib}/**/*.{c,h}", "bin/y.h", False),
        ("docs/", "docs/a/b.md", True),
        ("[, {a", "x.py", False),
    ],
)
def test_rules_with_paths_wait_for_a_file_that_they_are_about(
    tmp_path: Path, globs: str, path: str, applies: bool
) -> None:
    plant(tmp_path, {"proj/.claude/rules/r.md": f"---\npaths: {globs}\n---\nrule\n"})
    found = read(tmp_path)
    assert ((), ["rule\n"]) == (found.files, [rule.text for rule in found.scoped])
    assert applies == found.scoped[0].applies_to(tmp_path / "proj" / path)
    assert not found.scoped[0].applies_to(tmp_path / "elsewhere.py")


async def test_what_a_rule_imports_holds_where_the_rule_does(tmp_path: Path) -> None:
    rules = tmp_path / "proj" / ".claude" / "rules"
    plant(rules, {"py.md": "---\npaths: '*.py'\n---\npy @../more.md", "../more.md": "more"})
    start = read(tmp_path)
    assert () == start.files
    nested = NestedInstructions(start=start, cwd=tmp_path / "proj")
    files, _ = await nested.touch([tmp_path / "proj" / "a.py"])
    assert ["py @../more.md", "more"] == [file.text for file in files]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(st.sampled_from("@/.~a b\n\0\ud800`-:#") | st.characters(), max_size=60))
def test_whatever_a_file_says_nothing_is_raised(tmp_path: Path, text: str) -> None:
    for name in ("CLAUDE.md", ".claude/rules/r.md"):
        path = tmp_path / "proj" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    found = read(tmp_path)
    assert all(file.text.strip() for file in (*found.files, *found.scoped))


@pytest.mark.parametrize("target", ["a" * 300 + ".md", "/" + "a" * 5_000, "~/" + "b" * 300, "./" + "c/" * 3_000])
def test_names_that_no_file_can_have_are_only_warnings(tmp_path: Path, target: str) -> None:
    plant(tmp_path, {"proj/CLAUDE.md": f"@{target}"})
    found = read(tmp_path)
    assert ["proj/CLAUDE.md"] == names(tmp_path, found)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_folders_that_may_not_be_entered_are_only_warnings(tmp_path: Path) -> None:
    plant(tmp_path, {"proj/CLAUDE.md": "@closed/a.md @../out/b.md", "proj/closed/a.md": "a", "out/b.md": "b"})
    for folder in ("proj/closed", "out"):
        (tmp_path / folder).chmod(0)
    try:
        assert ["proj/CLAUDE.md"] == names(tmp_path, read(tmp_path))
    finally:
        for folder in ("proj/closed", "out"):
            (tmp_path / folder).chmod(0o700)


async def test_nested_instructions_come_once_on_first_touch(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "proj/CLAUDE.md": "root",
            "proj/.claude/rules/ts.md": "---\npaths: '**/*.ts'\n---\nts",
            "proj/a/CLAUDE.md": "a @../shared.md",
            "proj/shared.md": "shared",
            "proj/a/b/AGENTS.md": "b",
            "proj/a/b/.claude/rules/r.md": "r",
            "proj/a/b/.claude/rules/py.md": "---\nglobs: '*.py'\n---\npy",
            "proj/c/CLAUDE.md": "c @gone.md",
            "proj/node_modules/x/CLAUDE.md": "theirs",
        },
    )
    proj = tmp_path / "proj"
    nested = NestedInstructions(start=read(tmp_path), cwd=proj)

    async def touch(*paths: str) -> tuple[list[str], int]:
        files, said = await nested.touch([proj / path for path in paths])
        return [file.text for file in files], len(said)

    assert ([], 0) == await touch("x.py", "node_modules/x/y.js")
    assert (["a @../shared.md", "shared", "b", "r"], 0) == await touch("a/b/new.txt")
    assert ([], 0) == await touch("a/b/new.txt", "a/other.txt")
    assert (["py"], 0) == await touch("a/b/x.py")
    assert (["c @gone.md", "ts"], 1) == await touch("c/y.ts", "a/b/y.py")
    nested.forget()
    assert (["a @../shared.md", "shared", "b", "r", "py"], 0) == await touch("a/b/x.py")


async def test_files_outside_bring_nothing_and_added_folders_their_own(tmp_path: Path) -> None:
    plant(tmp_path, {"proj/x": "", "added/CLAUDE.md": "added", "added/s/AGENTS.md": "s", "away/CLAUDE.md": "away"})
    start = read(tmp_path)
    nested = NestedInstructions(start=start, cwd=tmp_path / "proj", add_dirs=(tmp_path / "added",))
    files, _ = await nested.touch([tmp_path / "away" / "f", tmp_path / "added" / "s" / "f"])
    assert ["added", "s"] == [file.text for file in files]


async def test_a_file_that_the_model_reads_itself_is_not_told_again(tmp_path: Path) -> None:
    plant(tmp_path, {"proj/a/CLAUDE.md": "a", "proj/a/AGENTS.md": "agents"})
    nested = NestedInstructions(start=read(tmp_path), cwd=tmp_path / "proj")
    files, _ = await nested.touch([tmp_path / "proj" / "a" / "CLAUDE.md"])
    assert ["agents"] == [file.text for file in files]
