"""Imports and comments count outside of code only; nothing else of a text changes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.context.markdown import find_imports, without_comments


def imports(text: str) -> list[str]:
    return [mark.targets[0] for mark in find_imports(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@a.md", ["a.md"]),
        ("See @docs/a.md and @~/b.md, also (@./c.md).", ["docs/a.md", "~/b.md,", "./c.md)."]),
        ("@../x/y @/abs/z", ["../x/y", "/abs/z"]),
        ("- @a.md\n- @b.md\n", ["a.md", "b.md"]),
        ("@a.md @a.md", ["a.md"]),
        (r"@my\ notes.md", ["my notes.md"]),
        ("me@example.com, @@x, @, @/ @. @#1", []),
        ("`@a.md` and ``x ` @b.md`` @c.md", ["c.md"]),
        ("`open @a.md\n\nnext ` paragraph", ["a.md"]),
        ("`over @a.md\nlines` @b.md", ["b.md"]),
        ("```\n@a.md\n```\n@b.md\n~~~ py\n@c.md\n```\n~~~\n@d.md", ["b.md", "d.md"]),
        ("````\n```\n@a.md\n```\n````\n@b.md", ["b.md"]),
        ("```\n@a.md\nnever closed", []),
        ("Text:\n\n    @a.md\n\n@b.md\n", ["b.md"]),
        ("\t@a.md\n", []),
        ("text\n    @a.md", ["a.md"]),
        ("- item\n\n    @a.md\n\n      @b.md\n", ["a.md", "b.md"]),
        ("- item\n      ```\n      @a.md\n      ```\n", []),
        ("1. ```\n   @a.md\n   ```\n   @b.md\n", ["b.md"]),
        ("<!-- @a.md\n@b.md -->\n@c.md", ["c.md"]),
        ("<!-- open @a.md", ["a.md"]),
    ],
)
def test_imports_outside_of_code(text: str, expected: list[str]) -> None:
    assert expected == imports(text)


def test_a_mark_names_its_line_and_all_that_it_may_mean() -> None:
    (mark,) = find_imports("one\ntwo @a/b.md#part,\n")
    assert (("a/b.md#part,", "a/b.md#part", "a/b.md"), 2) == (mark.targets, mark.line)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n<!-- note -->\nb\n", "a\nb\n"),
        ("a\r\n  <!-- one\r\n two --> \r\nb", "a\r\nb"),
        ("<!-- x --> rest\n", " rest\n"),
        ("a <!-- inline --> b", "a <!-- inline --> b"),
        ("<!-- never closed\na\n", "<!-- never closed\na\n"),
        ("```\n<!-- code -->\n```\n<!-- note -->\n", "```\n<!-- code -->\n```\n"),
        ("    <!-- code -->\n", "    <!-- code -->\n"),
        ("<!-- ``` -->\na\n<!-- b -->\n", "a\n"),
        ("<!--\n```\n-->\n@a\n<!-- b -->\n", "@a\n"),
        ("<!-->\nx\n", "x\n"),
    ],
)
def test_comments_go_and_all_else_stays(text: str, expected: str) -> None:
    assert expected == without_comments(text)


odd = st.text(st.sampled_from("`~@a. \n\t-<!>/\r("))


@given(odd)
def test_any_text_can_be_read(text: str) -> None:
    for mark in find_imports(text):
        assert mark.targets
        assert 1 <= mark.line <= text.count("\n") + 1


@given(odd.filter(lambda text: "<!--" not in text))
def test_a_text_without_comments_is_the_same_to_the_byte(text: str) -> None:
    assert text == without_comments(text)


@pytest.mark.parametrize("piece", ["<!--\n", "`", "` `` ", "@a ", "\n    ", "```\n", "<!-- -->\n", "- @\\ ", "@.,;:"])
def test_time_grows_no_faster_than_the_text(piece: str) -> None:
    text = piece * (50_000 // len(piece))
    begin = time.perf_counter()
    find_imports(text)
    without_comments(text)
    assert time.perf_counter() - begin < 2
