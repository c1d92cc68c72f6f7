"""Journal files: whole lines whatever happens, one writer, private."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import orjson
import pytest

from atrio.runtime.errors import JournalLocked, JournalUnwritable
from atrio.runtime.journal import JournalFile, journal_path, make_private, project_slug, results_folder

FIRST = b'{"n":1}\n'
LAST = '{"n":2,"text":"ä\\n"}\n'.encode()


def fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def child(code: str, *args: object, preexec_limit: int | None = None) -> subprocess.Popen[bytes]:
    limit = (
        None
        if preexec_limit is None
        else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (preexec_limit, preexec_limit))
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        preexec_fn=limit,
    )


HOLD = """
import sys, time
from pathlib import Path
from atrio.runtime.journal import JournalFile
journal = JournalFile.open(Path(sys.argv[1]))
print("open", flush=True)
time.sleep(60)
"""

APPEND = """
import os, sys
from pathlib import Path
from atrio.runtime.journal import JournalFile
journal = JournalFile.open(Path(sys.argv[1]))
n = 0
while True:
    journal.append(b'{"n":%d,"text":"%s"}\\n' % (n, b"x" * (n * 997 % 40_000)))
    os.write(1, b"%d\\n" % n)
    n += 1
"""


# --- where it is ----------------------------------------------------------------------------------


def test_a_journal_lies_in_its_projects_folder(tmp_path: Path) -> None:
    path = journal_path(tmp_path, Path("/work/my.project"), "s-1")
    assert tmp_path / "projects" / "-work-my-project" / "s-1.jsonl" == path
    assert path.parent / "s-1" / "tool-results" == results_folder(path)


def test_long_paths_get_short_names_that_differ() -> None:
    long = Path("/" + "a" * 300)
    names = {project_slug(long), project_slug(long / "b"), project_slug(long / "c")}
    assert 3 == len(names)
    assert all(len(name) < 200 for name in names)


def test_files_and_all_new_folders_are_private(tmp_path: Path) -> None:
    path = tmp_path / "home" / "projects" / "p" / "s.jsonl"
    journal = JournalFile.open(path)
    assert [0o600] * 2 == [mode(path), mode(path.with_suffix(".lock"))]
    assert [0o700] * 3 == [mode(folder) for folder in list(path.parents)[:3]]
    journal.close()


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    make_private(tmp_path / "home" / "projects")
    assert 0o755 == mode(tmp_path / "home")
    assert 0o700 == mode(tmp_path / "home" / "projects")


@pytest.mark.parametrize("where", ["home", "home/projects", "home/projects/s.jsonl"])
def test_what_stands_in_the_way_is_named(tmp_path: Path, where: str) -> None:
    path = tmp_path / "home" / "projects" / "s.jsonl"
    if where.endswith("jsonl"):
        path.mkdir(parents=True)
    else:
        (tmp_path / where).parent.mkdir(exist_ok=True)
        (tmp_path / where).touch()
    before = fds()
    with pytest.raises(JournalUnwritable) as caught:
        JournalFile.open(path)
    assert str(path) == caught.value.path
    assert before == fds()
    assert not path.with_suffix(".lock").exists()


# --- appending ------------------------------------------------------------------------------------


def test_appends_go_to_the_end_even_if_somebody_else_wrote(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    journal = JournalFile.open(path)
    journal.append(FIRST)
    with path.open("ab") as other:
        other.write(LAST)
    journal.append(FIRST)
    journal.close()
    assert FIRST + LAST + FIRST == path.read_bytes()


def test_the_descriptor_is_append_only_and_not_inherited(tmp_path: Path) -> None:
    journal = JournalFile.open(tmp_path / "s.jsonl")
    info = Path(f"/proc/self/fdinfo/{journal.fileno}").read_text()
    flags = int(info.split("flags:")[1].split()[0], 8)
    assert flags & os.O_APPEND
    assert not os.get_inheritable(journal.fileno)
    journal.close()


def test_partial_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.jsonl"
    journal = JournalFile.open(path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    journal.append(LAST)
    journal.close()
    assert LAST == path.read_bytes()


def test_a_write_that_fails_halfway_is_taken_back_and_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.jsonl"
    journal = JournalFile.open(path)
    journal.append(FIRST)
    write = os.write

    def half(fd: int, data: bytes) -> int:
        if data == LAST:
            return write(fd, data[:5])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(JournalUnwritable, match="No space left"):
            journal.append(LAST)
    assert journal.broken
    with pytest.raises(JournalUnwritable, match="earlier"):
        journal.append(FIRST)
    journal.close()
    assert FIRST == path.read_bytes()


def test_a_full_disk_is_an_error_of_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.symlink_to("/dev/full")
    journal = JournalFile.open(path)
    with pytest.raises(JournalUnwritable, match="No space left"):
        journal.append(FIRST)
    journal.close()


@pytest.mark.slow
def test_a_file_size_limit_leaves_no_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    process = child(APPEND, path, preexec_limit=100_001)
    process.communicate()
    assert process.returncode == 1
    data = path.read_bytes()
    assert len(data) <= 100_001
    assert data.endswith(b"}\n")
    assert list(range(data.count(b"\n"))) == [orjson.loads(line)["n"] for line in data.splitlines()]


def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    before = fds()
    journal = JournalFile.open(tmp_path / "s.jsonl")
    journal.close()
    journal.close()
    assert before == fds()


# --- torn tails -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", range(len(LAST)))
def test_a_torn_last_line_is_cut_off(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(FIRST + LAST[:kept])
    journal = JournalFile.open(path)
    journal.append(FIRST)
    journal.close()
    whole = kept == len(LAST) - 1
    assert (0 if whole else kept) == journal.torn_bytes
    assert FIRST + (LAST if whole else b"") + FIRST == path.read_bytes()


@pytest.mark.parametrize(("before", "tail"), [(b"", b'{"a'), (b"\n", b"\0" * 5), (FIRST, b'{"a' + b"x" * 200_000)])
def test_tails_of_any_size_are_cut_off(tmp_path: Path, before: bytes, tail: bytes) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(before + tail)
    journal = JournalFile.open(path)
    journal.close()
    assert len(tail) == journal.torn_bytes
    assert before == path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("round", range(4))
def test_a_killed_writer_loses_no_record_that_it_had_acknowledged(tmp_path: Path, round: int) -> None:
    path = tmp_path / "s.jsonl"
    process = child(APPEND, path)
    assert process.stdout is not None
    for _ in range(200 + 50 * round):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    acknowledged = process.stdout.read().count(b"\n") + 200 + 50 * round
    process.wait()
    process.stdout.close()
    journal = JournalFile.open(path)
    journal.close()
    numbers = [orjson.loads(line)["n"] for line in path.read_bytes().splitlines()]
    assert list(range(len(numbers))) == numbers
    assert len(numbers) >= acknowledged


# --- one writer -----------------------------------------------------------------------------------


def test_a_second_opener_in_this_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    first = JournalFile.open(path)
    before = fds()
    with pytest.raises(JournalLocked, match=f"process {os.getpid()} on ") as caught:
        JournalFile.open(path)
    assert str(path) == caught.value.path
    assert before == fds()
    first.append(FIRST)
    first.close()
    second = JournalFile.open(path)
    second.close()
    assert FIRST == path.read_bytes()


@pytest.mark.slow
def test_another_process_keeps_its_journal_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    process = child(HOLD, path)
    assert process.stdout is not None
    assert b"open\n" == process.stdout.readline()
    with pytest.raises(JournalLocked, match=f"process {process.pid} on "):
        JournalFile.open(path)
    process.kill()
    process.wait()
    process.stdout.close()
    JournalFile.open(path).close()
    assert not path.with_suffix(".lock").exists()


def test_a_journal_is_kept_even_if_its_lock_file_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    first = JournalFile.open(path)
    path.with_suffix(".lock").unlink()
    before = fds()
    with pytest.raises(JournalLocked):
        JournalFile.open(path)
    assert before == fds()
    first.close()
    JournalFile.open(path).close()


def test_a_lock_file_that_nobody_holds_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.with_suffix(".lock").write_text("process 1 on elsewhere, with a long name that must not stay behind\n" * 3)
    journal = JournalFile.open(path)
    assert 1 == path.with_suffix(".lock").read_text().count("\n")
    journal.close()


def test_openers_that_race_never_share_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    inside = 0
    overlaps: list[int] = []
    opened = threading.Barrier(4)

    def work() -> None:
        nonlocal inside
        opened.wait()
        done = 0
        while done < 25:
            try:
                journal = JournalFile.open(path)
            except JournalLocked:
                continue
            inside += 1
            overlaps.append(inside)
            journal.append(FIRST)
            inside -= 1
            journal.close()
            done += 1

    before = fds()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {1} == set(overlaps)
    assert FIRST * 100 == path.read_bytes()
    assert before == fds()


def test_a_lock_that_cannot_be_written_leaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.jsonl"
    before = fds()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(JournalUnwritable, match="No space left"):
            JournalFile.open(path)
    assert before == fds()
    JournalFile.open(path).close()
