"""Front matter is read however it is written, and what isn't YAML is named with its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.context.front_matter import FrontMatter, parse_front_matter, split_list


def fields(*lines: str) -> dict[str, object]:
    return dict(parse_front_matter("\n".join(("---", *lines, "---", ""))).fields)


def problems(*lines: str) -> tuple[str, ...]:
    return parse_front_matter("\n".join(("---", *lines, "---", ""))).problems


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["name: a", "description: does b"], {"name": "a", "description": "does b"}),
        (["name: 'it''s'", 'other: "a\\nb \\"c\\""'], {"name": "it's", "other": 'a\nb "c"'}),
        (["paths: [a/**, 'b, c', \"d\"]"], {"paths": ("a/**", "b, c", "d")}),
        (["paths:", "  - 'src/**/*.{ts,tsx}'", "  - lib/*.ts # more"], {"paths": ("src/**/*.{ts,tsx}", "lib/*.ts")}),
        (["paths:", "- a", "- b"], {"paths": ("a", "b")}),
        (["paths: [", "  a,", "  b", "]"], {"paths": ("a", "b")}),
        (["description: >-", "  one", "  two", "", "  three"], {"description": "one two\nthree"}),
        (["description: |", "  one", "    two"], {"description": "one\n  two"}),
        (["description: one", "  two", "name: x"], {"description": "one two", "name": "x"}),
        (["name: a # a note", "# all of it", "", "b: 'c' # d"], {"name": "a", "b": "c"}),
        (["Name: a", "name\t:\tb"], {"name": "b"}),
        (["empty:", "name: a"], {"empty": "", "name": "a"}),
        (["metadata:", "  author: me", "name: a"], {"metadata": "author: me", "name": "a"}),
        (["url: http://x/y#z"], {"url": "http://x/y#z"}),
    ],
)
def test_fields(lines: list[str], expected: dict[str, object]) -> None:
    assert expected == fields(*lines)


@pytest.mark.parametrize(
    ("line", "value", "problem"),
    [
        ("d: Use when: it rains", "Use when: it rains", "line 2: d holds a colon"),
        ("d: **/*.ts", "**/*.ts", "line 2: d begins with '*'"),
        ("d: 'open", "'open", "line 2: the quotes of d don't match"),
        ('d: "a" and "b"', '"a" and "b"', "line 2: the quotes of d don't match"),
        ("d: [a, b", ("a", "b"), "line 2: the list of d is never closed"),
        ("d: x\n\tmore", "x more", "line 2: d is indented with tabs"),
        ("d: a\nd: b", "b", "line 3: d is given twice"),
        ("d: a\njust words", "a", "line 3: 'just words' is no field"),
    ],
)
def test_what_is_no_yaml_is_taken_as_meant_and_named(line: str, value: object, problem: str) -> None:
    assert value == fields(*line.split("\n"))["d"]
    (named,) = problems(*line.split("\n"))
    assert named.startswith(problem)


def test_the_body_is_unchanged_to_the_byte() -> None:
    body = "\r\n  text\u2028more\x0c\n---\nname: no field\n"
    assert FrontMatter(fields={"name": "a"}, body=body) == parse_front_matter(f"---\r\nname: a\r\n---\r\n{body}")


@pytest.mark.parametrize(
    "text", ["", "text", "--- \n\n# A rule, then text\n", " ---\nname: a\n---\n", "----\na: b\n---\n"]
)
def test_a_text_without_front_matter_is_all_body(text: str) -> None:
    assert FrontMatter(body=text) == parse_front_matter(text)


def test_front_matter_that_is_never_closed_is_body_with_a_problem() -> None:
    text = "---\nname: a\n\nText.\n"
    expected = FrontMatter(body=text, problems=("line 1: the front matter is never closed by a line of ---",))
    assert expected == parse_front_matter(text)


def test_values_as_text_list_and_flag() -> None:
    matter = parse_front_matter("---\na: x, 'y, z', q.{b,c}\nl: [p, q]\nyes: true\nno: 'No'\n---\n")
    assert ("x", "y, z", "q.{b,c}") == matter.items("a")
    assert ("p", "q") == matter.items("l")
    assert () == matter.items("missing")
    assert "p, q" == matter.text("l")
    assert matter.text("missing") is None
    assert (True, False, True) == (matter.flag("yes", False), matter.flag("no", True), matter.flag("missing", True))


def test_lists_keep_what_is_within_braces_and_quotes() -> None:
    assert ("a{b,c}", "d,e", "f") == split_list("a{b,c} , 'd,e',, f")


plain = st.text("abcXYZ019_/.()+~é漢", min_size=1)
keys = st.from_regex(r"[a-z][a-z_-]{0,10}", fullmatch=True)


@given(st.dictionaries(keys, plain), st.text(st.characters(codec="utf-8")))
def test_simple_fields_come_back(given_fields: dict[str, str], body: str) -> None:
    text = "---\n" + "".join(f"{key}: {value}\n" for key, value in given_fields.items()) + "---\n" + body
    assert FrontMatter(fields=given_fields, body=body) == parse_front_matter(text)


@given(st.text(st.sampled_from("-:\n #'\"[]{},|>ab\t*\\\r")))
def test_nothing_is_raised_and_the_body_is_a_tail(text: str) -> None:
    matter = parse_front_matter(f"---\n{text}")
    assert f"---\n{text}".endswith(matter.body)
    assert all(isinstance(value, str | tuple) for value in matter.fields.values())
