"""
Commands of one's own: ``commands/*.md`` in ``.atrio`` and ``.claude``, the user's and the project's.

A file in a subfolder is called by both names, ``/folder:file``. Its text is read when it is called.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from atrio.runtime.errors import ConfigError
from atrio.runtime.slash import expand
from atrio.tools.files import in_thread

from .front_matter import FrontMatter, parse_front_matter
from .instructions import repository_of
from .texts import Unreadable, markdown_below, printable, read_text

__all__ = ["CommandFile", "find_commands", "load_command"]

FILE_LIMIT_BYTES: Final = 256 * 1024
MAX_COMMANDS: Final = 500
DESCRIPTION_CHARS: Final = 200

_NAME: Final = re.compile(r"[A-Za-z0-9][\w.:-]{0,99}")


@attrs.frozen(kw_only=True)
class CommandFile:
    """
    What is known of a command without its text.

    ``allowed_tools``: rules that allow calls in the run that it starts; ``model``: that run's model.
    """

    name: str
    description: str
    path: Path
    argument_hint: str = ""
    allowed_tools: tuple[str, ...] = ()
    model: str | None = None


def find_commands(cwd: Path, home: Path, user_home: Path | None) -> tuple[tuple[CommandFile, ...], tuple[str, ...]]:
    """
    All commands, sorted by name, and warnings. Blocking.

    Of two with one name the user's own wins over the project's, the nearer folder over the one above, ``.atrio`` over
    ``.claude``.
    """
    warnings: list[str] = []
    commands: dict[str, CommandFile] = {}
    seen: set[str] = set()
    for folder in _folders(cwd, home, user_home):
        for path in markdown_below(folder):
            if (found := os.path.realpath(path)) in seen:
                continue
            seen.add(found)
            command = _read(path, folder, warnings)
            if command is not None and commands.setdefault(command.name, command) is not command:
                winner = printable(commands[command.name].path)
                warnings.append(f"{printable(path)}: hidden by the command of the same name, {winner}")
    if len(commands) > MAX_COMMANDS:
        warnings.append(f"commands: there are {len(commands)}; only the first {MAX_COMMANDS} by name are used")
    return tuple(sorted(commands.values(), key=lambda command: command.name)[:MAX_COMMANDS]), tuple(warnings)


def _folders(cwd: Path, home: Path, user_home: Path | None) -> Iterable[Path]:
    yield home / "commands"
    if user_home is not None:
        yield user_home / ".claude" / "commands"
    top = repository_of(cwd) or cwd
    for folder in (cwd, *cwd.parents):
        yield folder / ".atrio" / "commands"
        yield folder / ".claude" / "commands"
        if folder == top:
            return


def _read(path: Path, folder: Path, warnings: list[str]) -> CommandFile | None:
    file = read_text(path, FILE_LIMIT_BYTES)
    if file is None:
        return None
    where = printable(path)
    name = ":".join(path.relative_to(folder).with_suffix("").parts)
    if not _NAME.fullmatch(name):
        warnings.append(f"{where}: skipped, as {name[:80]!r} can't be typed as a command; rename the file")
        return None
    if isinstance(file, Unreadable):
        warnings.append(str(file))
        return None
    matter = parse_front_matter(file.text)
    warnings += (f"{where}: {problem}" for problem in matter.problems)
    return CommandFile(
        name=name,
        description=_description(matter),
        path=path,
        argument_hint=_hint(matter),
        allowed_tools=matter.items("allowed-tools"),
        model=matter.text("model"),
    )


def _hint(matter: FrontMatter) -> str:
    """As it was written: hints often look like YAML's lists."""
    hint = matter.text("argument-hint") or ""
    bare = isinstance(matter.fields.get("argument-hint", ""), str)
    return " ".join((hint if bare or not hint else f"[{hint}]").split())


def _description(matter: FrontMatter) -> str:
    """One line: as the front matter says, else the first line of the text."""
    lines = (line.strip("# \t") for line in matter.body.splitlines())
    text = " ".join((matter.text("description") or next(filter(None, lines), "")).split())
    return text if len(text) <= DESCRIPTION_CHARS else f"{text[: DESCRIPTION_CHARS - 3].rstrip()}..."


async def load_command(command: CommandFile, arguments: str) -> str:
    """
    The command's text with these arguments. Cancelled: nothing was changed.

    Raises:
        ConfigError: its file is gone, can't be used any more, or says nothing.
    """
    file = await in_thread(read_text, command.path, FILE_LIMIT_BYTES)
    if file is None:
        raise ConfigError(f"/{command.name}", f"its file {printable(command.path)} is gone", "bring it back")
    if isinstance(file, Unreadable):
        raise ConfigError(f"/{command.name}", str(file), "repair its file")
    text = expand(parse_front_matter(file.text).body, arguments)
    if not text.strip():
        raise ConfigError(f"/{command.name}", f"{printable(command.path)} holds no text", "write down what to do")
    return text
