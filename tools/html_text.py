"""HTML as text that reads well: headings, lists, links, tables and code in the manner of Markdown. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin

import attrs

__all__ = ["PageText", "html_to_text"]

FEED_CHARS: Final = 65_536

TEXT_CHARS: Final = 1_000_000
"""Of the result; much more than a page that anybody reads."""

PARSE_LIMIT: Final = 10.0
"""Seconds. Python's parser is slow with some kinds of broken markup."""

TAG_CHARS: Final = 512 * 1024
"""A longer tag was never closed, and each further look at it takes longer."""

LINK_CHARS: Final = 500
"""A link to a longer URL is shown without it."""

MAX_INDENT: Final = 8

_SKIPPED: Final = frozenset({"script", "style", "template", "noscript", "svg", "iframe", "object", "canvas", "math"})
_BLOCKS: Final = frozenset(
    {"address", "article", "aside", "body", "center", "dd", "details", "dialog", "div", "dt", "fieldset", "figcaption"}
    | {"figure", "footer", "form", "header", "html", "legend", "main", "nav", "option", "section", "summary", "tr"}
)
_PARAGRAPHS: Final = frozenset({"p", "blockquote", "dl", "ol", "table", "ul"})
_HEADINGS: Final = {f"h{level}": f"{'#' * level} " for level in range(1, 7)}
_NO_LINKS: Final = ("javascript:", "data:", "#")


@attrs.frozen(kw_only=True)
class PageText:
    """``cut``: the end of the page is missing, as it was too long or too hard to read."""

    title: str
    text: str
    cut: bool


def html_to_text(html: str, url: str, tick: Callable[[], None] = lambda: None) -> PageText:
    """
    The text of a page at ``url``, which relative links are relative to. ``tick`` is called now and then and may raise,
    so that it can be stopped. Time and result are bounded, and no markup is too broken.
    """
    writer = _Writer(url)
    deadline = time.monotonic() + PARSE_LIMIT
    at = 0
    while at < len(html) and not writer.stuck and not writer.full and time.monotonic() < deadline:
        tick()
        writer.feed(html[at : at + FEED_CHARS])
        at += FEED_CHARS
    cut = at < len(html) or writer.full or len(writer.rawdata) > FEED_CHARS
    if not cut:  # what is unclosed at the end; looking through much of it takes very long
        writer.close()
    writer.end()
    title = " ".join("".join(writer.title).split())
    return PageText(title=title[:500], text="".join(writer.parts).strip(), cut=cut)


