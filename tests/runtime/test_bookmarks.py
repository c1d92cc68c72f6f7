"""A guess at the next prompt: asked for in time, and told only if a user would type it."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.bookmarks import MAX_WORDS, MIN_WORDS, read_suggestion, suggestion_question
from atrio.runtime.messages import AssistantMessage, TextBlock, UserMessage

PROMPT = UserMessage(uuid="a", content=(TextBlock("mend it"),))
ANSWER = AssistantMessage(uuid="b", message_id="m", model="m", content=(TextBlock("mended"),))


def test_a_young_conversation_and_one_that_failed_are_not_asked_about() -> None:
    assert suggestion_question([]) is None
    assert suggestion_question([PROMPT, ANSWER]) is None
    assert suggestion_question([PROMPT, ANSWER, PROMPT, attrs.evolve(ANSWER, api_error="overloaded")]) is None


def test_a_question_holds_what_was_said() -> None:
    question = suggestion_question([PROMPT, ANSWER, PROMPT, ANSWER])
    assert question is not None
    assert "user: mend it\nagent says: mended\nuser: mend it\nagent says: mended" in question.text


@pytest.mark.parametrize("text", ["run the tests", "commit this", "Now do the same for the other module"])
def test_what_a_user_would_type_is_a_suggestion(text: str) -> None:
    assert text == read_suggestion(f'"{text}."\n')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "Nothing follows",
        "no suggestion here",
        "tests",
        "I'll run the tests now",
        "Let me run the tests",
        "Here is what you could say",
        "User: run the tests",
        "looks good to me",
        "thanks a lot",
        "shall I run them?",
        "The user wants tests",
        "run the tests. then commit it",
        "run `make test`",
        "see https://example.org/x y",
        "run the tests\nand commit",
        "one two three four five six seven eight nine ten eleven twelve thirteen",
        "API error while asking",
        "things to do:",
    ],
)
def test_what_no_user_would_type_is_none(text: str) -> None:
    assert read_suggestion(text) is None


@given(st.text())
def test_whatever_is_answered_a_suggestion_is_a_few_words(answer: str) -> None:
    text = read_suggestion(answer)
    assert text is None or (MIN_WORDS <= len(text.split()) <= MAX_WORDS and "\n" not in text)
