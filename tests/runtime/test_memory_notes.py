"""What a model wants remembered: files with plain names and bounded texts, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.memory_notes import (
    NOTE_BYTES,
    NOTES_AT_ONCE,
    MemoryNote,
    Tidied,
    extraction_question,
    read_notes,
    read_tidied,
    tidying_question,
)
from atrio.runtime.messages import TextBlock, UserMessage

NOTE = {"file": "style.md", "description": "how the\nuser writes", "text": "tabs, never spaces\n"}
READ = MemoryNote(file="style.md", description="how the user writes", text="tabs, never spaces")
PROMPT = UserMessage(uuid="a", content=(TextBlock("I want tabs"),))


def test_a_question_holds_the_session_and_the_notes_there_are() -> None:
    text = extraction_question([PROMPT], {"style.md": "how the user writes"}).text
    assert "- style.md: how the user writes\n</existing_notes>" in text
    assert "user: I want tabs" in text
    assert "(none)" in extraction_question([PROMPT], {}).text


def test_a_question_about_order_holds_every_note_whole() -> None:
    text = tidying_question({"a.md": "one\ntwo", "b.md": "three"}, "- [a](a.md)", "2026-01-02").text
    assert '<note file="a.md">\none\ntwo\n</note>\n\n<note file="b.md">' in text
    assert "Today is 2026-01-02" in text


@pytest.mark.parametrize("around", ["{}", "Here you are:\n```json\n{}\n```\nDone."])
def test_notes_are_found_in_an_answer(around: str) -> None:
    assert (READ,) == read_notes(around.replace("{}", json.dumps({"notes": [NOTE]})))


@pytest.mark.parametrize(
    "wrong",
    [
        {"file": "../up.md"},
        {"file": "/etc/x.md"},
        {"file": "a/b.md"},
        {"file": "MEMORY.md"},
        {"file": "memory.md"},
        {"file": ".hidden.md"},
        {"file": "no-ending"},
        {"file": "a.md\n"},
        {"file": 7},
        {"text": ""},
        {"text": " \n"},
        {"text": "x" * (NOTE_BYTES + 1)},
        {"text": None},
    ],
)
def test_what_is_no_note_is_left_out(wrong: dict[str, Any]) -> None:
    assert (READ,) == read_notes(json.dumps({"notes": [{**NOTE, **wrong}, NOTE]}))


def test_there_are_only_so_many_at_once() -> None:
    many = [{**NOTE, "file": f"n{number}.md"} for number in range(50)]
    assert NOTES_AT_ONCE == len(read_notes(json.dumps({"notes": many})))


@pytest.mark.parametrize("answer", ["", "nothing", "[]", "{", '{"notes": 1}', '{"notes": [1, null, []]}', "}{"])
def test_an_answer_without_notes_is_none(answer: str) -> None:
    assert () == read_notes(answer)
    assert not read_tidied(answer).changes


def test_what_is_to_become_of_a_memory_is_read() -> None:
    wanted = {"notes": [NOTE], "drop": ["old.md", "../x.md", 3], "index": "- [style](style.md)\n"}
    assert Tidied(notes=(READ,), drop=("old.md",), index="- [style](style.md)") == read_tidied(json.dumps(wanted))


def test_an_index_that_is_too_long_is_none() -> None:
    assert "" == read_tidied(json.dumps({"drop": ["a.md"], "index": "x\n" * 300})).index


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_any_json_can_be_read(value: Any) -> None:
    for key in ("notes", "drop", "index"):
        read_notes(json.dumps({key: value}))
        read_tidied(json.dumps({key: value}))


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    read_notes(text)
    read_tidied(text)
