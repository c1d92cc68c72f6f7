"""
Which files a shell command reads and writes, as far as its words tell. Only asks which files exist.

There are two questions: whether a command surely does nothing but edit files that it names (`edited_paths`), for
modes that allow edits, and which files a command may touch (`touched_paths`), for rules that forbid some.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from .paths import locate, real_path
from .rule_matching import command_readings
from .shell_words import NotUnderstood, SimpleCommand, parse

__all__ = ["Touched", "changes_shell", "edited_paths", "touched_paths"]

# --- surely an edit -------------------------------------------------------------------------------

FLAGS: Final[Mapping[str, str]] = {
    "mkdir": r"-[pv]+|--parents|--verbose",
    "rmdir": r"-[pv]+|--parents|--verbose",
    "touch": r"-[acm]+|--no-create",
    "mv": r"-[finuv]+|--force|--no-clobber|--update|--verbose",
    "cp": r"-[finuvp]+|--force|--no-clobber|--update|--verbose",
    "sed": r"-[Ern]+|--regexp-extended|--quiet",
}
"""The options that neither take an argument of their own nor make the command do something else."""

SED_SCRIPT: Final = re.compile(
    r"(?:\d+(?:,(?:\d+|\$))?)?(?:d|s([/|#,])(?:(?!\1)[^\\\n]|\\[^\n])*\1(?:(?!\1)[^\\\n]|\\[^\n])*\1[gpiI0-9]*)"
)
"""One deletion or substitution: other commands of sed, and the flags ``e`` and ``w``, run programs and write files."""

_CHANGES_SHELL: Final = """
    cd pushd popd command builtin eval source . exec alias unalias hash enable set shopt trap export declare typeset
    local readonly unset read mapfile readarray printf getopts let
"""
CHANGES_SHELL: Final = frozenset(_CHANGES_SHELL.split())
"""After these a name may mean another program, and a path another place."""


def changes_shell(part: str) -> bool:
    """Whether what comes after this simple command may mean something else than its words say."""
    simple = _simple(part)
    return simple is None or not simple.words or simple.words[0].is_assignment or simple.words[0].text in CHANGES_SHELL


def edited_paths(part: str, cwd: Path) -> tuple[Path, ...] | None:
    """
    All paths that this simple command reads and writes, if it surely does nothing but edit files in ordinary ways.

    None if that isn't sure. The text is one of `simple_commands`; a redirection is a command of its own. The paths
    keep their ``..``, as the kernel follows links before it goes up.
    """
    simple = _simple(part)
    if simple is None or not all(word.fixed for word in simple.words):
        return None
    if not simple.words:
        return _redirected(simple, cwd)
    name = simple.words[0].text
    if simple.redirects or name not in FLAGS:
        return None
    options, operands = _split([word.text for word in simple.words[1:]])
    if name == "sed":
        return _sed_edits(options, operands, cwd)
    if not operands or not all(re.fullmatch(FLAGS[name], option) for option in options):
        return None
    paths = [cwd / operand for operand in operands]
    if name in ("mv", "cp"):
        if len(paths) < 2:
            return None
        # In a folder, the source's own name is what is written; that may be a link to somewhere else.
        paths += [paths[-1] / source.name for source in paths[:-1]]
    return tuple(paths)


def _simple(part: str) -> SimpleCommand | None:
    try:
        script = parse(part)
    except NotUnderstood:
        return None
    if script.nested or script.background or len(script.commands) != 1:
        return None
    return script.commands[0]


def _redirected(simple: SimpleCommand, cwd: Path) -> tuple[Path, ...] | None:
    targets = [redirect.target for redirect in simple.redirects if redirect.writes]
    if len(targets) != len(simple.redirects) or not all(target.fixed and target.text for target in targets):
        return None
    return tuple(cwd / target.text for target in targets)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Options and operands, as GNU programs tell them apart."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [argument for argument in arguments[:end] if argument.startswith("-") and argument != "-"]
    operands = [argument for argument in arguments[:end] if argument not in options]
    return options, operands + arguments[end + 1 :]


def _sed_edits(options: list[str], operands: list[str], cwd: Path) -> tuple[Path, ...] | None:
    in_place = [option for option in options if option in ("-i", "--in-place")]
    others = [option for option in options if option not in in_place]
    if not in_place or not all(re.fullmatch(FLAGS["sed"], option) for option in others):
        return None
    if len(operands) < 2 or not SED_SCRIPT.fullmatch(operands[0]):
        return None
    return tuple(cwd / operand for operand in operands[1:])


# --- perhaps touched ------------------------------------------------------------------------------

_WRITERS: Final = """
    rm rmdir unlink shred mv cp touch mkdir tee ln truncate install chmod chown chgrp patch rsync dd ex ed
