"""What comes from a model is made fit for the conversation."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.border import admit_block, call_ids
from atrio.runtime.messages import AssistantMessage, TextBlock, ToolUseBlock


def call(id: str, name: str = "Read") -> ToolUseBlock:
    return ToolUseBlock(id, name, {"a": 1})


def test_a_good_call_is_untouched() -> None:
    block = call("toolu_1")
    assert admit_block(block, set()) is block


def test_other_blocks_pass() -> None:
    block = TextBlock("x")
    assert admit_block(block, set()) is block


def test_a_repeated_id_becomes_unique() -> None:
    seen = {"toolu_1"}
    assert call("toolu_1_2") == admit_block(call("toolu_1"), seen)
    assert call("toolu_1_3") == admit_block(call("toolu_1"), seen)


@given(st.lists(st.text(max_size=300), max_size=30), st.text(max_size=10_000))
def test_whatever_comes_ids_are_unique_and_legal(ids: list[str], name: str) -> None:
    seen: set[str] = set()
    blocks = [admit_block(call(id, name), seen) for id in ids]
    admitted = [block.id for block in blocks if isinstance(block, ToolUseBlock)]
    assert len(set(admitted)) == len(ids) == len(admitted)
    for block in blocks:
        assert isinstance(block, ToolUseBlock)
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,300}", block.id)
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,128}", block.name)
        assert block.input == {"a": 1}


def test_ids_of_a_history_are_found() -> None:
    message = AssistantMessage(uuid="u", message_id="m", model="x", content=(TextBlock("t"), call("a"), call("b")))
    assert {"a", "b"} == call_ids([message])
