"""
``atrio sessions``: what is kept, listed, shown, named, deleted, exported and searched.

What was asked for goes to stdout, all else to stderr. Exit codes: 0 done, 1 nothing found or nobody reads, 2 usage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from .config import Config
from .errors import ConfigError, JournalError
from .narration import printable
from .store import SessionInfo, delete_session, find_session, list_sessions, rename_session
from .store_export import export_session
from .store_search import search_sessions

__all__ = ["main"]

TITLE_WIDTH: Final = 60


def main(argv: Sequence[str]) -> int:
    """
    Run the command; returns the exit code.

    Raises:
        ConfigError: the words make no sense, or there is no such session, or it is in use.
    """
    given = _parser().parse_args(list(argv) or ["list"])
    cwd = Path(os.getcwd())
    home = Config.from_env(os.environ, cwd=cwd).home
    try:
        match given.command:
            case "list":
                return _list(home, None if given.all else cwd, as_json=given.json)
            case "show":
                return _write(export_session(find_session(home, given.session, cwd), "markdown"))
            case "export":
                return _export(find_session(home, given.session, cwd), given.format, given.output)
            case "rename":
                rename_session(find_session(home, given.session, cwd), given.title)
                return 0
            case "delete":
                return _delete([find_session(home, each, cwd) for each in given.session])
            case _:
                return _search(home, given.text, None if given.all else cwd)
    except JournalError as error:
        raise ConfigError("the session", str(error)) from error


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # it never returns
        raise ConfigError("atrio sessions", message, "see atrio sessions --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="atrio sessions", description="The sessions that are kept. SESSION: id, beginning, or title.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    listing = commands.add_parser("list", help="the sessions of this folder, the last used first")
    listing.add_argument("--all", action="store_true", help="of all folders")
    listing.add_argument("--json", action="store_true", help="one JSON object a line")
    show = commands.add_parser("show", help="the conversation, as text")
    show.add_argument("session")
    rename = commands.add_parser("rename", help="give a session a title, by which --resume finds it")
    rename.add_argument("session")
    rename.add_argument("title")
    delete = commands.add_parser("delete", help="delete sessions, and what belongs to them")
    delete.add_argument("session", nargs="+")
    export = commands.add_parser("export", help="write the conversation as a document")
    export.add_argument("session")
    export.add_argument("--format", choices=("markdown", "html"), default="markdown")
    export.add_argument("--output", "-o", metavar="FILE", help="a new file (else stdout)")
    search = commands.add_parser("search", help="find a text in the sessions of this folder")
    search.add_argument("text")
    search.add_argument("--all", action="store_true", help="of all folders")
    return parser


def _list(home: Path, cwd: Path | None, *, as_json: bool) -> int:
    found = list_sessions(home, cwd)
    if not found:
        where = f"for {cwd}; atrio sessions list --all shows those of other folders" if cwd is not None else "kept"
        print(f"atrio: there is no session {where}", file=sys.stderr)
        return 0
    return _write(_json_line(info) if as_json else _line(info, folder=cwd is None) for info in found)


def _line(info: SessionInfo, *, folder: bool) -> str:
    about = f"{'' if info.exact else '~'}{info.messages} messages"
    name = " ".join((info.title or info.prompt or "(no prompt)").split())
    name = name if len(name) <= TITLE_WIDTH else f"{name[: TITLE_WIDTH - 3]}..."
    parts = (info.id, _when(info.last_used), f"{about:>14}", f"{_size(info.size_bytes):>8}", printable(name))
    return "  ".join((*parts, printable(info.cwd)) if folder else parts) + "\n"


def _json_line(info: SessionInfo) -> str:
    value = {
        "id": info.id,
        "path": str(info.path),
        "cwd": info.cwd,
        "started": info.started.isoformat(),
        "last_used": info.last_used.isoformat(),
        "prompt": info.prompt,
        "title": info.title,
        "messages": info.messages,
        "exact": info.exact,
        "size_bytes": info.size_bytes,
    }
    return json.dumps(value) + "\n"


def _when(time: datetime) -> str:
    return f"{time.astimezone():%Y-%m-%d %H:%M}"


def _size(count: int) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count //= 1000
    return f"{count} GB"


def _delete(paths: Iterable[Path]) -> int:
    for path in dict.fromkeys(paths):
        try:
            delete_session(path)
        except OSError as error:
            raise ConfigError(f"the session {path.stem}", f"it can't be deleted: {error}") from error
    return 0


def _private(path: str, flags: int) -> int:
    """For its owner alone, like the session itself."""
    return os.open(path, flags, 0o600)


def _export(path: Path, format: str, output: str | None) -> int:
    pieces = export_session(path, "html" if format == "html" else "markdown")
    if output is None:
        return _write(pieces)
    try:
        # A new file: a typing error must not cost one that exists.
        with open(output, "x", encoding="utf-8", errors="replace", opener=_private) as file:
            file.writelines(pieces)
    except OSError as error:
        raise ConfigError("--output", f"{output} can't be written: {error.strerror}", "name a new file") from error
    return 0


def _search(home: Path, text: str, cwd: Path | None) -> int:
    found = 0

    def lines() -> Iterator[str]:
        nonlocal found
        for hit in search_sessions(home, text, cwd):
            found += 1
            when = _when(hit.time) if hit.time is not None else "?"
            yield f"{hit.path.stem}  {when}  {hit.role:<9}  {hit.uuid}  {printable(hit.excerpt)}\n"

    code = _write(lines())
    if not found:
        print("atrio: nothing found", file=sys.stderr)
    return code if found else 1


def _write(pieces: Iterable[str]) -> int:
    """To stdout, piece by piece; 1 when nobody reads any more."""
    try:
        for piece in pieces:
            data = piece.encode("utf-8", "replace")
            while data:
                data = data[os.write(1, data) :]
    except BrokenPipeError:
        return 1
    return 0
