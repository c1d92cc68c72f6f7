"""Notes on the disk: added to, archived, never lost, never anywhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atrio.actors.context.memory import read_memory, scan_memory
from atrio.actors.context.memory_files import (
    LOCK,
    LOCK_STALE,
    PERIOD,
    SESSIONS,
    Shelf,
    consolidation_due,
    keep_notes,
    put_in_order,
    read_shelf,
    release,
    reserve,
)
from atrio.runtime.journal import project_slug
from atrio.runtime.memory_notes import INDEX_LINES, NOTE_BYTES, MemoryNote, Tidied

STYLE = MemoryNote(file="style.md", description="how the user's code looks: tabs", text="Tabs, never spaces.")
PLACE = MemoryNote(file="place.md", description="where the data is", text="The data is on host7.")
NOW = 2_000_000_000.0


def as_is(text: str) -> str:
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "projects" / "p" / "memory"


def test_notes_are_written_and_named_in_the_index(folder: Path) -> None:
    assert ("style.md", "place.md") == keep_notes(folder, [STYLE, PLACE], as_is)
    assert {"style.md": STYLE.description, "place.md": PLACE.description} == read_shelf(folder).descriptions
    index = "- [style](style.md): how the user's code looks: tabs\n- [place](place.md): where the data is\n"
    assert index == (folder / "MEMORY.md").read_text()
    assert (0o700, 0o600) == (folder.stat().st_mode & 0o777, (folder / "style.md").stat().st_mode & 0o777)
    assert {"MEMORY.md", "style.md", "place.md"} == set(os.listdir(folder))


def test_a_session_finds_what_was_noted(tmp_path: Path) -> None:
    cwd = tmp_path / "project"
    cwd.mkdir()
    folder = tmp_path / "home" / "projects" / project_slug(cwd) / "memory"
    keep_notes(folder, [STYLE], as_is)
    memory = read_memory(cwd, tmp_path / "home", None)
    assert memory.index is not None
    assert "style.md" in memory.index.text
    files, warnings = scan_memory(memory.folders)
    assert ["style: how the user's code looks: tabs"] == [file.description for file in files]
    assert () == warnings


def test_a_note_that_exists_is_added_to_once(folder: Path) -> None:
    keep_notes(folder, [STYLE], as_is)
    more = MemoryNote(file="style.md", description="", text="Short names.")
    assert ("style.md",) == keep_notes(folder, [more], as_is)
    assert () == keep_notes(folder, [more, STYLE], as_is)
    assert (folder / "style.md").read_text().endswith("Tabs, never spaces.\n\nShort names.\n")
    assert 1 == (folder / "MEMORY.md").read_text().count("style.md")


def test_a_note_that_would_grow_too_large_stays_as_it_is(folder: Path) -> None:
    keep_notes(folder, [STYLE], as_is)
    before = (folder / "style.md").read_bytes()
    assert () == keep_notes(folder, [MemoryNote(file="style.md", description="", text="x" * NOTE_BYTES)], as_is)
    assert before == (folder / "style.md").read_bytes()


def test_what_can_not_be_read_as_a_note_is_left_alone(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "style.md").write_bytes(b"\xff\xfe\0")
    (folder / "place.md").mkdir()
    assert () == keep_notes(folder, [STYLE, PLACE], as_is)
    assert b"\xff\xfe\0" == (folder / "style.md").read_bytes()


def test_a_persons_index_is_added_to_and_a_full_one_left_alone(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("# Mine\nkeep this")
    keep_notes(folder, [STYLE], as_is)
    assert (folder / "MEMORY.md").read_text().startswith("# Mine\nkeep this\n- [style]")
    (folder / "MEMORY.md").write_text("line\n" * INDEX_LINES)
    keep_notes(folder, [PLACE], as_is)
    assert "line\n" * INDEX_LINES == (folder / "MEMORY.md").read_text()


def test_secrets_are_taken_out(folder: Path) -> None:
    keep_notes(folder, [STYLE], lambda text: text.replace("Tabs", "[redacted]"))
    assert "[redacted], never spaces." in (folder / "style.md").read_text()


def test_a_folder_that_can_not_be_written_is_an_error_and_leaves_nothing(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_text("no folder")
    with pytest.raises(FileExistsError):
        keep_notes(folder, [STYLE], as_is)


def test_a_memory_is_put_in_order_and_what_was_there_is_archived(folder: Path) -> None:
    keep_notes(folder, [STYLE, PLACE], as_is)
    old = {name: (folder / name).read_text() for name in os.listdir(folder)}
    joined = MemoryNote(file="style.md", description="all of it", text="Tabs. The data is on host7.")
    wanted = Tidied(notes=(joined,), drop=("place.md", "never-there.md"), index="- [style](style.md): all of it")
    assert put_in_order(folder, read_shelf(folder), wanted, as_is)
    assert {"MEMORY.md", "style.md"} == set(os.listdir(folder))
    assert "- [style](style.md): all of it\n" == (folder / "MEMORY.md").read_text()
    (archive,) = (folder.parent / "memory-archive").iterdir()
    assert old == {file.name: file.read_text() for file in archive.iterdir()}


def test_a_memory_that_somebody_has_written_meanwhile_stays_as_it_is(folder: Path) -> None:
    keep_notes(folder, [STYLE, PLACE], as_is)
    shelf = read_shelf(folder)
    (folder / "place.md").write_text("It moved.")
    os.utime(folder / "place.md", ns=(1, 1))
    assert not put_in_order(folder, shelf, Tidied(drop=("style.md", "place.md")), as_is)
    assert "It moved." == (folder / "place.md").read_text()
    assert (folder / "style.md").exists()


def test_a_file_that_was_not_shown_is_not_replaced(folder: Path) -> None:
    keep_notes(folder, [STYLE], as_is)
    (folder / "place.md").write_bytes(b"\0 not a note")
    assert not put_in_order(folder, read_shelf(folder), Tidied(notes=(PLACE,)), as_is)


def test_there_is_no_shelf_without_a_folder(folder: Path) -> None:
    assert Shelf() == read_shelf(folder)


# --- when -----------------------------------------------------------------------------------------


def sessions(folder: Path, number: int, at: float) -> None:
    for position in range(number):
        journal = folder.parent / f"{position}.jsonl"
        journal.touch()
        os.utime(journal, (at, at))


def test_it_is_time_after_a_day_and_several_sessions(folder: Path) -> None:
    keep_notes(folder, [STYLE, PLACE], as_is)
    sessions(folder, SESSIONS - 1, NOW)
    assert not consolidation_due(folder, folder.parent, NOW)
    sessions(folder, SESSIONS, NOW)
    assert consolidation_due(folder, folder.parent, NOW)
    release(folder, NOW, done=True)
    sessions(folder, SESSIONS, NOW + 10)
    assert not consolidation_due(folder, folder.parent, NOW + PERIOD - 1)
    assert consolidation_due(folder, folder.parent, NOW + PERIOD)
    sessions(folder, SESSIONS, NOW - 10)
    assert not consolidation_due(folder, folder.parent, NOW + PERIOD)


def test_one_note_is_in_order(folder: Path) -> None:
    keep_notes(folder, [STYLE], as_is)
    sessions(folder, SESSIONS, NOW)
    assert not consolidation_due(folder, folder.parent, NOW)


def test_one_at_a_time_until_a_lock_is_stale(folder: Path) -> None:
    folder.mkdir(parents=True)
    assert reserve(folder, NOW)
    assert not reserve(folder, NOW + LOCK_STALE)
    assert reserve(folder, NOW + LOCK_STALE + 1)
    release(folder, NOW, done=False)
    assert not (folder / LOCK).exists()
    assert [] == os.listdir(folder)
