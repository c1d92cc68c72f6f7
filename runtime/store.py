"""
The sessions that are kept: found, listed, named, deleted.

A listing reads the head and the tail of each journal, so that it costs the same for a long session as for a short
one. Everything here blocks: from Trio, call it in a thread.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import attrs
import orjson

from .errors import ConfigError, JournalError, JournalLocked
from .journal import JournalFile, project_slug
from .journal_search import parse_line, search_back
from .messages import JsonObject
from .store_line import is_response, prompt_of, time_of, title_of

__all__ = [
    "SessionInfo",
    "delete_session",
    "find_session",
    "journals",
    "keep_title",
    "latest_session",
    "list_sessions",
    "remove_expired",
    "rename_session",
    "title_line",
]

WINDOW_BYTES = 128 * 1024
"""What is read of a journal's head, and of its tail, for a listing."""

TITLE_LIMIT = 200
"""Characters of a title."""

LEAST_PREFIX = 4
"""Characters of an id that may stand for it: fewer are more likely a typing error than a choice."""


@attrs.frozen(kw_only=True)
class SessionInfo:
    """
    One session in a list.

    ``messages`` counts prompts and responses; with ``exact`` False it is estimated from a part of the journal.
    ``cwd`` is where it was begun.
    """

    id: str
    path: Path
    started: datetime
    last_used: datetime
    prompt: str
    title: str | None
    messages: int
    exact: bool
    size_bytes: int
    cwd: str


def journals(home: Path, cwd: Path | None = None) -> list[Path]:
    """The journals of all sessions, or of those of a folder, the one that was written last first."""
    folder = project_slug(cwd) if cwd is not None else "*"
    found: list[tuple[float, Path]] = []
    for path in (home / "projects").glob(f"{folder}/*.jsonl"):
        try:
            status = path.stat()
        except OSError:
            continue  # deleted meanwhile
        if _is_id(path.stem) and status.st_size:
            found.append((status.st_mtime, path))
    return [path for _time, path in sorted(found, reverse=True)]


def list_sessions(home: Path, cwd: Path | None = None) -> list[SessionInfo]:
    """All sessions, or those of a folder, the last used first. What can't be read is left out."""
    return [info for path in journals(home, cwd) if (info := _info(path)) is not None]


def latest_session(home: Path, cwd: Path) -> Path:
    """
    The journal that was written last in this folder.

    Raises:
        ConfigError: there is none.
    """
    found = journals(home, cwd)
    if not found:
        raise ConfigError("the session to continue", f"there is none for {cwd}", "begin one: atrio run PROMPT")
    return found[0]


def find_session(home: Path, text: str, cwd: Path | None = None) -> Path:
    """
    The journal of the session that ``text`` means: an id, the beginning of one, a title, or a journal's path.

    What belongs to ``cwd`` goes before what doesn't.

    Raises:
        ConfigError: there is none, or there are several.
    """
    if text.endswith(".jsonl") and Path(text).is_file():
        return Path(text).absolute()
    own = set(journals(home, cwd)) if cwd is not None else set()
    everywhere = journals(home)
    wanted = text.strip().lower()
    for matches in (_by_id, _by_title):
        found = [path for path in everywhere if matches(path, wanted)]
        found = [path for path in found if path in own] or found
        if len(found) > 1:
            names = ", ".join(path.stem for path in found[:5])
            raise ConfigError(f"the session {text!r}", f"it could be any of {names}", "give the whole id")
        if found:
            return found[0]
    raise ConfigError(f"the session {text!r}", "there is none with this id or name", "see atrio sessions list --all")


def _by_id(path: Path, wanted: str) -> bool:
    id = path.stem.lower()
    return id == wanted or (len(wanted) >= LEAST_PREFIX and id.startswith(wanted))


def _by_title(path: Path, wanted: str) -> bool:
    title = _title(path)
    return title is not None and title.lower() == wanted


