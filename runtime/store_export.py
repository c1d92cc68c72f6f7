"""
A session as a document for people: Markdown or HTML.

Written piece by piece from one record at a time, so that memory doesn't grow with the session. What the session's
texts hold is shown, never interpreted: no tag, link or script of theirs becomes one of the document.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Protocol

import attrs

from .messages import (
    Block,
    DocumentBlock,
    ImageBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from .records import BlockRecord, Record, ResultRecord, RunEndRecord, SystemRecord, UserRecord, WithdrawRecord
from .replay import BadLine, read_records
from .rerecord import BOUNDARY

__all__ = ["export_session"]

PART_LIMIT = 20_000
"""Characters of one call or result that are shown; a document of megabytes of output is read by nobody."""

Format = Literal["markdown", "html"]


def export_session(journal: Path, format: Format) -> Iterator[str]:
    """
    The document, in pieces.

    Raises:
        JournalCorrupt: the journal can't be read.
    """
    bad_lines: list[BadLine] = []
    void = {r.message_id for r in read_records(journal, []) if isinstance(r, WithdrawRecord)}
    writer: _Writer = _Markdown() if format == "markdown" else _Html()
    yield writer.begin(f"Session {journal.stem}")
    for record in read_records(journal, bad_lines):
        if not (isinstance(record, BlockRecord) and record.message_id in void):
            yield from _record(writer, record)
    if bad_lines:
        yield writer.note(f"{len(bad_lines)} lines of the journal could not be read.")
    yield writer.end()


class _Writer(Protocol):
    def begin(self, title: str) -> str: ...
    def heading(self, text: str) -> str: ...
    def prose(self, text: str) -> str: ...
    def code(self, label: str, text: str) -> str: ...
    def note(self, text: str) -> str: ...
    def end(self) -> str: ...


def _record(writer: _Writer, record: Record) -> Iterator[str]:
    match record:
        case UserRecord(message=message):
            yield writer.heading(_who(message))
            for block in message.content:
                yield _block(writer, block)
        case BlockRecord():
            if isinstance(record.block, TextBlock):
                yield writer.heading("Assistant")
            yield _block(writer, record.block)
        case ResultRecord():
            label = f"Result of {record.name or 'a call'}" + (" (error)" if record.block.is_error else "")
            yield writer.code(label, _clip(_result_text(record.block)))
        case SystemRecord(subtype=subtype):
            yield writer.note("The conversation was compacted here." if subtype == BOUNDARY else record.text or subtype)
        case RunEndRecord():
            yield writer.note("; ".join((f"Run ended: {record.terminal_reason}", *record.errors)))
        case _:
            return


def _who(message: UserMessage) -> str:
    return f"atrio ({message.origin})" if message.hidden else "User"


def _block(writer: _Writer, block: Block) -> str:
    match block:
        case TextBlock():
            return writer.prose(block.text)
        case ThinkingBlock():
            return writer.code("Thinking", _clip(block.thinking)) if block.thinking else ""
        case ToolUseBlock():
            text = block.invalid_json
            if text is None:
                text = json.dumps(block.input, indent=2, ensure_ascii=False, default=str)
            return writer.code(f"Call of {block.name}", _clip(text))
        case ToolResultBlock():
            return writer.code("Result", _clip(_result_text(block)))
        case ImageBlock() | DocumentBlock():
            return writer.note("(an image)" if isinstance(block, ImageBlock) else "(a document)")
        case RedactedThinkingBlock():
            return writer.note("(thinking that only the provider can read)")
        case _:
            return writer.note(f"(a block of type {block.type})")


def _result_text(block: ToolResultBlock) -> str:
    if isinstance(block.content, str):
        return block.content
    return "\n".join(part.text if isinstance(part, TextBlock) else "(not a text)" for part in block.content)


def _clip(text: str) -> str:
    if len(text) <= PART_LIMIT:
        return text
    return f"{text[:PART_LIMIT]}\n... {len(text) - PART_LIMIT:,} more characters"


# --- Markdown -------------------------------------------------------------------------------------

# A fence of backticks has none behind it; otherwise they are a code span.
_FENCE = re.compile(r"[ ]{0,3}(`{3,}(?!.*`)|~{3,})")
_SPAN = re.compile(r"(?<![`\\])(`+)(?!`).*?(?<!`)\1(?!`)")
_HEADING = re.compile(r"((?:[\s>]|[-+*]\s|\d+[.)]\s)*)(#{1,3}(?:\s|$).*)")  # also in a list or a quotation
_UNDERLINE = re.compile(r"[\s>]*(?:=+|-+)\s*$")
_BACKTICKS = re.compile(r"`+")


@attrs.frozen
class _Markdown:
    def begin(self, title: str) -> str:
        return f"# {title}\n"

    def heading(self, text: str) -> str:
        return f"\n## {text}\n"

    def prose(self, text: str) -> str:
        return f"\n{_inert(text)}\n"

    def code(self, label: str, text: str) -> str:
        longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
        fence = "`" * max(3, longest + 1)
        label = " ".join(label.split()).replace("`", "'")
        return f"\n**{_in_a_line(label)}**\n\n{fence}\n{text}\n{fence}\n"

    def note(self, text: str) -> str:
        return f"\n*{_in_a_line(text)}*\n"

    def end(self) -> str:
        return ""


def _inert(text: str) -> str:
    """
    Markdown as the model writes it, but no HTML, no heading that looks like ours, no fence that stays open.

    Fences begin at the margin: inside of a list item they would end with the item.
    """
    lines: list[str] = []
    paragraph: list[str] = []
    fence = ""

    def end_paragraph() -> None:
        lines.extend(_without_tags(_without_headings(paragraph)))
        paragraph.clear()

    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence:
            closes = mark is not None and mark[1].startswith(fence) and not line.strip().strip(fence[0])
            lines.append(line.strip() if closes else line)
            fence = "" if closes else fence
        elif mark is not None:
            end_paragraph()
            fence = mark[1]
            lines.append(line.lstrip(" "))
        else:
            paragraph.append(line)
            if not line.strip():
                end_paragraph()
    end_paragraph()
    if fence:
        lines.append(fence)
    return "\n".join(lines)


def _without_headings(paragraph: Sequence[str]) -> list[str]:
    """Headings of the first three levels are smaller, and underlined ones are none."""
    lines = [f"{mark[1]}###{mark[2]}" if (mark := _HEADING.match(line)) else line for line in paragraph]
    return [f"\\{line.lstrip()}" if n and _UNDERLINE.match(line) else line for n, line in enumerate(lines)]


def _without_tags(paragraph: Sequence[str]) -> list[str]:
    """
    ``<`` begins no tag any more, unless it is in a code span, where it is none.

    A backtick that finds no partner in its line may have one in another line of the paragraph; then what looks like
    a span may be what stands between two of them, so that nothing counts as a span.
    """
    if any("`" in _SPAN.sub("", line) for line in paragraph):
        return [line.replace("<", "&lt;") for line in paragraph]
    return [_outside_spans(line) for line in paragraph]


def _in_a_line(text: str) -> str:
    return _without_tags([" ".join(text.split())])[0]


def _outside_spans(line: str) -> str:
    parts: list[str] = []
    end = 0
    for span in _SPAN.finditer(line):
        parts += (line[end : span.start()].replace("<", "&lt;"), span[0])
        end = span.end()
    return "".join((*parts, line[end:].replace("<", "&lt;")))


# --- HTML -----------------------------------------------------------------------------------------

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}"
    "h2{font-size:1rem;margin:2rem 0 .3rem;border-top:1px solid #8884;padding-top:1rem}"
    ".p{white-space:pre-wrap;overflow-wrap:anywhere}pre{background:#8881;padding:.7rem;overflow:auto}"
    "summary{cursor:pointer}.n{opacity:.7;font-style:italic}"
)


@attrs.frozen
class _Html:
    def begin(self, title: str) -> str:
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>\n<h1>{html.escape(title)}</h1>\n"
        )

    def heading(self, text: str) -> str:
        return f"<h2>{html.escape(text)}</h2>\n"

    def prose(self, text: str) -> str:
        return f'<div class="p">{html.escape(text)}</div>\n'

    def code(self, label: str, text: str) -> str:
        return f"<details><summary>{html.escape(label)}</summary><pre>{html.escape(text)}</pre></details>\n"

    def note(self, text: str) -> str:
        return f'<p class="n">{html.escape(text)}</p>\n'

    def end(self) -> str:
        return "</body></html>\n"
