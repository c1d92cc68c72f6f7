"""
Takes a bash command apart into simple commands. Pure.

It understands lists, pipelines, subshells, quoting, redirections and substitutions, and nothing else: for a
here-document, a loop, a function, arithmetic and the like it gives up. What it does accept it must read as bash
does, since permissions rest on it; in doubt, it gives up.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

__all__ = ["NotUnderstood", "Redirect", "Script", "SimpleCommand", "Word", "parse"]

MAX_COMMAND_CHARS: Final = 32_768
MAX_DEPTH: Final = 16

_RESERVED_WORDS: Final = (
    "if then else elif fi for while until do done case esac in select function time coproc { } [[ ]] !"
)
RESERVED: Final = frozenset(_RESERVED_WORDS.split())
_REDIRECT: Final = re.compile(r"(\d*)(<<<|<<|<&|<>|<|>&|>>|>\||>)|(&>>|&>)")
_VARIABLE: Final = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9@*#?$!-]|\{#?[A-Za-z_]\w*\}|\{[0-9@*#?]\})", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=", re.ASCII)
_OPERATOR: Final = re.compile(r"&&|\|\||;|\|&|\||&|\n")
_BLANK: Final = re.compile(r"(?:[ \t]|\\\n)+")
_PLAIN: Final = re.compile(r"[^\s\\'\"`$;&|()<>*?\[{}~#\0]+", re.ASCII)
_METACHARACTERS: Final = frozenset(" \t\n;&|()<>")


class NotUnderstood(ValueError):
    """The command is not bash, or more of it than this module knows."""


@attrs.frozen(kw_only=True)
class Word:
    """
    One word. ``raw`` is how it is written, ``text`` the same without quotes and backslashes.

    ``expands``: variables, substitutions or braces make something unknown of it. ``globs``: file names may.
    """

    raw: str
    text: str
    expands: bool = False
    globs: bool = False

    @property
    def fixed(self) -> bool:
        """The command gets exactly ``text``."""
        return not (self.expands or self.globs)

    @property
    def is_assignment(self) -> bool:
        return _ASSIGNMENT.match(self.raw) is not None


@attrs.frozen(kw_only=True)
class Redirect:
    """``operator`` is one of ``< <> <<< <& > >> >| >& &> &>>``."""

    descriptor: str
    operator: str
    target: Word

    @property
    def only_duplicates(self) -> bool:
        """``2>&1`` and the like: it concerns no file."""
        return (
            self.operator in ("<&", ">&") and self.target.fixed and re.fullmatch(r"\d+|-", self.target.text) is not None
        )

    @property
    def writes(self) -> bool:
        """A file may come into being or change."""
        return self.operator not in ("<", "<<<", "<&") and not self.only_duplicates


@attrs.frozen(kw_only=True)
class SimpleCommand:
    """Words and redirections. Only redirections, for those of a subshell. ``negated``: behind a ``!``."""

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...] = ()
    negated: bool = False


@attrs.frozen(kw_only=True)
class Script:
    """
    A whole command: its simple commands in order, and those inside of its substitutions.

    ``background``: at least one is not waited for.
    """

    commands: tuple[SimpleCommand, ...]
    nested: tuple[SimpleCommand, ...] = ()
    background: bool = False

    @property
    def all_commands(self) -> tuple[SimpleCommand, ...]:
        return self.commands + self.nested


def parse(command: str) -> Script:
    """Take ``command`` apart. Raises `NotUnderstood`."""
    if len(command) > MAX_COMMAND_CHARS or "\0" in command:
        raise NotUnderstood("too long, or holds a NUL")
    reader = _Reader(command)
    reader.read_list("")
    return Script(commands=tuple(reader.commands), nested=tuple(reader.nested), background=reader.background)


@attrs.define(eq=False)
class _Reader:
    text: str
    depth: int = 0
    position: int = 0
    background: bool = False
    commands: list[SimpleCommand] = attrs.field(factory=list)
    nested: list[SimpleCommand] = attrs.field(factory=list)

    def read_list(self, closing: str) -> None:
        """Commands and what joins them, up to ``closing`` (or the end of the text)."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotUnderstood("nested too deeply")
        joining = False
        while True:
            self._skip_lines()
            if self._peek() == closing:
                if joining:
                    raise NotUnderstood("a command is missing")
                self.position += len(closing)
                self.depth -= 1
                return
            self._read_command()
            match = _OPERATOR.match(self.text, self.position)
            if match is not None:
                self.position = match.end()
                self.background |= match[0] == "&"
            elif self._peek() != closing:
                raise NotUnderstood(f"{self._peek()!r} is out of place")
            joining = match is not None and match[0] in ("&&", "||", "|", "|&")

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _starts(self, prefix: str) -> bool:
        return self.text.startswith(prefix, self.position)

    def _skip_blanks(self) -> None:
        match = _BLANK.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        if self._peek() == "#":  # only ever called between words, where this begins a comment
            end = self.text.find("\n", self.position)
            self.position = len(self.text) if end < 0 else end

    def _skip_lines(self) -> None:
        self._skip_blanks()
        while self._peek() == "\n":
            self.position += 1
            self._skip_blanks()

    def _read_command(self) -> None:
        words: list[Word] = []
        redirects: list[Redirect] = []
        negated = subshell = named = False
        while True:
            self._skip_blanks()
            char = self._peek()
            redirect = self._match_redirect()
            if redirect is not None:
                redirects.append(self._read_redirect(redirect))
            elif not char or char in "\n;|&)":
                break
            elif char == "(":
                if words or redirects or subshell or self._starts("(("):
                    raise NotUnderstood("a function, an array or arithmetic")
                self.position += 1
                self.read_list(")")
                subshell = True
            elif subshell:
                raise NotUnderstood("a word behind a subshell")
            else:
                word = self._read_word()
                if not words and word.raw == "!" and not negated:
                    negated = True
                elif not named and word.raw in RESERVED:
                    raise NotUnderstood(f"compound command {word.raw}")
                else:
                    named = named or not word.is_assignment
                    words.append(word)
        if words or redirects:
            self.commands.append(SimpleCommand(words=tuple(words), redirects=tuple(redirects), negated=negated))
        elif not subshell:
            raise NotUnderstood("a command is missing")

    def _match_redirect(self) -> re.Match[str] | None:
        match = _REDIRECT.match(self.text, self.position)
        if match is not None and self.text.startswith("(", match.end()) and match[2] in ("<", ">"):
            if match[1]:
                raise NotUnderstood("a number before a process substitution")
            return None
        return match

    def _read_redirect(self, match: re.Match[str]) -> Redirect:
        operator = match[2] or match[3]
        if operator == "<<":
            raise NotUnderstood("a here-document")
        self.position = match.end()
        blank = _BLANK.match(self.text, self.position)
        if blank is not None:
            self.position = blank.end()
        if not self._peek() or self._peek() in _METACHARACTERS or self._peek() == "#":
            raise NotUnderstood("a redirection without target")
        return Redirect(descriptor=match[1] or "", operator=operator, target=self._read_word())

    def _read_word(self) -> Word:
        start = self.position
        parts: list[str] = []
        expands = globs = False
        while (char := self._peek()) and (char not in _METACHARACTERS or (char in "<>" and self.position == start)):
            plain = _PLAIN.match(self.text, self.position)
            if plain is not None:
                parts.append(plain[0])
                self.position = plain.end()
                continue
            self.position += 1
            match char:
                case "'":
                    parts.append(self._read_up_to("'"))
                case '"':
                    text, dynamic = self._read_quoted()
                    parts.append(text)
                    expands |= dynamic
                case "\\":
                    parts.append(self._read_escaped())
                case "$" | "`" | "<" | ">":
                    text, dynamic = self._read_expansion(char, quoted=False)
                    parts.append(text)
                    expands |= dynamic
                case _:
                    globs |= char in "*?[~"
                    expands |= char in "{}"
                    parts.append(char)
        if self._peek() == "(":
            raise NotUnderstood("a function, an array or a pattern")
        if self._starts("<(") or self._starts(">("):
            raise NotUnderstood("a process substitution that is part of a word")
        raw = self.text[start : self.position]
        return Word(raw=raw, text="".join(parts), expands=expands, globs=globs and raw != "[")

    def _read_up_to(self, end: str) -> str:
        found = self.text.find(end, self.position)
        if found < 0:
            raise NotUnderstood(f"{end} is missing")
        text = self.text[self.position : found]
        self.position = found + 1
        return text

    def _read_escaped(self) -> str:
        char = self._peek()
        if not char:
            raise NotUnderstood("a backslash at the end")
        self.position += 1
        return "" if char == "\n" else char

    def _read_quoted(self) -> tuple[str, bool]:
        """What is in double quotes, and whether something in it expands."""
        parts: list[str] = []
        expands = False
        while (char := self._peek()) != '"':
            self.position += 1
            if not char:
                raise NotUnderstood('" is missing')
            if char == "\\" and self._peek() and self._peek() in '$`"\\\n':
                parts.append(self._read_escaped())
            elif char in "$`":
                text, dynamic = self._read_expansion(char, quoted=True)
                parts.append(text)
                expands |= dynamic
            else:
                parts.append(char)
        self.position += 1
        return "".join(parts), expands

    def _read_expansion(self, char: str, *, quoted: bool) -> tuple[str, bool]:
        """What ``char``, just passed, begins: its raw text, and whether it expands at all."""
        start = self.position - 1
        if char == "`":
            self._read_backticks()
        elif self._starts("("):
            if self._starts("((") and char == "$":
                raise NotUnderstood("arithmetic")
            self.position += 1
            self._read_substitution()
        elif match := _VARIABLE.match(self.text, start):
            self.position = match.end()
        elif self._peek() in ("{", "[") or (not quoted and self._peek() in ("'", '"')):
            raise NotUnderstood("an expansion with operators, or a quotation with escapes")
        elif self._starts("\\\n"):
            raise NotUnderstood("a line break behind a dollar, which may still begin a substitution")
        else:
            return "$", False
        return self.text[start : self.position], True

    def _read_substitution(self) -> None:
        outer, self.commands = self.commands, []
        self.read_list(")")
        self.nested += self.commands
        self.commands = outer

    def _read_backticks(self) -> None:
        inner = self._read_up_to("`")
        if "\\" in inner:
            raise NotUnderstood("a backslash within backticks")
        reader = _Reader(inner, depth=self.depth)
        reader.read_list("")
        self.nested += reader.commands + reader.nested
        self.background |= reader.background
