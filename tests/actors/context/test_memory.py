"""Memory is read within limits, and found by what it is about."""

from __future__ import annotations

import os
from pathlib import Path

from atrio.actors.context.matching import best_matches
from atrio.actors.context.memory import Memory, Recollection, memory_folders, read_memory, recall, scan_memory


def folder_of(tmp_path: Path) -> Path:
    (tmp_path / "proj" / ".git").mkdir(parents=True, exist_ok=True)
    folder = memory_folders(tmp_path / "proj", tmp_path / "home", None)[0]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def read(tmp_path: Path, cwd: str = "proj") -> Memory:
    return read_memory(tmp_path / cwd, tmp_path / "home", tmp_path)


def test_a_project_without_memory_has_none(tmp_path: Path) -> None:
    assert Memory() == read(tmp_path)


def test_the_index_of_a_repository_holds_for_its_folders(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "MEMORY.md").write_text("- one\n")
    (tmp_path / "proj" / "sub").mkdir()
    index = read(tmp_path, "proj/sub").index
    assert index is not None
    assert ("- one\n", False) == (index.text, index.cut)


def test_the_index_is_cut_at_lines_and_bytes(tmp_path: Path) -> None:
    path = folder_of(tmp_path) / "MEMORY.md"
    for text, expected in (
        ("é\n" * 300, "é\n" * 200),
        (f"{'é' * 499}\n" * 100, f"{'é' * 499}\n" * 25),
        ("é" * 20_000, "é" * 12_500),
    ):
        path.write_text(text)
        memory = read(tmp_path)
        assert memory.index is not None
        assert (expected, True) == (memory.index.text, memory.index.cut)
        (warning,) = memory.warnings
        assert warning == (
            f"{path}: only its first 200 lines or 25,000 bytes are shown; move details into files of their own"
        )


def test_another_programs_memory_is_used_when_atrio_has_none(tmp_path: Path) -> None:
    folder = memory_folders(tmp_path / "proj", tmp_path / "home", tmp_path)[1]
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_bytes(b"\0")
    assert [f"{folder / 'MEMORY.md'}: skipped: it is no UTF-8 text; save it as UTF-8"] == list(read(tmp_path).warnings)
    (folder / "MEMORY.md").write_text("theirs")
    index = read(tmp_path).index
    assert index is not None
    assert "theirs" == index.text


def test_files_are_described_newest_first(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "MEMORY.md").write_text("index")
    (folder / "build_notes.md").write_text("---\ndescription: how the build works\n---\ntext")
    (folder / "plain.md").write_text("\n\nFirst line\nsecond")
    (folder / "bad.md").write_bytes(b"\0")
    for age, name in enumerate(("plain.md", "bad.md", "build_notes.md")):
        os.utime(folder / name, ns=(10**18 - age, 10**18 - age))
    files, warnings = scan_memory([folder, folder / "none"])
    assert ["plain: First line", "build notes: how the build works"] == [file.description for file in files]
    assert 1 == len(warnings)


def test_recalled_files_are_cut_and_those_gone_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x\n" * 5_000)
    (tmp_path / "b.md").write_text("short")
    long, short = recall([tmp_path / "a.md", tmp_path / "gone.md", tmp_path / "b.md"])
    assert ("x\n" * 200, True) == (long.text, long.cut)
    assert Recollection(path=tmp_path / "b.md", text="short", mtime_ns=short.mtime_ns) == short


def test_matches_share_words_the_rarer_the_better() -> None:
    things = [
        ("deploy", "ships the service to production"),
        ("testing", "runs the tests of the service"),
        ("release", "tags a version, then ships the service"),
        ("cooking", "makes soup"),
    ]
    assert [0] == best_matches("please deploy it", things, 3)
    assert [2, 0] == best_matches("tag the version that ships the service", things, 3)
    assert [2] == best_matches("tag the version that ships the service", things, 1)
    assert [] == best_matches("what does the soup say", things[:3], 3)
    assert [] == best_matches("", things, 3)