def _title(path: Path) -> str | None:
    """The title that was given last, wherever in the journal that is."""
    try:
        with path.open("rb") as file:
            for _offset, line in search_back(file, b'"custom-title"', file.seek(0, 2)):
                value = parse_line(line)
                if value is not None and (title := title_of(value)) is not None:
                    return title or None
    except OSError:
        return None
    return None


def title_line(session_id: str, title: str) -> bytes:
    """The journal line that gives a session its title, as other readers of transcripts know it."""
    line = {"type": "custom-title", "customTitle": title, "sessionId": session_id}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def rename_session(path: Path, title: str) -> None:
    """
    Give a session a title. It must not be in use.

    Raises:
        ConfigError: the title is empty or too long.
        JournalLocked: somebody writes it.
        JournalError: it can't be written.
    """
    text = " ".join(title.encode("utf-8", "replace").decode().split())
    if not text or len(text) > TITLE_LIMIT:
        raise ConfigError("the title", f"it has {len(text)} characters", f"give one of 1 to {TITLE_LIMIT}")
    journal = JournalFile.open(path)
    try:
        journal.append(title_line(path.stem, text))
    finally:
        journal.close()


def keep_title(journal: JournalFile) -> None:
    """
    Give a long journal its title again, near its end, where listings look for it.

    Raises:
        JournalUnwritable: that failed.
    """
    info = _info(journal.path)
    if info is not None and info.title and not info.exact:
        journal.append(title_line(journal.path.stem, info.title))


def delete_session(path: Path) -> None:
    """
    Delete a session: its journal and the folder beside it, with results that were too long for the journal.

    Raises:
        JournalLocked: somebody writes it.
        JournalError, OSError: it can't be deleted.
    """
    # Locked, so that nobody resumes what is about to go.
    journal = JournalFile.open(path)
    try:
        folder = path.with_suffix("")
        if folder.is_symlink():
            folder.unlink()
        elif folder.is_dir():
            shutil.rmtree(folder)
        path.unlink(missing_ok=True)
    finally:
        journal.close()


def remove_expired(home: Path, days: int, now: datetime) -> list[Path]:
    """Delete the sessions that nobody has written for so many days; returns their journals. Never raises for one."""
    limit = (now - timedelta(days=days)).timestamp()
    gone: list[Path] = []
    for path in reversed(journals(home)):
        try:
            if path.stat().st_mtime >= limit:
                break
            delete_session(path)
        except (JournalLocked, JournalError, OSError):
            continue
        gone.append(path)
    return gone


def _is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def _info(path: Path) -> SessionInfo | None:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            whole = size <= 2 * WINDOW_BYTES
            head = list(_lines(file.read(size if whole else WINDOW_BYTES), first=True, last=whole))
            tail = head
            if not whole:
                file.seek(size - WINDOW_BYTES)
                tail = list(_lines(file.read(), first=False, last=True))
        modified = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None
    parts = head if whole else [*head, *tail]
    counted = _messages(parts)
    return SessionInfo(
        id=path.stem,
        path=path,
        started=next(filter(None, map(time_of, head)), modified),
        last_used=next(filter(None, map(time_of, reversed(tail))), modified),
        prompt=next(filter(None, map(prompt_of, head)), ""),
        title=next((title for line in (*reversed(tail), *reversed(head)) if (title := title_of(line))), None),
        messages=counted if whole else round(counted * size / (2 * WINDOW_BYTES)),
        exact=whole,
        size_bytes=size,
        cwd=next((cwd for line in head if isinstance(cwd := line.get("cwd"), str)), ""),
    )


def _lines(data: bytes, *, first: bool, last: bool) -> Iterator[JsonObject]:
    """The objects in a piece of a journal, but for those that its ends cut."""
    lines = data.split(b"\n")
    if not last:
        lines.pop()
    for number, line in enumerate(lines):
        if (first or number > 0) and line and (value := parse_line(line)) is not None:
            yield value


def _messages(lines: Iterable[JsonObject]) -> int:
    prompts, responses = 0, set()
    for line in lines:
        if prompt_of(line):
            prompts += 1
        elif (id := is_response(line)) is not None:
            responses.add(id)
    return prompts + len(responses)