"""
WRITERS: Final = frozenset(_WRITERS.split())
_READERS: Final = """
    cat head tail less more nl od xxd hexdump strings base64 base32 sort uniq cut tr wc grep egrep fgrep rg ag sed
    awk gawk mawk jq yq diff cmp comm paste join tac rev fold column cp mv source . tar zip gzip bzip2 xz zstd bat
    batcat view vim vi nano file md5sum sha1sum sha256sum cksum dd rsync scp curl openssl split csplit iconv tee ln
    install envsubst dotenv perl
"""
READERS: Final = frozenset(_READERS.split())

REDIRECTION: Final = re.compile(r"(?:\d*|&)(<>|>>|>\||>&|>|<)(?![<&(])\s*([^\s;&|<>()]+)")
MATCHES: Final = 1000
"""File names that a pattern is followed to."""


@attrs.frozen
class Touched:
    """Paths, as they are named and where they really lead."""

    read: tuple[Path, ...]
    written: tuple[Path, ...]


def touched_paths(command: str, cwd: Path) -> Touched:
    """The paths that the command may read, and those that it may write: what its words show, not what programs do."""
    reads: list[str] = []
    writes: list[str] = []
    for reading in command_readings(command):
        for operator, target in REDIRECTION.findall(reading):
            (reads if operator == "<" else writes).append(_unquoted(target))
        tokens = _tokens(reading)
        name = os.path.basename(tokens[0]) if tokens else ""
        if name in WRITERS or (name in ("sed", "perl") and any(re.match(r"-\w*i|--in-p", each) for each in tokens)):
            writes += _operands(tokens)
        if name in READERS:
            reads += _operands(tokens)
    return Touched(_with_real(_located(reads, cwd)), _with_real(_located(writes, cwd)))


def _with_real(paths: Iterable[Path]) -> tuple[Path, ...]:
    named = list(paths)
    real = (real_path(path) for path in named)
    return (*named, *(path for path in real if path is not None))


def _tokens(reading: str) -> list[str]:
    try:
        return shlex.split(reading)
    except ValueError:
        return reading.split()


def _unquoted(text: str) -> str:
    return "".join(_tokens(text)) or text


def _operands(tokens: list[str]) -> Iterator[str]:
    """All words but the name: also those in options such as ``if=x``, ``--file=x``, ``-fx`` and ``@x``."""
    for token in tokens[1:]:
        yield token
        if "=" in token:
            yield token.partition("=")[2]
        if re.match(r"-\w.", token):
            yield token[2:]
        if "@" in token:
            yield token.partition("@")[2]


def _located(texts: list[str], cwd: Path) -> Iterator[Path]:
    home: Callable[[re.Match[str]], str] = lambda found: os.path.expanduser("~")  # noqa: E731
    for text in dict.fromkeys(texts):
        plain = re.sub(r"^\$(?:HOME\b|\{HOME\})", home, text)
        plain = re.sub(r"^\$(?:PWD\b|\{PWD\})", lambda found: str(cwd), plain)
        if not plain or "\0" in plain:
            continue
        yield from (locate(plain, cwd), cwd / plain)
        if glob.has_magic(plain):
            found = glob.iglob(str(locate(plain.replace("**", "*"), cwd)))
            yield from map(Path, itertools.islice(found, MATCHES))
