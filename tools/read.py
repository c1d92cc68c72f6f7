"""The Read tool: a file's lines with their numbers, or an image or PDF for the model to look at."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs
import trio

from atrio.runtime.errors import ToolError, ToolRejected
from atrio.runtime.tool import Tool, ToolContext, ToolOutput

from .files import FilePath, Loaded, check_path, in_thread, load, open_regular, size_words
from .media import binary_kind, media_output, media_type
from .notebook_format import NotNotebook, parse_notebook, show_notebook
from .paths import locate
from .schema import Field, json_schema, structure
from .text_format import decode, detect, numbered

__all__ = ["Read", "ReadInput"]

DEFAULT_LINES: Final = 2_000
MAX_LINE_CHARS: Final = 2_000
MAX_RESULT_CHARS: Final = 100_000
"""About 25,000 tokens."""

CHUNK_BYTES: Final = 2**20


@attrs.frozen(kw_only=True)
class ReadInput:
    """What to read."""

    file_path: FilePath = attrs.field(validator=check_path)
    offset: Annotated[int | None, Field(ge=0, description="number of the first line to read, counted from 1")] = None
    limit: Annotated[int | None, Field(ge=1, description="how many lines to read (default 2000)")] = None


class Read(Tool):
    """
    Reads files.

    The result is `cat -n` style. Bounded are the number of lines (``limit``), the length of each, and the whole; what
    was left out is said, with the offset to go on. Files of any size are read in bounded memory.
    """

    name = "Read"
    description = (
        "Reads a file. Text comes with line numbers (number, tab, line); the first 2000 lines unless offset and limit "
        "say otherwise, lines over 2000 characters cut. Images (PNG, JPEG, GIF, WebP) and PDFs are shown to you, "
        "Jupyter notebooks by their cells. "
        "It can't read directories: use Glob for those. Read a file before you change it."
    )
    input_schema = json_schema(ReadInput)
    read_only = True
    idempotent = True
    permission: Literal["allow", "read", "edit", "ask"] = "read"
    max_result_chars: int | None = None

    def parse(self, raw: Mapping[str, Any]) -> ReadInput:
        return structure(ReadInput, raw, tool=self.name)

    def paths(self, input: ReadInput, ctx: ToolContext) -> tuple[Path, ...]:
        return (locate(input.file_path, ctx.cwd),)

    def specifier(self, input: ReadInput) -> str:
        return input.file_path

    async def run(self, input: ReadInput, ctx: ToolContext) -> ToolOutput:
        """Read, and note in ``ctx.files`` what was read. When cancelled, it stops within one chunk."""
        path = locate(input.file_path, ctx.cwd)
        found, output, partial = await in_thread(_read, path, ctx.cwd, input)
        state, known = found.state(partial=partial), ctx.files.get(found.path)
        if known is not None and not known.partial and state.digest and known.digest == state.digest:
            state = known  # all of these bytes were read before
        ctx.files[found.path] = state
        return output


def _read(path: Path, cwd: Path, input: ReadInput) -> tuple[Loaded, ToolOutput, bool]:
    """The file, the output, and whether that lacks any of the text."""
    found = load(path, cwd)
    media = media_type(found.head)
    if media is not None:
        return found, media_output(path, found, media), False
    window = LineWindow(first=max(input.offset or 1, 1), limit=input.limit or DEFAULT_LINES)
    if path.suffix.lower() == ".ipynb" and (view := _notebook(found)) is not None:
        return found, *_of_notebook(path, found, window, view)
    format = detect(found.head if found.data is None else found.data, complete=found.data is not None)
    if format is None:
        raise ToolRejected(
            f"{path} is a binary file ({binary_kind(found.head)}, {size_words(found.size)}). Read shows text, images "
            "and PDFs; inspect this one with Bash (file, strings, xxd, or the program it belongs to)."
        )
    codec = codecs.getincrementaldecoder(format.codec)("replace")
    decoder = io.IncrementalNewlineDecoder(codec, translate=True)
    ended = True
    for chunk in _chunks(found, path, cwd, skip=len(format.bom)):
        if window.full and found.data is None:
            # How many lines follow is told of files in memory; here it would cost reading on to the end.
            ended = False
            break
        window.feed(decoder.decode(chunk))
    if ended:
        window.feed(decoder.decode(b"", final=True))
        window.finish()
    text = _text(path, found, window, ended)
    if format.label:
        text += f"\n[The file is {format.label}; Edit and Write keep that.]"
    details = {
        "type": "text",
        "filePath": str(path),
        "startLine": window.first,
        "numLines": len(window.shown),
        "totalLines": window.total if ended else None,
    }
    return found, ToolOutput(text, details=details), window.first > 1 or not ended or window.more or window.cut


def _notebook(found: Loaded) -> str | None:
    """What is shown of a notebook; None if it is none, or a broken one, which is shown as the text that it is."""
    decoded = decode(found.data) if found.data is not None else None
    try:
        return show_notebook(parse_notebook(decoded[0])) if decoded is not None else None
    except NotNotebook:
        return None


def _of_notebook(path: Path, found: Loaded, window: LineWindow, view: str) -> tuple[ToolOutput, bool]:
    window.feed(view)
    window.finish()
    text = _text(path, found, window, ended=True)
    text += "\n[A notebook, shown by its cells; change one with NotebookEdit and its id.]"
    details = {"type": "notebook", "filePath": str(path), "startLine": window.first, "numLines": len(window.shown)}
    return ToolOutput(text, details=details), window.first > 1 or window.more or window.cut


def _chunks(found: Loaded, path: Path, cwd: Path, skip: int) -> Iterator[bytes]:
    if found.data is not None:
        for start in range(skip, len(found.data), CHUNK_BYTES):
            yield found.data[start : start + CHUNK_BYTES]
        return
    with open_regular(path, cwd) as file:
        try:
            file.seek(skip)
            while chunk := file.read(CHUNK_BYTES):
                trio.from_thread.check_cancelled()
                yield chunk
        except OSError as error:
            raise ToolError(f"Can't read {path}: {error.strerror or error}.") from error


@attrs.define
class LineWindow:
    """
    Picks the lines of a range out of a text that comes in pieces with ``\\n`` line ends.

    ``total`` counts the complete lines so far; ``full`` says that no further line will be shown. No more is held than
    what is shown, whatever the length of the text or of one line.
    """

    first: int
    limit: int
    shown: list[str] = attrs.field(factory=list)
    total: int = 0
    full: bool = False
    cut: bool = False
    _used: int = 0
    _head: str = ""
    _chars: int = 0

    @property
    def last(self) -> int:
        return self.first + len(self.shown) - 1

    @property
    def more(self) -> bool:
        """Whether lines follow those shown, as far as is known."""
        return self.total > self.last or (self.total == self.last and self._chars > 0)

    def feed(self, text: str) -> None:
        ends = text.count("\n")
        if self.full or self.total + ends + 1 < self.first:  # nothing here is shown: only count
            self._chars = len(text) - text.rfind("\n") - 1 + (0 if ends else self._chars)
            self.total += ends
            return
        *lines, rest = text.split("\n")
        for line in lines:
            self._extend(line)
            self._end()
        self._extend(rest)

    def finish(self) -> None:
        """The text is over: what follows its last line end, if anything, is a line too."""
        if self._chars:
            self._end()

    def _extend(self, piece: str) -> None:
        if self._chars < MAX_LINE_CHARS:
            self._head += piece[: MAX_LINE_CHARS - self._chars]
        self._chars += len(piece)

    def _end(self) -> None:
        self.total += 1
        if self.total >= self.first and not self.full:
            self._show()
        self._head, self._chars = "", 0

    def _show(self) -> None:
        line = self._head.replace("\0", "\ufffd")
        over = self._chars - MAX_LINE_CHARS
        if over > 0:
            line += f" [... {over:,} more characters of this line]"
        (entry,) = numbered([line], self.total)
        if self.shown and self._used + len(entry) + 1 > MAX_RESULT_CHARS:
            self.full = True
            return
        self.cut = self.cut or over > 0
        self.shown.append(entry)
        self._used += len(entry) + 1
        self.full = len(self.shown) >= self.limit


def _text(path: Path, found: Loaded, window: LineWindow, ended: bool) -> str:
    if not window.shown:
        if window.total == 0:
            return f"[{path} exists but is empty.]"
        lines = "1 line" if window.total == 1 else f"{window.total:,} lines"
        raise ToolRejected(
            f"Offset {window.first} is beyond the end of {path}, which has {lines}. Use an offset up to {window.total}."
        )
    notes: list[str] = []
    if window.more or not ended:
        whole = f"{window.total:,} lines" if ended else f"a file of {size_words(found.size)}"
        short = " (the result is limited in size)" if len(window.shown) < window.limit else ""
        notes.append(
            f"[Lines {window.first}-{window.last} of {whole}{short}. "
            f"Read on with offset={window.last + 1}, or find the right place with Grep.]"
        )
    if window.cut:
        notes.append("[Long lines were cut; see the rest of one with Bash (sed -n, cut -c).]")
    return "\n".join([*window.shown, *notes])
