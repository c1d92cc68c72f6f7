"""Files are read with bounds; what is odd about one is said, never raised."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from atrio.actors.context.texts import TextFile, Unreadable, markdown_below, printable, read_text


def test_the_text_is_that_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes("\ufeffa\r\n\u2028 b \n\n".encode())
    file = read_text(path, 100)
    assert isinstance(file, TextFile)
    assert ("a\r\n\u2028 b \n\n", None) == (file.text, file.problem)


def test_a_bad_byte_is_replaced_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"caf\xe9!")
    file = read_text(path, 100)
    assert isinstance(file, TextFile)
    assert "caf\ufffd!" == file.text
    assert f"{path}: byte 3 is no UTF-8 and was replaced; save the file as UTF-8" == file.problem


def test_what_is_no_text_is_told_apart_from_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "utf16").write_text("hello", encoding="utf-16")
    (tmp_path / "binary").write_bytes(b"a\0b")
    (tmp_path / "large").write_bytes(b"x" * 101)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    reasons = {}
    for name in ("utf16", "binary", "large", "pipe", "circle"):
        file = read_text(tmp_path / name, 100)
        assert isinstance(file, Unreadable)
        reasons[name] = file.reason.partition(";")[0]
    expected = {
        "utf16": "skipped: it is no UTF-8 text",
        "binary": "skipped: it is no UTF-8 text",
        "large": "skipped: it is larger than 100 bytes",
        "pipe": "skipped: it is no regular file",
        "circle": f"skipped: it can't be read ({os.strerror(errno.ELOOP)})",
    }
    assert expected == reasons
    for path in (tmp_path, tmp_path / "none", tmp_path / "large" / "below", Path("a\0b")):
        assert not isinstance(read_text(path, 100), TextFile)
    assert read_text(tmp_path / "none", 100) is None


def test_markdown_below_follows_links_but_no_circles(tmp_path: Path) -> None:
    (tmp_path / "rules" / "sub").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for name in ("rules/b.md", "rules/sub/a.MD", "rules/x.txt", "other/c.md"):
        (tmp_path / name).touch()
    (tmp_path / "rules" / "linked").symlink_to(tmp_path / "other")
    (tmp_path / "rules" / "circle").symlink_to(tmp_path / "rules")
    found = [str(path.relative_to(tmp_path)) for path in markdown_below(tmp_path / "rules")]
    assert ["rules/b.md", "rules/linked/c.md", "rules/sub/a.MD"] == found
    assert [] == markdown_below(tmp_path / "none")


def test_any_path_can_be_shown() -> None:
    assert "/caf\ufffd" == printable(Path(os.fsdecode(b"/caf\xe9")))
