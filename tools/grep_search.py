"""The process that looks into files for `Grep`: starting it, reading its findings, ending it in time."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from atrio.runtime.errors import ToolError

from . import grep_child
from .process import run_command
from .walk import SEARCH_LIMIT

__all__ = ["Found", "Hit", "search_files"]

RESULT_CHARS: Final = 40_000
"""Of matching lines in one result: below what would be moved into a file."""

OUTPUT_BYTES: Final = 4_000_000
"""What is kept of the process's output at most; it bounds itself far below that."""

PATIENCE: Final = 1.0
"""Seconds that it gets beyond its own limit to end by itself, with what it has."""


@attrs.frozen(kw_only=True)
class Hit:
    """A file with matches: its place in the list, how many lines match (count modes), which ones (content mode)."""

    file: int
    count: int = 0
    lines: list[tuple[int, bool, str]] = attrs.field(factory=list)


@attrs.frozen(kw_only=True)
class Found:
    """
    What a search came to.

    ``more``: the limit was reached. ``late``: the time was up. The numbers count files that were not searched.
    """

    hits: tuple[Hit, ...] = ()
    more: bool = False
    late: bool = False
    binary: int = 0
    unreadable: int = 0
    large: int = 0


async def search_files(
    paths: Sequence[str],
    regex: re.Pattern[str],
    *,
    mode: str,
    multiline: bool,
    before: int,
    after: int,
    offset: int,
    limit: int,
) -> Found:
    """
    Look for ``regex`` in the files, in their order. Raises `ToolError` if the search process can't do it.

    When cancelled, the process is gone when the cancellation goes on.
    """
    if not paths:
        return Found()
    job: grep_child.Job = {
        "pattern": regex.pattern,
        "flags": regex.flags,
        "needle": _needle(regex),
        "mode": mode,
        "multiline": multiline,
        "before": before,
        "after": after,
        "offset": offset,
        "limit": limit,
        "chars": RESULT_CHARS,
        "seconds": SEARCH_LIMIT,
        "files": [],
    }
    descriptor, name = tempfile.mkstemp(prefix="atrio-grep-", suffix=".json")
    os.close(descriptor)
    try:
        await trio.to_thread.run_sync(_write_job, name, job, paths)
        return await _run(name)
    finally:
        os.unlink(name)


def _write_job(name: str, job: grep_child.Job, paths: Sequence[str]) -> None:
    job["files"] = [os.fsencode(path).decode("latin-1") for path in paths]
    with open(name, "w", encoding="ascii") as stream:
        json.dump(job, stream)


async def _run(job_file: str) -> Found:
    if not sys.executable:
        raise ToolError("Searching needs a Python interpreter, and this program has none; use Bash with grep instead.")
    output = bytearray()

    async def take(chunk: bytes) -> None:
        if len(output) < OUTPUT_BYTES:
            output.extend(chunk)

    ended = None
    with trio.move_on_after(SEARCH_LIMIT + PATIENCE):
        argv = [sys.executable, "-I", "-S", grep_child.__file__, job_file]
        ended = await run_command(argv, cwd=Path(job_file).parent, env=dict(os.environ), on_output=take, grace=PATIENCE)
    found, rest = _read(bytes(output))
    if ended is None:  # it is stuck in one match
        return attrs.evolve(found, late=True)
    if ended.status != 0:
        why = rest[-1] if rest else f"it was ended by signal {ended.signal}"
        raise ToolError(f"The search process failed: {why}. Try a simpler pattern, or fewer files.")
    return found


def _read(output: bytes) -> tuple[Found, list[str]]:
    """The findings, and the lines that are none."""
    hits: list[Hit] = []
    rest: list[str] = []
    summary: dict[str, int] = {}
    for line in output.decode("utf-8", "replace").splitlines():
        try:
            item = json.loads(line)
        except ValueError:
            rest.append(line)
            continue
        if not isinstance(item, dict):
            rest.append(line)
        elif "end" in item:
            summary = item
        else:
            lines = [(number, is_match, text) for number, is_match, text in item.get("lines", ())]
            hits.append(Hit(file=item["file"], count=item.get("count", 0), lines=lines))
    found = Found(
        hits=tuple(hits),
        more=bool(summary.get("more")),
        late=bool(summary.get("late")),
        binary=summary.get("binary", 0),
        unreadable=summary.get("unreadable", 0),
        large=summary.get("large", 0),
    )
    return found, rest


def _needle(regex: re.Pattern[str]) -> str | None:
    """The text that the pattern stands for, if it is plain: blocks without it need no closer look."""
    if regex.flags & re.IGNORECASE:
        return None
    plain = re.sub(r"\\([^\w\s])", r"\1", regex.pattern)
    return plain if re.escape(plain) == regex.pattern or not re.search(r"[\\.^$*+?{}\[\]|()]", regex.pattern) else None
