"""Lines of the log."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.logs import LogHandler, format_line, install

NOW = datetime(2026, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC)


def test_json_lines_have_time_level_source_and_message() -> None:
    line = format_line("two\nlines", format="json", level="warning", source="mcp", now=NOW, prefix="atrio: ")
    expected = {"time": "2026-03-04T05:06:07.089Z", "level": "warning", "source": "mcp", "message": "two lines"}
    assert expected == json.loads(line)


def test_text_lines_cannot_move_the_cursor() -> None:
    line = format_line("a\x1b[2Jb", format="text", level="info", source="run", now=NOW, prefix="atrio: ")
    assert "atrio: a\ufffd[2Jb\n" == line.decode()


@given(st.text(alphabet=st.characters(), max_size=50), st.sampled_from(["text", "json"]))
def test_whatever_is_said_is_one_line(text: str, format: str) -> None:
    line = format_line(text, format="json" if format == "json" else "text", level="info", source="x", now=NOW)
    assert 1 == line.count(b"\n")
    assert line.endswith(b"\n")


def test_what_parts_log_goes_to_the_handler_while_it_is_installed() -> None:
    heard: list[tuple[str, str, str]] = []
    undo = install(LogHandler(lambda *said: heard.append(said)), debug=False)
    try:
        logging.getLogger("atrio.tools").warning("odd: %s", 1)
        logging.getLogger("atrio.tools").debug("not this")
        logging.getLogger("atrio.tools").error("bad", exc_info=ValueError("why"))
    finally:
        undo()
    logging.getLogger("atrio.tools").debug("nor this")
    assert [("odd: 1", "warning", "atrio.tools"), ("bad: ValueError: why", "error", "atrio.tools")] == heard
