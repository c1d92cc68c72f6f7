"""
What a rule's specifier matches: paths, shell commands, other text. Pure but for following symlinks.

Restricting rules (deny, ask) match as much as they can mean, allowing ones only what they surely mean.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from .paths import MAGIC, literal_prefix, real_path, rule_regex

__all__ = ["allows_command", "catches_command", "command_readings", "matches_text", "path_matcher"]

IGNORES_CASE: Final = sys.platform in ("darwin", "win32")

WRAPPERS: Final = frozenset(
    {"sudo", "doas", "env", "command", "builtin", "exec", "eval", "nohup", "time", "nice", "ionice", "stdbuf"}
    | {"timeout", "setsid", "xargs", "find", "sh", "bash", "dash", "zsh", "ksh", "busybox", "ssh", "su", "watch"}
    | {"if", "then", "else", "elif", "while", "until", "do", "!", "{", "("}
)
"""Programs and words after which another command may begin."""

WRAPPED_TOKENS: Final = 64
"""How many words behind a wrapper are tried as the beginning of the wrapped command."""

BLANKS: Final = " \t\n"
"""What bash takes for blanks around a command: the many others of Unicode belong to its words."""

ASSIGNMENT: Final = re.compile(r"\w+\+?=.*", re.DOTALL)


# --- paths ----------------------------------------------------------------------------------------


def path_matcher(pattern: str, bases: Iterable[Path], *, strict: bool = False) -> Callable[[Path], bool]:
    """
    The test whether an absolute path falls under a gitignore-like pattern.

    ``//x`` is absolute, ``~/x`` in the home folder, all else is relative to each of ``bases``. The pattern's leading
    folders may be symlinks. ``strict`` is for rules that restrict: a lone ``*`` or ``**`` then means all paths.
    """
    if strict and pattern in ("*", "**", "/**", "//**"):
        return lambda path: True
    anchors = [anchor for base in bases for anchor in _anchored(pattern, base)]

    def matches(path: Path) -> bool:
        plain = Path(os.path.normpath(path))
        return any(
            plain.is_relative_to(root) and regex.fullmatch(plain.relative_to(root).as_posix()) is not None
            for root, regex in anchors
        )

    return matches


@functools.lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    return rule_regex(pattern, ignore_case=IGNORES_CASE)


def _anchored(pattern: str, base: Path) -> Iterator[tuple[Path, re.Pattern[str]]]:
    """The folders under which the pattern may match, and what must match there."""
    if pattern.startswith("//"):
        base, pattern = Path("/"), pattern[1:]
    elif pattern == "~" or pattern.startswith("~/"):
        base, pattern = Path(os.path.expanduser("~")), pattern[1:] or "/"
    while pattern.startswith(("../", "./")):
        base = base.parent if pattern.startswith("../") else base
        pattern = "/" + pattern.split("/", 1)[1].lstrip("/") if pattern.startswith("../") else pattern[2:]
    yield base, _regex(pattern)
    if "/" not in pattern.rstrip("/"):
        return
    bare = pattern.strip("/")
    head, rest = literal_prefix(bare) if MAGIC.search(bare) else (bare, "**")
    real = real_path(base / head)
    if real is not None and real != base / head:
        yield real, _regex(f"/{rest}")


# --- text -----------------------------------------------------------------------------------------


def matches_text(pattern: str, text: str) -> bool:
    """Whether ``text`` is the pattern, in which ``*`` stands for anything."""
    return pattern == text or _glob(pattern).fullmatch(text) is not None


@functools.lru_cache(maxsize=1024)
def _glob(pattern: str) -> re.Pattern[str]:
    pieces = [re.escape(piece) for piece in re.split(r"\*+", pattern)]
    return re.compile(".*".join(pieces), re.DOTALL)


# --- commands -------------------------------------------------------------------------------------


def allows_command(patterns: Sequence[str], command: str, *, also: Callable[[str], bool] | None = None) -> bool:
    """
    Whether allow rules let this shell command run: one names exactly it, or each simple command in it matches one.

    A pattern is a whole text, ``prefix:*`` (the prefix as whole words), or a text with ``*``; a ``*`` at the end
    begins at a word. A substitution, and a redirection into a file (``> notes.txt``), is a command of its own.
    ``also`` says of simple commands whether they may run without any pattern.
    """
    command = command.strip(BLANKS)
    if any(pattern in ("*", ":*", command) for pattern in patterns):
        return True
    simple = _simple_commands(command)
    return simple is not None and all(
        any(_allows(pattern, part) for pattern in patterns) or (also is not None and also(part)) for part in simple
    )


def catches_command(pattern: str, command: str) -> bool:
    """Whether a deny or ask rule applies to the command, to a simple command in it, or to what that wraps."""
    if pattern in ("*", ":*"):
        return True
    prefix = _prefix(pattern)
    for text in command_readings(command):
        if text in (pattern, prefix) or _glob(f"{prefix} *" if prefix is not None else pattern).fullmatch(text):
            return True
    return False


def _prefix(pattern: str) -> str | None:
    """The words that the command must begin with, for the two forms that say just that."""
    if pattern.endswith(":*"):
        return pattern[:-2].strip()
    return pattern[:-2] if pattern.endswith(" *") and "*" not in pattern[:-2] else None


def _allows(pattern: str, part: str) -> bool:
    prefix = _prefix(pattern)
    if part in (pattern, prefix):
        return True
    if prefix is not None:
        return part.startswith(f"{prefix} ")
    if "*" not in pattern:
        return False
    if pattern.endswith("*") and re.search(r"\w\*+$", pattern):  # "git status*" is not about "git statusfoo"
        body = pattern.rstrip("*")
        regex = re.compile(_glob(body).pattern + r"(?: .*)?", re.DOTALL)
        return regex.fullmatch(part) is not None
    return _glob(pattern).fullmatch(part) is not None


def _simple_commands(command: str) -> tuple[str, ...] | None:
    from .shell_syntax import simple_commands

    return simple_commands(command)


def command_readings(command: str) -> Iterator[str]:
    """The texts that a restricting rule is held against: the command, its simple commands, and what those wrap."""
    yield command.strip()
    simple = _simple_commands(command)
    parts = simple if simple is not None else re.split(r"[;&|\n(){}`]+", command)
    for part in parts:
        plain = " ".join(part.split())
        yield plain
        yield from _unwrapped(plain)


def _unwrapped(part: str) -> Iterator[str]:
    """The command without assignments, quotes, its program's folder, and wrappers such as sudo."""
    try:
        tokens = shlex.split(part)
    except ValueError:
        tokens = part.split()
    while tokens and ASSIGNMENT.fullmatch(tokens[0]):
        tokens = tokens[1:]
    if not tokens:
        return
    tokens[0] = os.path.basename(tokens[0]) or tokens[0]
    yield " ".join(tokens)
    if tokens[0] not in WRAPPERS:
        return
    for start in range(1, min(len(tokens), WRAPPED_TOKENS)):
        yield " ".join([os.path.basename(tokens[start]) or tokens[start], *tokens[start + 1 :]])
