"""
The shell commands that are known to change nothing, and with which arguments. Pure.

Whoever adds one checks that no option of it writes a file, runs a program or reaches the network, and that options
can't hide in a bundle (``-no`` for ``-n -o``), an abbreviation (``--out``) or an expansion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from .shell_words import Word

__all__ = ["is_harmless"]

Words: TypeAlias = Sequence[Word]
Check: TypeAlias = Callable[[Words], bool]


def is_harmless(words: Words) -> bool:
    """Whether this simple command (its words, without redirections) surely changes nothing."""
    if not words:
        return True
    name = words[0]
    check = COMMANDS.get(name.text) if name.fixed else None
    return check is not None and check(words[1:])


def _anything(arguments: Words) -> bool:
    return True


def _nothing(arguments: Words) -> bool:
    return not arguments


def _settled(word: Word) -> bool:
    """It can't turn into an option: neither a variable nor a file's name starts it."""
    return not word.expands and (not word.globs or word.raw[0].isalnum() or word.raw[0] in "./_")


def _without(pattern: str) -> Check:
    """No argument matches ``pattern`` from its start, or could come to."""
    forbidden = re.compile(pattern)

    def check(arguments: Words) -> bool:
        return all(_settled(word) and not forbidden.match(word.text) for word in arguments)

    return check


def _only(pattern: str) -> Check:
    """All arguments are known and match ``pattern`` as a whole."""
    allowed = re.compile(pattern)

    def check(arguments: Words) -> bool:
        return all(word.fixed and allowed.fullmatch(word.text) for word in arguments)

    return check


def _one_file(arguments: Words) -> bool:
    """For those that write to their second one."""
    return all(word.fixed for word in arguments) and sum(word.text[:1] != "-" for word in arguments) <= 1


def _date(arguments: Words) -> bool:
    free = False  # the text to read a date from
    for word in arguments:
        if free:
            free = False
        elif not word.fixed:
            return False
        elif word.text in ("-d", "--date", "-r", "--reference"):
            free = True
        elif not re.fullmatch(
            r"\+.*|-[uR]|--utc|--date=.*|-I\w*|--iso-8601(=\w+)?|--rfc-\w+(=\w+)?", word.text, re.DOTALL
        ):
            return False
    return True


def _sed(arguments: Words) -> bool:
    """Only ``sed -n 10,20p files``: its other commands write files and run programs."""
    texts = [word.text for word in arguments]
    if len(texts) < 2 or texts[0] != "-n" or not re.fullmatch(r"\d+(,(\d+|\$))?p", texts[1]):
        return False
    return arguments[1].fixed and all(_settled(word) and word.text[:1] != "-" for word in arguments[2:])


def _command(arguments: Words) -> bool:
    return bool(arguments) and arguments[0].fixed and arguments[0].text in ("-v", "-V")


_LONG_O: Final = r"--o(?!neline$|bjects$|thers$|urs$)"
"""``--output`` writes a file and git takes its abbreviations; these four begin alike and don't."""

_git_any: Final = _without(_LONG_O)
_git_branch: Final = _only(r"-a|-r|-v|-vv|--all|--remotes|--list|--show-current|--no-color")
_git_list: Final = _only(r"-l|--list|-n\d*")


def _git_first(names: str, rest: Check = _git_any) -> Check:
    """The first argument is one of ``names``, without which the subcommand changes something."""
    allowed = frozenset(names.split())

    def check(arguments: Words) -> bool:
        return bool(arguments) and arguments[0].fixed and arguments[0].text in allowed and rest(arguments[1:])

    return check


_GIT_READERS: Final = """
    status log diff show rev-parse ls-files ls-tree blame describe shortlog rev-list merge-base name-rev count-objects
    cat-file
"""

GIT: Final[Mapping[str, Check]] = {
    **dict.fromkeys(_GIT_READERS.split(), _git_any),
    "branch": _git_branch,
    "tag": _git_list,
    "remote": _only(r"-v|--verbose"),
    "stash": _git_first("list show"),
    "config": _git_first("--get --get-all --get-regexp --list -l", _only(r"[\w.*-]+")),
}


def _git(arguments: Words) -> bool:
    rest = list(arguments)
    while rest and rest[0].fixed:
        name = rest.pop(0).text
        if name == "-C" and rest and rest[0].fixed:
            del rest[0]
        elif name not in ("--no-pager", "-P"):
            check = GIT.get(name)
            return check is not None and check(rest)
    return False


_READERS: Final = """
    cat head tail wc ls pwd cd echo stat du df cut tr grep egrep fgrep which type basename dirname realpath readlink
    id whoami uname nproc arch seq true false sleep ps uptime free md5sum sha1sum sha256sum cksum comm diff cmp nl od
    hexdump strings column fold rev tac jq paste join printenv
"""

COMMANDS: Final[Mapping[str, Check]] = {
    **dict.fromkeys(_READERS.split(), _anything),
    "command": _command,
    "date": _date,
    "env": _nothing,
    "file": _without(r"-[^-]*C|--c"),
    "find": _without(r"-(exec|ok|delete|fprint|fls)"),
    "git": _git,
    "hostname": _nothing,
    "printf": _without(r"-v"),
    "rg": _without(r"--pre|--hostname"),
    "sed": _sed,
    "sort": _without(r"-[^-]*[oT]|--o|--co|--t"),
    "test": _without(r"-[vR]"),
    "[": _without(r"-[vR]"),
    "tree": _without(r"-[^-]*[oR]|--o"),
    "uniq": _one_file,
}
