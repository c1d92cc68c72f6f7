"""A file that somebody else changed is told once, with the lines that differ."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.context import changes as module
from atrio.actors.context.changes import FileChange, FileWatch, changed_lines
from atrio.runtime.tool import FileState


def write(path: Path, text: str, second: int) -> FileState:
    """The file as it would be read at this second."""
    path.write_bytes(text.encode())
    os.utime(path, ns=(second * 10**9, second * 10**9))
    found = os.stat(path)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return FileState(mtime_ns=found.st_mtime_ns, size=found.st_size, digest=digest)


async def test_changes_are_told_once_each_with_what_differs(tmp_path: Path) -> None:
    path, watch = tmp_path / "a.txt", FileWatch()
    files = {path: write(path, "one\ntwo\nthree\n", 1)}
    assert () == await watch.look(files)
    write(path, "one\n2\nthree\n", 2)
    expected = FileChange(path=path, diff="from line 1:\n one\n-two\n+2\n three\n ")
    assert (expected,) == await watch.look(files)
    assert () == await watch.look(files)
    write(path, "one\n2\n3\n", 3)
    assert (FileChange(path=path, diff="from line 1:\n one\n 2\n-three\n+3\n "),) == await watch.look(files)
    path.unlink()
    assert (FileChange(path=path, gone=True),) == await watch.look(files)
    assert () == await watch.look(files)


async def test_a_mere_touch_is_no_change(tmp_path: Path) -> None:
    path, watch = tmp_path / "a.txt", FileWatch()
    files = {path: write(path, "one\n", 1)}
    assert () == await watch.look(files)
    write(path, "one\n", 2)
    assert () == await watch.look(files)
    write(path, "two\n", 3)
    assert [path] == [change.path for change in await watch.look(files)]


async def test_what_the_model_changes_itself_is_no_news(tmp_path: Path) -> None:
    path, watch = tmp_path / "a.txt", FileWatch()
    assert () == await watch.look({path: write(path, "one\n", 1)})
    files = {path: write(path, "two\n", 2)}
    assert () == await watch.look(files)
    write(path, "three\n", 3)
    assert [FileChange(path=path, diff="from line 1:\n-two\n+three\n ")] == list(await watch.look(files))
    assert () == await watch.look({path: write(path, "four\n", 4)})


async def test_a_change_back_is_a_change(tmp_path: Path) -> None:
    path, watch = tmp_path / "a.txt", FileWatch()
    files = {path: write(path, "one\n", 1)}
    assert () == await watch.look(files)
    write(path, "two\n", 2)
    assert 1 == len(await watch.look(files))
    write(path, "one\n", 3)
    assert (FileChange(path=path, diff="from line 1:\n-two\n+one\n "),) == await watch.look(files)


async def test_what_cannot_be_compared_is_told_without_lines(tmp_path: Path) -> None:
    unseen, binary, large = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    watch = FileWatch()
    files = {unseen: write(unseen, "one\n", 1)}
    write(unseen, "two\n", 2)
    assert (FileChange(path=unseen),) == await watch.look(files)
    files = {binary: write(binary, "a\0", 1), large: write(large, "x" * (module.TEXT_LIMIT_BYTES + 1), 1)}
    assert () == await watch.look(files)
    write(binary, "b\0", 2)
    write(large, "y" * (module.TEXT_LIMIT_BYTES + 1), 2)
    assert (FileChange(path=binary), FileChange(path=large)) == await watch.look(files)


async def test_a_pipe_in_a_files_place_is_not_waited_for(tmp_path: Path) -> None:
    path, watch = tmp_path / "a", FileWatch()
    files = {path: write(path, "one\n", 1)}
    path.unlink()
    os.mkfifo(path)
    assert () == await watch.look(files)


async def test_kept_texts_stay_within_their_limit(tmp_path: Path) -> None:
    watch = FileWatch()
    files = {}
    for number in range(20):
        path = tmp_path / f"{number:02}"
        files[path] = write(path, "x" * module.TEXT_LIMIT_BYTES, 1)
    assert () == await watch.look(files)
    for path in files:
        write(path, "y\n", 2)
    changes = await watch.look(files)
    assert 20 == len(changes)
    assert module.KEPT_CHARS // module.TEXT_LIMIT_BYTES >= sum(bool(change.diff) for change in changes) > 0


def test_lines_that_differ_far_apart_stay_short_and_too_many_are_not_compared() -> None:
    old = "".join(f"line {number}\n" for number in range(5_000))
    new = old.replace("line 2500\n", "changed\n")
    diff = changed_lines(old, new)
    assert "from line 2498:\n line 2497\n line 2498\n line 2499\n-line 2500\n+changed\n line 2501\n" in diff
    assert 9 == len(diff.split("\n"))
    begin = time.perf_counter()
    assert "" == changed_lines(old, "".join(f"other {number}\n" for number in range(5_000)))
    assert time.perf_counter() - begin < 1


@given(st.text("ab\n", max_size=40), st.text("ab\n", max_size=40))
def test_a_diff_has_both_sides(before: str, after: str) -> None:
    lines = changed_lines(before, after).split("\n")[1:]
    old = [line[1:] for line in lines if line[:1] in (" ", "-")]
    new = [line[1:] for line in lines if line[:1] in (" ", "+")]
    if before == after:
        assert [""] == lines
    else:
        assert "\n".join(old) in before
        assert "\n".join(new) in after
