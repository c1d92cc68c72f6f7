"""Journals of earlier and later forms."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from atrio.runtime.errors import JournalCorrupt
from atrio.runtime.messages import JsonObject, TextBlock, UserMessage
from atrio.runtime.records import UserRecord
from atrio.runtime.replay import replay_file
from atrio.runtime.resume import resume_file
from atrio.runtime.schema import SCHEMA, STEPS, NewerSchema, upgraded
from atrio.runtime.transcript import LineWriter

NOW = datetime(2026, 3, 4, tzinfo=UTC)


def line(**changes: Any) -> bytes:
    record = UserRecord(message=UserMessage(uuid="u1", content=(TextBlock("hello"),)))
    written = orjson.loads(LineWriter(session_id="s", cwd="/w", version="1").line(record, NOW))
    assert SCHEMA == written["schema"]
    return orjson.dumps({**written, **changes}) + b"\n"


def test_there_is_a_step_from_every_earlier_form() -> None:
    assert set(range(1, SCHEMA)) == set(STEPS)


def test_steps_follow_one_another() -> None:
    def step(name: str) -> Any:
        return lambda old: {**old, "seen": [*old.get("seen", []), name]}

    steps = {1: step("a"), 2: step("b"), 3: step("c")}
    assert {"seen": ["a", "b", "c"], "schema": 4} == upgraded({}, schema=4, steps=steps)
    assert {"seen": ["c"], "schema": 4} == upgraded({"schema": 3}, schema=4, steps=steps)
    current: JsonObject = {"schema": 4}
    assert upgraded(current, schema=4, steps=steps) is current


@pytest.mark.parametrize("found", [SCHEMA + 1, 0, -1, "2", None, 1.5, {}])
def test_what_is_no_earlier_form_is_refused(found: object) -> None:
    with pytest.raises(NewerSchema, match=re.escape(str(found)[:20])):
        upgraded({"schema": found})


@pytest.mark.parametrize("read", [replay_file, resume_file])
def test_a_journal_of_a_later_form_is_not_read_with_holes(tmp_path: Path, read: Any) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(line() + line(schema=SCHEMA + 1, uuid="u2"))
    with pytest.raises(JournalCorrupt, match=r"line 2: it is of a later form \(2; this atrio reads up to 1\); go on"):
        read(path)


def test_lines_without_a_form_are_read(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    value = orjson.loads(line())
    del value["schema"]
    path.write_bytes(orjson.dumps(value) + b"\n")
    replay = replay_file(path)
    assert [] == replay.bad_lines
    assert 1 == len(replay.messages)
