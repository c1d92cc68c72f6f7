"""
Removals that nobody means: of the whole disk, a home folder, a system folder, what the workspace lies in. Pure.

The words of a command are enough to see the accident (``rm -rf $BUILD/*`` with no BUILD, ``rm -rf ~ /tmp/x``), not
to stop somebody who hides it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from .rule_matching import command_readings

__all__ = ["critical_removal"]

REMOVERS: Final = frozenset({"rm", "rmdir", "shred", "unlink", "srm", "trash"})
MOVERS: Final = frozenset({"mv"})
FINDERS: Final = frozenset({"find", "fd", "fdfind"})
CHANGERS: Final = frozenset({"chmod", "chown", "chgrp", "setfacl"})
"""Recursively, these make a system as unusable as a removal does."""

FIND_REMOVES: Final = frozenset({"-delete", "rm", "unlink", "shred", "--exec", "-x"})

DISKS: Final = re.compile(r"(?:of=)?/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|mapper/|md|dm-)\S*")
DISK_WRITERS: Final = frozenset({"dd", "wipefs", "blkdiscard", "shred", "tee", "cp"})

VARIABLE: Final = re.compile(r"\$\{?(\w+)(?:[^}\w/]\w*)?\}?|\$\{[^}]*\}|\$\([^)]*\)|`[^`]*`")
EVERYTHING: Final = re.compile(r"/(?:\.?\*+|\.\[!?\.\]\*|\{[^/]*\})$")
"""The end of a path that names all that a folder holds."""

NESTING: Final = 4
"""Shells within shells that are looked into."""


def critical_removal(command: str, *, cwd: Path, roots: Iterable[Path]) -> str | None:
    """What of importance the command would remove as a whole; None: nothing that one could see."""
    home = Path(os.path.expanduser("~"))
    for tokens in _commands(command):
        for target in _targets(tokens):
            if found := _importance(target, cwd, home, tuple(roots)):
                return found
    return None


def _commands(command: str, depth: int = 0) -> Iterator[list[str]]:
    for reading in command_readings(command):
        try:
            tokens = shlex.split(reading)
        except ValueError:
            tokens = reading.replace('"', "").replace("'", "").split()
        if tokens:
            yield [os.path.basename(tokens[0]) or tokens[0], *tokens[1:]]
        if depth < NESTING:
            for token in tokens[1:]:
                if any(char.isspace() for char in token):  # what a shell or an eval is given to run
                    yield from _commands(token, depth + 1)


def _targets(tokens: list[str]) -> Iterator[str]:
    """What the command removes, as it is written."""
    name, arguments = tokens[0], tokens[1:]
    if name in DISK_WRITERS or name.startswith("mkfs"):
        yield from (argument for argument in arguments if DISKS.fullmatch(argument))
    operands = [argument for argument in arguments if not argument.startswith("-")]
    if name in REMOVERS:
        yield from operands
    elif name in MOVERS:
        yield from operands[:-1]
    elif name in FINDERS and not FIND_REMOVES.isdisjoint(map(os.path.basename, arguments)):
        yield from _places(arguments)
    elif name in CHANGERS and any(re.fullmatch(r"-\w*R\w*|--recursive", argument) for argument in arguments):
        yield from operands[1:]
    elif name == "rsync" and any(argument.startswith("--del") for argument in arguments):
        yield from operands[-1:]


def _places(arguments: list[str]) -> Iterator[str]:
    """What is in the folders where ``find`` looks; a test on names makes it a search for something smaller."""
    if any(
        re.fullmatch(r"-i?(?:name|path|regex|wholename)|-newer\w*|-[acm](?:time|min)|-size|-empty", a)
        for a in arguments
    ):
        return
    for argument in arguments:
        if argument.startswith(("-", "(", "!")):
            return
        yield f"{argument}/*"


def _importance(target: str, cwd: Path, home: Path, roots: tuple[Path, ...]) -> str | None:
    if DISKS.fullmatch(target):
        return f"the contents of the disk {target.removeprefix('of=')}"
    plain = VARIABLE.sub(
        lambda found: str(home) if found[1] == "HOME" else str(cwd) if found[1] == "PWD" else "", target
    )
    if not plain:
        return None
    if plain == "~" or plain.startswith("~/"):
        plain = f"{home}{plain[1:]}"
    elif re.match(r"~[\w-]+(?:/|$)", plain):
        plain = os.path.expanduser(plain)
    holder = EVERYTHING.sub("/", plain)
    whole = holder != plain
    # Two slashes in front are a root of its own for POSIX; not on any system that this runs on.
    path = Path(re.sub(r"^/+", "/", os.path.normpath(cwd / holder)))
    if path == Path("/"):
        return "the whole file system"
    if path == home or path in home.parents:
        return f"the home folder {home}"
    if len(path.parts) == 2 and path not in (Path("/tmp"), *roots):
        return f"the system folder {path}"
    above = next((root for root in roots if path in root.parents or (path == root and not whole)), None)
    return f"the workspace {above}" if above is not None else None
