"""
Jupyter notebooks as text: which part of the file each cell is, how cells are written, how they are shown. Pure.

A change replaces the text of one cell; every other byte of the file stays as it is, whatever its fields, order,
indentation and line ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from atrio.runtime.messages import JsonObject

from .output import TextCleaner

__all__ = ["Cell", "NotNotebook", "Notebook", "parse_notebook", "show_notebook", "source_value"]

OUTPUT_CHARS: Final = 10_000
"""Of one output, its head and tail."""

_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")


class NotNotebook(ValueError):
    """The text is no notebook that can be worked with; the message says why."""


@attrs.frozen(kw_only=True)
class Cell:
    """One cell: its JSON, and where in the file's text that is."""

    index: int
    value: JsonObject
    start: int
    end: int

    @property
    def label(self) -> str:
        """The id by which the model names it; older notebooks have none, so there the place counts."""
        id = self.value.get("id")
        return _valid(id) if isinstance(id, str) and id else f"cell-{self.index}"

    @property
    def kind(self) -> str:
        return _valid(str(self.value.get("cell_type", "raw")))

    @property
    def source(self) -> str:
        return _joined(self.value.get("source"))


@attrs.frozen(kw_only=True)
class Notebook:
    """
    A notebook's text, its cells, and how it is written.

    ``inside`` is the place behind the bracket that begins the list of cells. ``indent`` is None where all is on one
    line; ``prefix`` is what stands before each line of a cell.
    """

    text: str
    value: JsonObject
    cells: tuple[Cell, ...]
    inside: int
    indent: str | None
    prefix: str
    newline: str
    spaced: bool
    ascii: bool

    @property
    def has_ids(self) -> bool:
        """Whether cells have to have an id: from format 4.5 on."""
        major, minor = self.value.get("nbformat"), self.value.get("nbformat_minor")
        return isinstance(major, int) and isinstance(minor, int) and (major, minor) >= (4, 5)

    @property
    def language(self) -> str:
        metadata = self.value.get("metadata")
        info = metadata.get("language_info") if isinstance(metadata, dict) else None
        name = info.get("name") if isinstance(info, dict) else None
        return _valid(name) if isinstance(name, str) else "python"

    def find(self, label: str) -> Cell | None:
        """The cell of this id, or of this place (``cell-3``, or just ``3``)."""
        for cell in self.cells:
            if "id" in cell.value and cell.label == label:
                return cell
        place = re.fullmatch(r"(?:cell-)?(\d{1,9})", label)
        index = int(place[1]) if place else -1
        return self.cells[index] if 0 <= index < len(self.cells) else None

    def replaced(self, cell: Cell, value: JsonObject) -> str:
        """The file's text with another cell in the place of this one."""
        return self.text[: cell.start] + self._written(value) + self.text[cell.end :]

    def inserted(self, after: Cell | None, value: JsonObject) -> str:
        """The file's text with a cell more; at the beginning with ``after`` None."""
        written, lead = self._written(value), f"{self.newline}{self.prefix}" if self.indent is not None else ""
        if after is not None:
            gap = lead or (" " if self.spaced else "")
            return f"{self.text[: after.end]},{gap}{written}{self.text[after.end :]}"
        rest = self.text[self.inside :]
        if self.cells:
            gap = lead or (" " if self.spaced else "")
            first = self.cells[0].start
            return f"{self.text[:first]}{written},{gap}{self.text[first:]}"
        tail = f"{self.newline}{self.prefix.removesuffix(self.indent)}" if self.indent is not None else ""
        return f"{self.text[: self.inside]}{lead}{written}{tail}{rest[_skip(rest, 0) :]}"

    def deleted(self, cell: Cell) -> str:
        """The file's text without this cell."""
        if cell.index + 1 < len(self.cells):  # with the comma and the space up to the next one
            return self.text[: cell.start] + self.text[self.cells[cell.index + 1].start :]
        if cell.index:  # with the comma before it
            return self.text[: self.cells[cell.index - 1].end] + self.text[cell.end :]
        after = _SPACE.match(self.text, cell.end)
        return self.text[: self.inside] + self.text[after.end() if after else cell.end :]

    def _written(self, value: JsonObject) -> str:
        separators = (",", ": ") if self.indent is not None else (", ", ": ") if self.spaced else (",", ":")
        text = json.dumps(value, indent=self.indent, separators=separators, ensure_ascii=self.ascii)
        return text.replace("\n", f"{self.newline}{self.prefix}")