class _Writer(HTMLParser):
    """Writes ``parts`` while it is fed."""

    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title: list[str] = []
        self._base = base
        self._chars = 0
        self._breaks = 0
        self._space = False
        self._glued = False
        """What was written last is a mark that the text follows at once."""
        self._skipping: list[str] = []
        self._lists: list[int | None] = []
        self._link: tuple[int, str] | None = None
        self._pre = 0
        self._in_title = False
        self._cells = 0

    @property
    def full(self) -> bool:
        return self._chars > TEXT_CHARS

    @property
    def stuck(self) -> bool:
        return len(self.rawdata) > TAG_CHARS and self.cdata_elem is None

    def parse_html_declaration(self, i: int) -> int:
        try:
            return super().parse_html_declaration(i)
        except AssertionError:  # Python's parser doesn't know all kinds of "<![" and gives up
            return self.parse_bogus_comment(i)

    # --- tags ---------------------------------------------------------------------------------

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED:
            self._skipping.append(tag)
        if self._skipping or self.full:
            return
        values = {name: value or "" for name, value in attrs}
        if tag in _BLOCKS or tag in _PARAGRAPHS or tag in _HEADINGS or tag == "li":
            self._break(1 if tag in _BLOCKS or tag == "li" or (tag in ("ul", "ol") and self._lists) else 2)
        if tag in _HEADINGS:
            self._mark(_HEADINGS[tag])
        match tag:
            case "a":
                self._begin_link(values.get("href", ""))
            case "base" if values.get("href"):
                self._base = self._absolute(values["href"]) or self._base
            case "blockquote":
                self._mark("> ")
            case "br":
                self._breaks = min(2, self._breaks + 1)
            case "code" | "kbd" | "samp" if not self._pre:
                self._mark("`")
            case "hr":
                self._break(2)
                self._write("---")
                self._break(2)
            case "img" if alt := " ".join(values.get("alt", "").split()):
                self._write(f"[image: {alt[:LINK_CHARS]}]")
            case "li":
                self._item()
            case "ol":
                self._lists.append(0)
            case "pre" | "textarea":
                self._begin_pre()
            case "td" | "th":
                if self._cells:
                    self._space = True
                    self._mark("| ")
                self._cells += 1
            case "title":
                self._in_title = True
            case "tr":
                self._cells = 0
            case "ul":
                self._lists.append(None)

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            if tag in self._skipping:
                while self._skipping.pop() != tag:
                    pass
            return
        if self.full:
            return
        if tag in _BLOCKS or tag == "li":
            self._break(1)
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        if tag in _PARAGRAPHS or tag in _HEADINGS:
            self._break(1 if tag in ("ul", "ol") and self._lists else 2)
        match tag:
            case "a":
                self._end_link()
            case "code" | "kbd" | "samp" if not self._pre:
                self._append("`")
            case "pre" | "textarea" if self._pre:
                self._end_pre()
            case "td" | "th":
                self._space = True
            case "title":
                self._in_title = False

    def handle_data(self, data: str) -> None:
        if self._skipping or self.full or not data:
            return
        if self._in_title:
            self.title.append(data[:1_000])
        elif self._pre:
            self._write(data)
        else:
            self._words(data)

    def end(self) -> None:
        """The page is over: close what it left open."""
        self._end_link()
        if self._pre:
            self._pre = 1
            self._end_pre()

    # --- writing ------------------------------------------------------------------------------

    def _words(self, data: str) -> None:
        text = " ".join(data.split())
        if (not text or data[0].isspace()) and not self._glued:
            self._space = True
        if text:
            self._write(text)
            self._space = data[-1].isspace()

    def _write(self, text: str) -> None:
        """Text, behind the line ends or the space that are due."""
        if self._breaks:
            self._append("\n" * self._breaks)
        elif self._space:
            self._append(" ")
        self._breaks, self._space, self._glued = 0, False, False
        self._append(text)

    def _append(self, text: str) -> None:
        self.parts.append(text)
        self._chars += len(text)

    def _mark(self, text: str) -> None:
        self._write(text)
        self._glued = True

    def _break(self, lines: int) -> None:
        self._breaks = max(self._breaks, lines)

    def _item(self) -> None:
        indent = "  " * min(max(0, len(self._lists) - 1), MAX_INDENT)
        mark = "- "
        if self._lists and (number := self._lists[-1]) is not None:
            self._lists[-1] = number + 1
            mark = f"{number + 1}. "
        self._mark(f"{indent}{mark}")

    def _begin_pre(self) -> None:
        self._pre += 1
        if self._pre == 1:
            self._break(2)
            self._write("```\n")

    def _end_pre(self) -> None:
        self._pre -= 1
        if not self._pre:
            self._append("```" if self.parts[-1].endswith("\n") else "\n```")
            self._break(2)

    def _begin_link(self, href: str) -> None:
        self._end_link()
        url = self._absolute(href)
        if url is not None:
            self._mark("[")
            self._link = len(self.parts), url

    def _end_link(self) -> None:
        """The link's address, if there was any text to it."""
        if self._link is None:
            return
        (start, url), self._link = self._link, None
        if len(self.parts) > start:
            self._append(f"]({url})")
        else:
            self.parts[start - 1] = ""
            self._glued = False

    def _absolute(self, href: str) -> str | None:
        href = href.strip()
        if not href or len(href) > LINK_CHARS or href.lower().startswith(_NO_LINKS):
            return None
        try:
            url = urljoin(self._base, href)
        except ValueError:
            return None
        return "".join(url.split()) if len(url) <= LINK_CHARS else None
