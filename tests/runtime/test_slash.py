"""What is a slash command, and what becomes of its text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.slash import NOT_RUN, Invocation, close_names, expand, parse_command


@pytest.mark.parametrize(
    ("prompt", "called"),
    [
        ("/cost", Invocation("cost")),
        ("  /compact keep the names \n", Invocation("compact", "keep the names")),
        ("/git:commit -m 'a b'", Invocation("git:commit", "-m 'a b'")),
        ("/review\nline one\n\nline two", Invocation("review", "line one\n\nline two")),
        ("/etc/passwd is what?", None),
        ("/", None),
        ("/ cost", None),
        ("//cost", None),
        ("/-x", None),
        ("say /cost", None),
        ("", None),
        ("/caf\u00e9 au lait", Invocation("caf\u00e9", "au lait")),
    ],
)
def test_a_prompt_that_begins_with_a_name_behind_a_slash_is_a_command(prompt: str, called: Invocation | None) -> None:
    assert called == parse_command(prompt)


@pytest.mark.parametrize(
    ("body", "arguments", "text"),
    [
        ("Fix $ARGUMENTS now.", "a 'b c'", "Fix a 'b c' now."),
        ("$1, then $2, not $3.", "a 'b c'", "a, then b c, not ."),
        ("It costs $10 and $ARGUMENTSX.", "", "It costs $10 and $ARGUMENTSX."),
        ("Look.", "at this", "Look.\n\nARGUMENTS: at this"),
        ("$1", "it's", "it's"),
        ("See $1.", "$2 $ARGUMENTS", "See $2."),
        ("State: !`git status`", "", f"State: !`git status`\n\n{NOT_RUN}"),
        ("Say `!` loudly and @src/a.py", "", "Say `!` loudly and @src/a.py"),
    ],
)
def test_arguments_take_their_places_once(body: str, arguments: str, text: str) -> None:
    assert text == expand(body, arguments)


@given(st.text(), st.text())
def test_any_text_can_be_expanded_and_what_arguments_hold_runs_nothing(body: str, arguments: str) -> None:
    text = expand(body, arguments)
    assert ("!`" in body and NOT_RUN in text) or NOT_RUN not in text.replace(arguments, "").replace(body, "")


@given(st.text())
def test_any_prompt_can_be_read(prompt: str) -> None:
    called = parse_command(prompt)
    assert called is None or prompt.lstrip().startswith(f"/{called.name}")


def test_close_names_are_spelled_alike_or_lie_in_a_folder() -> None:
    known = ("compact", "context", "cost", "git:commit", "help")
    assert ["compact"] == close_names("compct", known)
    assert ["git:commit"] == close_names("commit", known)[-1:]
    assert [] == close_names("xyzzy", known)