def parse_notebook(text: str) -> Notebook:
    """The notebook that ``text`` is. Raises `NotNotebook`."""
    try:
        value = json.loads(text)
        spans = list(_cell_spans(text)) if isinstance(value, dict) else []
    except (ValueError, RecursionError) as error:
        raise NotNotebook(f"it is no valid JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("cells"), list) or not spans:
        older = isinstance(value, dict) and "worksheets" in value
        why = "it has the format of 2013; convert it with Bash (jupyter nbconvert --to notebook)" if older else ""
        raise NotNotebook(why or "it has no list of cells")
    (inside, _), *places = spans
    cells = tuple(
        Cell(index=index, value=cell, start=start, end=end)
        for index, (cell, (start, end)) in enumerate(zip(value["cells"], places, strict=True))
    )
    if not all(isinstance(cell.value, dict) for cell in cells):
        raise NotNotebook("one of its cells is no JSON object")
    return _with_form(text, value, cells, inside)


def _with_form(text: str, value: JsonObject, cells: tuple[Cell, ...], inside: int) -> Notebook:
    found = re.match(r"\s*\{(\r?\n)([ \t]*)", text)
    indent = found[2] if found else None
    return Notebook(
        text=text,
        value=value,
        cells=cells,
        inside=inside,
        indent=indent,
        prefix=2 * indent if indent else "",
        newline=found[1] if found else "",
        spaced=re.search(r'"\s*: ', text[:10_000]) is not None,
        ascii=text.isascii() and "\\u" in text,
    )


def _cell_spans(text: str) -> Iterator[tuple[int, int]]:
    """The place of the first character within the list of cells (twice), then from where to where each cell is."""
    spans: list[tuple[int, int]] = []
    for key, start in _members(text):
        if key == "cells" and text[start] == "[":  # of two keys of one name the last one counts, as for any reader
            spans = [(start + 1, start + 1), *_items(text, start)]
    yield from spans


def _members(text: str) -> Iterator[tuple[str, int]]:
    """Each key of the object that ``text`` is, and where its value begins. The text is valid JSON."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        yield key, start
        _, at = _DECODER.raw_decode(text, start)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _items(text: str, start: int) -> Iterator[tuple[int, int]]:
    """From where to where each item of the list at ``start`` is."""
    at = _skip(text, start + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        yield at, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def source_value(source: str, like: object) -> str | list[str]:
    """A source in the form of another: one text, or (as most notebooks have it) its lines."""
    return source if isinstance(like, str) else source.splitlines(keepends=True)


# --- for the model --------------------------------------------------------------------------------


def show_notebook(notebook: Notebook) -> str:
    """All cells with their ids, sources and outputs, as lines of text."""
    if not notebook.cells:
        return "[This notebook has no cells.]\n"
    return "".join(f"{part}\n" for cell in notebook.cells for part in _shown(cell, notebook.language))


def _shown(cell: Cell, language: str) -> Iterator[str]:
    count = cell.value.get("execution_count")
    ran = f" run={count}" if isinstance(count, int) else ""
    kind = f"{cell.kind} {language}" if cell.kind == "code" else cell.kind
    yield f"[cell {cell.label}: {kind}{ran}]"
    if cell.source:
        yield _valid(cell.source).removesuffix("\n")
    outputs = cell.value.get("outputs")
    if isinstance(outputs, list):
        texts = [text for output in outputs if isinstance(output, dict) for text in _output(output)]
        if texts:
            yield f"[output of {cell.label}]"
            yield from texts
    yield ""


def _output(output: Mapping[str, Any]) -> Iterator[str]:
    match output.get("output_type"):
        case "stream":
            yield _clip(_joined(output.get("text")))
        case "error":
            traceback = output.get("traceback")
            text = "\n".join(map(str, traceback)) if isinstance(traceback, list) else ""
            yield _clip(text or f"{output.get('ename')}: {output.get('evalue')}")
        case _:
            data = output.get("data")
            if isinstance(data, dict):
                yield from _bundle(data)


def _bundle(data: Mapping[str, Any]) -> Iterator[str]:
    """One result in several forms: the plainest is shown, others are named."""
    for kind in ("text/plain", "text/markdown", "text/latex", "application/json", "text/html"):
        if kind in data:
            value = data[kind]
            plain = isinstance(value, str | list)
            yield _clip(_joined(value) if plain else json.dumps(value, ensure_ascii=False))
            break
    for kind, value in data.items():
        if kind.startswith("image/"):
            yield f"[{_valid(kind)}, {len(_joined(value)):,} characters: not shown]"


def _valid(text: str) -> str:
    """JSON may hold half a surrogate pair, which no text for the model may."""
    return text.encode("utf-8", "replace").decode()


def _joined(value: object) -> str:
    """Texts in notebooks are one string or a list of lines."""
    if isinstance(value, str):
        return value
    return "".join(part for part in value if isinstance(part, str)) if isinstance(value, Sequence) else ""


def _clip(text: str) -> str:
    text = TextCleaner().feed(text.encode("utf-8", "replace"), final=True).rstrip("\n")
    if len(text) <= OUTPUT_CHARS:
        return text
    half = OUTPUT_CHARS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"
