"""HTML becomes text that reads well; nothing in it is too broken or takes too long."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.tools.html_text import PageText, html_to_text

URL = "https://host.test/dir/page"


def text_of(html: str) -> str:
    return html_to_text(html, URL).text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<h1>One</h1><h3>Two</h3>text", "# One\n\n### Two\n\ntext"),
        ("<p>a\n  b</p><p>c<br>d</p>", "a b\n\nc\nd"),
        ("<div>a</div><div>b</div>", "a\nb"),
        ("a<b>b</b> <i>c</i>d", "ab cd"),
        ("<ul><li>a<li> b<ul><li>c</ul></ul>d", "- a\n- b\n  - c\n\nd"),
        ("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b"),
        ("<table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table>", "A | B\n1 | 2"),
        ("x <pre>def f():\n    pass\n</pre> y", "x\n\n```\ndef f():\n    pass\n```\n\ny"),
        ("call <code> f(x) </code> now", "call `f(x)` now"),
        ("<blockquote>said</blockquote>", "> said"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<img src=x alt='a  picture'>", "[image: a picture]"),
        ("<img src=x>", ""),
        ("a<script>alert('<p>x')</script>b<style>p{}</style>c<svg><text>no</text></svg>d", "abcd"),
        ("<noscript>Enable it</noscript>&lt;ok&gt; &amp; caf&eacute;&nbsp;!", "<ok> & caf\u00e9 !"),
        ("<![if IE]>a<![endif]>b<!-- c --><![CDATA[d]]><!doctype html>e", "abe"),
        ("a<![<b>c", "ac"),
        ("<pre>open", "```\nopen\n```"),
        ("</ul></pre></a></li>x", "x"),
        ("", ""),
    ],
)
def test_markup_becomes_text(html: str, text: str) -> None:
    assert text == text_of(html)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<a href=x>t</a>", "[t](https://host.test/dir/x)"),
        ("<a href='/x?a=1&amp;b=2'> t </a>", "[t](https://host.test/x?a=1&b=2)"),
        ("<a href=//o.test/>t</a>", "[t](https://o.test/)"),
        ("<base href='https://b.test/d/'><a href=x>t</a>", "[t](https://b.test/d/x)"),
        ("<a href='#part'>t</a>", "t"),
        ("<a href='javascript:go()'>t</a>", "t"),
        ("<a href='data:text/html,x'>t</a>", "t"),
        ("<a>t</a>", "t"),
        ("a<a href=x></a>b", "ab"),
        ("<a href='http://[bad'>t</a>", "t"),
        ("<a href=x>t<a href=y>u</a>", "[t](https://host.test/dir/x)[u](https://host.test/dir/y)"),
        (f"<a href='{'x' * 501}'>t</a>", "t"),
    ],
)
def test_links_are_whole_or_left_out(html: str, text: str) -> None:
    assert text == text_of(html)


def test_the_title_is_apart() -> None:
    html = "<html><head><title> My\n page </title></head><body>Text<svg><title>no</title></svg></body></html>"
    assert PageText(title="My page", text="Text", cut=False) == html_to_text(html, URL)


@given(st.text(alphabet=st.sampled_from(list("<>/!-[]=\"'&;# apreuliscvgtdo\n\ud7ff")), max_size=200))
def test_any_markup_is_read(html: str) -> None:
    html_to_text(html, URL)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["<a ", "<!--", "<![", '<a x="', "<svg>", "<a href=x>y", "<ol><li>", "<pre>a", "&#"])
def test_a_hostile_page_costs_bounded_time_and_room(part: str) -> None:
    began = time.monotonic()
    page = html_to_text(part * (1_000_000 // len(part)), URL)
    assert len(page.text) < 1_100_000
    assert time.monotonic() - began < 15


def test_it_can_be_stopped() -> None:
    class Stop(Exception):
        pass

    def tick() -> None:
        raise Stop

    with pytest.raises(Stop):
        html_to_text("<p>text", URL, tick)
