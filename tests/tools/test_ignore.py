"""Walks leave out what git would, stay inside, and end when told to."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atrio.tools.ignore import rules_at, rules_for
from atrio.tools.walk import Walker, search_in_thread


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def walk(root: Path, **more: int) -> list[str]:
    walker = Walker(root=root, within=(root,), should_stop=lambda: False, max_depth=more.get("max_depth"))
    return [os.path.relpath(entry.path, root) for entry in walker.files()]


def test_nested_files_negation_and_folders(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            ".gitignore": "*.log\nbuild/\n/top.txt\n",
            "a.log": "",
            "top.txt": "",
            "build/x": "",
            "sub/.gitignore": "!keep.log\nlocal\n",
            "sub/keep.log": "",
            "sub/other.log": "",
            "sub/top.txt": "",
            "sub/local/x": "",
            "sub/deep/keep.log": "",
        },
    )
    expected = [".gitignore", "sub/.gitignore", "sub/keep.log", "sub/top.txt", "sub/deep/keep.log"]
    assert expected == walk(tmp_path)


def test_dot_ignore_weighs_more_than_gitignore_and_exclude_least(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            ".gitignore": "a\n!b\n",
            ".ignore": "!a\n",
            ".git/info/exclude": "b\nc\n",
            "a": "",
            "b": "",
            "c": "",
        },
    )
    assert [".gitignore", ".ignore", "a", "b"] == walk(tmp_path)


def test_rules_of_the_folders_above_hold_up_to_the_repository(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {".gitignore": "*", "repo/.git/HEAD": "", "repo/.gitignore": "*.o\n", "repo/src/x.o": "", "repo/src/x.c": ""},
    )
    assert ["x.c"] == walk(tmp_path / "repo" / "src")


def test_an_ignored_root_was_named_on_purpose(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {".git/HEAD": "", ".gitignore": "lib/\n*.js\n", "lib/p/x.js": "", "lib/p/.gitignore": "y\n", "lib/p/y": ""},
    )
    assert [".gitignore", "x.js"] == walk(tmp_path / "lib" / "p")


def test_a_repository_within_has_its_own_rules(tmp_path: Path) -> None:
    plant(tmp_path, {".git/HEAD": "", ".gitignore": "x\n", "x": "", "sub/.git/HEAD": "", "sub/x": ""})
    assert [".gitignore", "sub/x"] == walk(tmp_path)


def test_version_control_folders_are_never_entered(tmp_path: Path) -> None:
    plant(tmp_path, {".git/x": "", ".hg/x": "", "a/.svn/x": "", ".github/x": ""})
    assert [".github/x"] == walk(tmp_path)


def test_lines_that_are_no_patterns_are_skipped(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"\xef\xbb\xbf# note\r\n!\r\n\xff\xfe\r\nx\r\n")
    rules = rules_at(tmp_path)
    assert rules.ignores(str(tmp_path / "x"), is_dir=False)
    assert not rules.ignores(str(tmp_path / "y"), is_dir=False)


def test_an_ignore_file_that_is_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".gitignore")
    plant(tmp_path, {"x": ""})
    assert ["x"] == walk(tmp_path)


def test_links_are_followed_to_files_inside_only(tmp_path: Path) -> None:
    plant(tmp_path, {"secret": "", "w/dir/x": ""})
    root = tmp_path / "w"
    (root / "inside").symlink_to(root / "dir" / "x")
    (root / "outside").symlink_to(tmp_path / "secret")
    (root / "loop").symlink_to(root)
    (root / "self").symlink_to(root / "self")
    (root / "broken").symlink_to(root / "nothing")
    os.mkfifo(root / "pipe")
    assert ["inside", "dir/x"] == walk(root)


def test_hidden_paths_are_left_out_also_behind_links(tmp_path: Path) -> None:
    plant(tmp_path, {".env": "", "a": "", "keys/x": ""})
    (tmp_path / "link").symlink_to(tmp_path / ".env")
    walker = Walker(
        root=tmp_path, within=(tmp_path,), should_stop=lambda: False, hides=lambda path: path.name in (".env", "keys")
    )
    assert ["a"] == [entry.name for entry in walker.files()]


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_folders_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    plant(tmp_path, {"a": "", "closed/x": ""})
    (tmp_path / "closed").chmod(0)
    walker = Walker(root=tmp_path, within=(tmp_path,), should_stop=lambda: False)
    assert (["a"], 1) == ([entry.name for entry in walker.files()], walker.unreadable)
    (tmp_path / "closed").chmod(0o700)


def test_a_root_that_has_gone_is_counted_as_unreadable(tmp_path: Path) -> None:
    walker = Walker(root=tmp_path / "gone", within=(tmp_path,), should_stop=lambda: False)
    assert ([], 1) == (list(walker.files()), walker.unreadable)


def test_a_walk_ends_when_told_to(tmp_path: Path) -> None:
    plant(tmp_path, {name: "" for name in "abcdef"})
    answers = iter([False, False, True])
    walker = Walker(root=tmp_path, within=(tmp_path,), should_stop=lambda: next(answers))
    assert ["a", "b"] == [entry.name for entry in walker.files()]
    assert walker.cut


def test_depth_can_be_limited(tmp_path: Path) -> None:
    plant(tmp_path, {"a": "", "b/c": "", "b/d/e": ""})
    assert ["a", "b/c"] == walk(tmp_path, max_depth=2)


async def test_an_abandoned_search_is_told_to_stop() -> None:
    import threading

    import trio

    started, ended = threading.Event(), threading.Event()

    def search(should_stop: object) -> None:
        assert callable(should_stop)
        started.set()
        while not should_stop():
            pass
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(search_in_thread, "Glob", search)
        await trio.to_thread.run_sync(started.wait)
        nursery.cancel_scope.cancel()
    assert await trio.to_thread.run_sync(ended.wait, 5)


NAMES = ["a", "b", "ab", "a.o", "b.o"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
LINES = st.lists(
    st.sampled_from(
        [
            "*",
            "!*",
            "a",
            "!a",
            "/a",
            "a/",
            "!a/",
            "*.o",
            "!b.o",
            "a/*",
            "!a/b",
            "a/**",
            "**/b",
            "a/**/b",
            "!*/",
            "[ab]",
            "?b",
        ]
    ),
    max_size=4,
)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git is the yardstick")
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(paths=st.sets(PATHS, max_size=8), top=LINES, nested=LINES)
def test_a_walk_finds_what_git_would_track(tmp_path: Path, paths: set[str], top: list[str], nested: list[str]) -> None:
    root = tmp_path / "repo"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for path in sorted(paths, key=len, reverse=True):
        if not (root / path).exists() and not any(parent.is_file() for parent in (root / path).parents):
            plant(root, {path: ""})
    (root / ".gitignore").write_text("\n".join(top))
    if (root / "a").is_dir():
        (root / "a" / ".gitignore").write_text("\n".join(nested))
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q"], cwd=root, env=environ, check=True)
    listing = ["git", "ls-files", "-oz", "--exclude-standard"]
    output = subprocess.run(listing, cwd=root, env=environ, capture_output=True, check=True).stdout
    expected = sorted(name for name in output.decode().split("\0") if name)
    assert expected == sorted(walk(root))


def test_rules_for_a_root_without_repository_are_its_own(tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": "x\n", "sub/x": ""})
    assert not rules_for(tmp_path / "sub").ignores(str(tmp_path / "sub" / "x"), is_dir=False)
