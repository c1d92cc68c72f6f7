"""
Log lines for stderr: plain text for people, or one JSON object a line for collectors. Pure, but for the handler.

What libraries and atrio's own parts say through `logging` goes the same way (`LogHandler`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias, get_args

import orjson

from .narration import printable
from .wirejson import mend

__all__ = ["LOG_FORMATS", "Level", "LogFormat", "LogHandler", "format_line", "install", "utc_now"]

LogFormat: TypeAlias = Literal["text", "json"]
LOG_FORMATS: Final[tuple[LogFormat, ...]] = get_args(LogFormat)
Level: TypeAlias = Literal["debug", "info", "warning", "error"]

LINE_CHARS: Final = 8_000
"""Of one message; a line of a log is for reading, and collectors cut longer ones at a place of their own."""


def format_line(text: str, *, format: LogFormat, level: Level, source: str, now: datetime, prefix: str = "") -> bytes:
    """
    One line with its end, whatever ``text`` holds. ``now`` is UTC; ``source`` says which part speaks. ``prefix``
    stands before a text for people.
    """
    text = mend(" ".join(text.split())[:LINE_CHARS])
    if format == "json":
        time = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return orjson.dumps({"time": time, "level": level, "source": source, "message": text}) + b"\n"
    return f"{prefix}{printable(text)}\n".encode()


class LogHandler(logging.Handler):
    """Gives each record to ``write`` as (text, level, source). It never raises into the part that logs."""

    def __init__(self, write: Callable[[str, Level, str], object]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            if record.exc_info is not None and record.exc_info[1] is not None:
                text = f"{text}: {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
            self._write(text, _level(record.levelno), record.name)
        except Exception:
            self.handleError(record)


def _level(number: int) -> Level:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"


def install(handler: logging.Handler, *, debug: bool) -> Callable[[], None]:
    """Have what atrio's parts log go to ``handler``, with ``debug`` all of it. Returns what undoes that."""
    logger = logging.getLogger("atrio")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    logger.propagate = False

    def undo() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]

    return undo


def utc_now() -> datetime:
    """For lines that are written now."""
    return datetime.now(UTC)
