"""
The part of a search that runs in a process of its own: looking for a regular expression in files.

Python holds its global lock while it matches, and some expressions take for ever on some lines: in a process of
its own a search delays nothing else, and can be killed. Run as a script under ``python -I -S``, so it imports only
the standard library and nothing of atrio. ``argv[1]`` is a file with the `Job` in JSON; on standard output goes one
line of JSON for each file with a match, at once, and a last line with what is to say of the whole.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, Final, TypedDict

__all__ = ["Job", "Line", "search"]

BLOCK_BYTES: Final = 1 << 18

SNIFF_BYTES: Final = 8192
"""Where a NUL makes a file binary."""

LINE_CHARS: Final = 1 << 16
"""The rest of a longer line is not searched."""

MULTILINE_BYTES: Final = 1 << 24
"""Larger files are left out of a search over line ends: they'd have to be held in memory."""

SHOWN_CHARS: Final = 500
"""Of a line, around the match."""

LEAD_CHARS: Final = 100
"""Of these, before the match."""

BOMS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

Line = tuple[int, bool, str]
"""Number, whether it matches (else it is context), text."""


class Job(TypedDict):
    """What to search. ``files`` are paths, their bytes read as Latin-1; ``limit`` 0 is none; ``seconds`` from now."""

    pattern: str
    flags: int
    needle: str | None
    mode: str
    multiline: bool
    before: int
    after: int
    offset: int
    limit: int
    chars: int
    seconds: float
    files: list[str]


class Search:
    """One search; what it has counted so far."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.regex = re.compile(job["pattern"], job["flags"])
        self.deadline = time.monotonic() + job["seconds"]
        self.skip = job["offset"]
        self.left = job["limit"] or sys.maxsize
        self.chars = job["chars"]
        self.more = self.late = False
        self.binary = self.unreadable = self.large = 0

    @property
    def over(self) -> bool:
        self.late = self.late or time.monotonic() > self.deadline
        return self.more or self.late

    def run(self) -> Iterator[dict[str, object]]:
        for index, name in enumerate(self.job["files"]):
            if self.over:
                break
            try:
                found = self.file(name.encode("latin-1"))
            except OSError:
                self.unreadable += 1
                continue
            if found is not None:
                yield {"file": index, **found}
        yield {
            "end": True,
            "more": self.more,
            "late": self.late,
            "binary": self.binary,
            "unreadable": self.unreadable,
            "large": self.large,
        }

    def file(self, path: bytes) -> dict[str, object] | None:
        """What was found in one file; None if nothing that is to be told."""
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe must not block
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            head = stream.read(SNIFF_BYTES)
            bom, encoding = next(((bom, name) for bom, name in BOMS if head.startswith(bom)), (b"", "utf-8"))
            if encoding == "utf-8" and b"\0" in head:
                self.binary += 1
                return None
            stream.seek(len(bom))
            if not self.job["multiline"]:
                return self.collect(self.lines(stream, encoding))
            if os.fstat(descriptor).st_size > MULTILINE_BYTES:
                self.large += 1
                return None
            return self.collect(self.spans(stream.read(MULTILINE_BYTES).decode(encoding, "replace")))

    def collect(self, lines: Iterator[tuple[int, str, int]]) -> dict[str, object] | None:
        if self.job["mode"] == "content":
            rows = self.rows(lines)
            return {"lines": rows} if rows else None
        count = 0
        for _, _, at in lines:
            count += at >= 0
            if count and self.job["mode"] == "files_with_matches":
                break
        if not count:
            return None
        if self.skip:
            self.skip -= 1
            return None
        if not self.left:
            self.more = True
            return None
        self.left -= 1
        return {"count": count}

    def rows(self, lines: Iterator[tuple[int, str, int]]) -> list[Line]:
        """The matching lines with those around them."""
        rows: list[Line] = []
        before: deque[tuple[int, str]] = deque(maxlen=self.job["before"])
        after = 0
        for number, text, at in lines:
            if at >= 0:
                for earlier, context in before:
                    self.put(rows, (earlier, False, shorten(context, 0)))
                before.clear()
                self.put(rows, (number, True, shorten(text, at)))
                after = self.job["after"]
            elif after:
                self.put(rows, (number, False, shorten(text, 0)))
                after -= 1
            else:
                before.append((number, text))
            if self.more:
                break
        return rows

    def put(self, rows: list[Line], row: Line) -> None:
        if self.skip:
            self.skip -= 1
        elif self.left and self.chars > 0:
            rows.append(row)
            self.left -= 1
            self.chars -= len(row[2])
        else:
            self.more = True

    def lines(self, stream: BinaryIO, encoding: str) -> Iterator[tuple[int, str, int]]:
        """Each line with its number and where it matches (-1: not). Lines are searched one by one."""
        search, needle, wants_all = self.regex.search, self.job["needle"], bool(self.job["before"] or self.job["after"])
        number = 1
        for block in blocks(stream, encoding):
            if self.over:
                return
            if needle is not None and not wants_all and needle not in block:
                number += block.count("\n")
                continue
            parts = block.split("\n")
            if not parts[-1]:
                parts.pop()
            for count, part in enumerate(parts):
                text = part[:LINE_CHARS].removesuffix("\r")
                found = search(text)
                if found is not None:
                    yield number, text, found.start()
                elif wants_all:
                    yield number, text, -1
                number += 1
                if not count & 1023 and self.over:
                    return

    def spans(self, text: str) -> Iterator[tuple[int, str, int]]:
        """The same for a text that is searched as a whole: all lines that a match touches."""
        text = text.replace("\r\n", "\n")
        parts = text.removesuffix("\n").split("\n")
        starts: dict[int, int] = {}
        number, at = 0, 0
        for found in self.regex.finditer(text):
            number += text.count("\n", at, found.start())
            at = found.start()
            last = number + text.count("\n", at, max(at, found.end() - 1))
            for line in range(number, last + 1):
                starts.setdefault(line, at - text.rfind("\n", 0, at) - 1 if line == number else 0)
            if self.job["mode"] == "files_with_matches" or self.over:
                break
        for line, part in enumerate(parts if starts else ()):
            yield line + 1, part, starts.get(line, -1)


def blocks(stream: BinaryIO, encoding: str) -> Iterator[str]:
    """The text in pieces of whole lines; of a line longer than a block only the beginning."""
    decode = codecs.getincrementaldecoder(encoding)("replace").decode
    rest = ""
    while raw := stream.read(BLOCK_BYTES):
        text = decode(raw)
        cut = text.rfind("\n") + 1
        if cut:
            yield rest + text[:cut]
            rest = text[cut:]
        else:
            rest = (rest + text)[: LINE_CHARS + 1]
    rest += decode(b"", True)
    if rest:
        yield rest


def shorten(text: str, at: int) -> str:
    """At most `SHOWN_CHARS` of a line, with what matched."""
    if len(text) <= SHOWN_CHARS:
        return text
    start = max(0, min(at - LEAD_CHARS, len(text) - SHOWN_CHARS))
    end = start + SHOWN_CHARS
    left_out = len(text) - SHOWN_CHARS
    return (
        f"{'[...]' if start else ''}{text[start:end]}{'[...]' if end < len(text) else ''} ({left_out} more characters)"
    )


def search(path: str) -> Iterator[str]:
    """Do the job in the file at ``path``; each item is a line of JSON."""
    with open(path, encoding="ascii") as stream:
        job: Job = json.load(stream)
    for found in Search(job).run():
        yield json.dumps(found)


if __name__ == "__main__":
    for line in search(sys.argv[1]):
        print(line, flush=True)
