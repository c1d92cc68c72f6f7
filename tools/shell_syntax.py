"""
What can be told of a bash command without running it. Pure, and never raises.

Every answer errs on the safe side: what isn't understood is not read-only, and has no list of commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from .read_only import is_harmless
from .shell_words import NotUnderstood, Redirect, Script, SimpleCommand, Word, parse

__all__ = ["is_read_only", "last_command", "simple_commands"]

_SINKS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
"""Files that may be written without changing anything."""

_NEEDS_NO_QUOTES: Final = re.compile(r"[\w@%+=:,./^~!-]+", re.ASCII)


def is_read_only(command: str) -> bool:
    """Whether ``command`` surely changes nothing, so that it may run beside others."""
    script = _parse(command)
    if script is None or script.background:
        return False
    return all(
        all(_changes_nothing(redirect) for redirect in simple.redirects) and is_harmless(simple.words)
        for simple in script.all_commands
    )


def simple_commands(command: str) -> tuple[str, ...] | None:
    """
    The simple commands that ``command`` is made of, those in substitutions included; None where that can't be told.

    They are written in one way, so that rules can be matched: single blanks, no needless quotes, arguments that
    expand as they stand. Never empty. An assignment, and a redirection that may write a file or reach the network,
    count as commands of their own, like ``PATH=.`` and ``> notes.txt``: a rule for ``git diff *`` does not cover them.
    """
    script = _parse(command)
    if script is None:
        return None
    if any(_name_is_unknown(simple) for simple in script.all_commands):
        return None
    texts: list[str] = []
    for simple in script.all_commands:
        assignments, words = _split_assignments(simple.words)
        texts += map(_show, assignments)
        shown = [_show(word) for word in words]
        shown += [_show_redirect(redirect) for redirect in simple.redirects if _belongs_to_command(redirect)]
        if shown:
            texts.append(" ".join(shown))
        texts += [_show_redirect(redirect) for redirect in simple.redirects if _stands_alone(redirect)]
    return tuple(texts) or None


def last_command(command: str) -> str:
    """
    The simple command whose exit status is that of ``command``, without assignments and redirections.

    Empty where that can't be told, and where ``!`` turns the status around.
    """
    script = _parse(command)
    if script is None or not script.commands or script.background or script.commands[-1].negated:
        return ""
    return " ".join(map(_show, _split_assignments(script.commands[-1].words)[1]))


def _parse(command: str) -> Script | None:
    try:
        script = parse(command)
    except NotUnderstood:
        return None
    return script if script.commands else None


def _split_assignments(words: Sequence[Word]) -> tuple[Sequence[Word], Sequence[Word]]:
    """The assignments in front, and the command itself."""
    count = next((index for index, word in enumerate(words) if not word.is_assignment), len(words))
    return words[:count], words[count:]


def _name_is_unknown(simple: SimpleCommand) -> bool:
    words = _split_assignments(simple.words)[1]
    return bool(words) and not words[0].fixed


def _reaches_network(redirect: Redirect) -> bool:
    """bash opens a connection for ``/dev/tcp/host/port``."""
    return (
        not redirect.only_duplicates
        and redirect.operator != "<<<"
        and (not redirect.target.fixed or redirect.target.text.startswith(("/dev/tcp/", "/dev/udp/")))
    )


def _changes_nothing(redirect: Redirect) -> bool:
    if redirect.writes:
        return redirect.target.fixed and redirect.target.text in _SINKS
    return not _reaches_network(redirect)


def _stands_alone(redirect: Redirect) -> bool:
    return not _changes_nothing(redirect)


def _belongs_to_command(redirect: Redirect) -> bool:
    return redirect.operator in ("<", "<<<") and _changes_nothing(redirect)


def _show(word: Word) -> str:
    if not word.fixed or word.raw in ("[", "]"):
        return word.raw
    return word.text if _NEEDS_NO_QUOTES.fullmatch(word.text) else shlex.quote(word.text)


def _show_redirect(redirect: Redirect) -> str:
    return f"{redirect.operator} {_show(redirect.target)}"
