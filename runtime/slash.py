"""
Slash commands, as text: what is one, and what a command's text becomes with its arguments. Pure.

``/name`` at the very beginning of a prompt is a command; a path is none.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

__all__ = ["NOT_RUN", "Invocation", "close_names", "expand", "parse_command", "split_arguments"]

_FIRST_WORD: Final = re.compile(r"\s*/([^\s/]+)(?:\s+(.*))?\s*", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.:-]{0,99}")
_PLACE: Final = re.compile(r"\$(?:(ARGUMENTS)\b|([1-9])(?!\d))")
_SHELL: Final = re.compile(r"!`[^`\n]+`")

NOT_RUN: Final = (
    "[The commands in !`...` above were not run and stand there as they were written. If their output matters, run "
    "them yourself.]"
)
"""Stands behind an expanded text that holds such commands: nobody was asked whether they may run."""


@attrs.frozen
class Invocation:
    """A command as it was typed: its name without the slash, and the rest of the prompt."""

    name: str
    arguments: str = ""


def parse_command(text: str) -> Invocation | None:
    """The command that a prompt calls; None if the prompt is a text like any other."""
    found = _FIRST_WORD.fullmatch(text)
    if found is None or not _NAME.fullmatch(found[1]):
        return None
    return Invocation(found[1], (found[2] or "").strip())


def split_arguments(arguments: str) -> Sequence[str]:
    """The arguments one by one, quotes as in a shell; at blanks, where the quotes don't match."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def expand(body: str, arguments: str) -> str:
    """
    A command's text with its arguments: all of them for ``$ARGUMENTS``, single ones for ``$1`` to ``$9``. Where the
    text has a place for none, they stand at its end. What arguments themselves hold is never expanded.
    """
    words = split_arguments(arguments)
    places = 0

    def fill(place: re.Match[str]) -> str:
        nonlocal places
        places += 1
        if place[1]:
            return arguments
        number = int(place[2])
        return words[number - 1] if number <= len(words) else ""

    text = _PLACE.sub(fill, body).strip()
    if arguments and not places:
        text = f"{text}\n\nARGUMENTS: {arguments}"
    return f"{text}\n\n{NOT_RUN}" if _SHELL.search(body) else text


def close_names(name: str, known: Iterable[str]) -> Sequence[str]:
    """Commands that may have been meant, best first: spelled alike, or of that name in some folder."""
    names = sorted(known)
    below = [each for each in names if name in each.split(":")]
    return list(dict.fromkeys((*difflib.get_close_matches(name, names, n=3, cutoff=0.7), *below)))[:3]
