"""Small questions: short, self-contained, and read with distrust."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.asides import (
    LINE_CHARS,
    CallNote,
    activity_question,
    calls_question,
    excerpt,
    note_of,
    read_line,
    transcript,
)
from atrio.runtime.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    RedactedThinkingBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

CALL = ToolUseBlock("t1", "Bash", {"command": "make test", "timeout": 5})

CONVERSATION: tuple[Message, ...] = (
    SystemMessage(uuid="s", subtype="compact_boundary"),
    UserMessage(uuid="a", content=(TextBlock("mend it"),)),
    AssistantMessage(uuid="b", message_id="m", model="m", content=(ThinkingBlock("hm", "sig"), TextBlock("ok"), CALL)),
    UserMessage(uuid="c", content=(ToolResultBlock("t1", "2 failed", is_error=True),), origin="tool_results"),
    UserMessage(uuid="d", content=(TextBlock("a reminder"),), origin="attachment", hidden=True),
)


@pytest.mark.parametrize(
    ("block", "note"),
    [
        (TextBlock("I look\nat it."), "says: I look at it."),
        (TextBlock("  "), None),
        (ThinkingBlock("hm", "sig"), None),
        (RedactedThinkingBlock("x"), None),
        (CALL, "calls Bash: command=make test, timeout=5"),
        (ToolResultBlock("t", "fine"), "result: fine"),
        (ToolResultBlock("t", (TextBlock("a"), ImageBlock({}))), "result: a"),
        (ToolResultBlock("t", (ImageBlock({}),)), "result: (media)"),
        (ToolResultBlock("t", "no", is_error=True), "error: no"),
    ],
)
def test_a_block_in_a_few_words(block: TextBlock, note: str | None) -> None:
    assert note == note_of(block)


def test_a_conversation_in_lines_leaves_out_what_nobody_said() -> None:
    expected = "user: mend it\nagent says: ok\nagent calls Bash: command=make test, timeout=5\nerror: 2 failed"
    assert expected == transcript(CONVERSATION, 1000)


def test_of_a_long_conversation_the_end_counts() -> None:
    assert "error: 2 failed" == transcript(CONVERSATION, 20)
    assert "" == transcript(CONVERSATION, 3)


def test_an_activity_question_holds_the_task_the_steps_and_what_was_said_last() -> None:
    text = activity_question("mend it", ["says: ok", "calls Bash"], "Reading a.py").text
    assert "<task>mend it</task>" in text
    assert "- says: ok\n- calls Bash\n</latest_steps>" in text
    assert 'You said last: "Reading a.py"' in text
    assert "You said last" not in activity_question("mend it", [], None).text


def test_a_question_about_calls_is_bounded() -> None:
    calls = [CallNote(id=str(number), label=f"call {number}") for number in range(100)]
    text = calls_question(calls, "").text
    assert "- call 19 -> no result\n- and 80 more\n" in text
    assert "<intent>" not in text


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("Reading a.py", "Reading a.py"),
        ('\n  "**Reading a.py.**"\n\nwhat else?', "Reading a.py"),
        ("- Reading  a.py…", "Reading a.py"),
        ("", None),
        ("\n...\n", None),
        ("one two three four five six seven eight nine", None),
        ("x" * 200, None),
    ],
)
def test_an_answer_is_one_short_line(answer: str, line: str | None) -> None:
    assert line == read_line(answer, 8)


@given(st.text())
def test_whatever_is_answered_a_line_is_short_and_alone(answer: str) -> None:
    line = read_line(answer, 8)
    assert line is None or ("\n" not in line and 0 < len(line) <= LINE_CHARS and len(line.split()) <= 8)


@given(st.text(), st.integers(10, 400))
def test_an_excerpt_fits_and_closes_no_tag(text: str, limit: int) -> None:
    line = excerpt(text, limit)
    assert len(line) <= limit
    assert not set("<>\n") & set(line)
