"""
Permission rules as text and as values: ``Read``, ``Bash(git diff *)``, ``Edit(src/**)``, ``mcp__server``, ``*``. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from atrio.runtime.errors import ConfigError

__all__ = ["Rule", "Rules", "parse_rule", "parse_rule_list"]

FORM: Final = re.compile(r"([A-Za-z0-9_.*-]+)(?:\((.*)\))?", re.DOTALL)

REMEDY: Final = "write a tool's name, or name and specifier, such as Read, Bash(git diff *) or Edit(src/**)"

COVERS: Final = {"Read": frozenset({"Glob", "Grep"}), "Edit": frozenset({"Write", "NotebookEdit"})}
"""Whose calls a rule with a specifier covers besides those of its own tool."""


@attrs.frozen
class Rule:
    """
    One rule: a tool's name, exact but for ``*``, and perhaps what its calls are matched with.

    ``mcp__server`` covers all tools of that server. With a specifier, ``Read`` also covers Glob and Grep, and
    ``Edit`` also Write and NotebookEdit; bare names cover just the tool that they name.
    """

    tool: str
    specifier: str | None = None

    def __str__(self) -> str:
        return self.tool if self.specifier is None else f"{self.tool}({self.specifier})"

    def names(self, *names: str) -> bool:
        """Whether the rule is about the tool of this name (and these aliases)."""
        return any(self._names(name) for name in names)

    def _names(self, name: str) -> bool:
        if name == self.tool or (self.specifier is not None and name in COVERS.get(self.tool, ())):
            return True
        if "*" in self.tool:
            return re.fullmatch(re.escape(self.tool).replace(r"\*", ".*"), name) is not None
        is_server = self.tool.startswith("mcp__") and self.tool.count("__") == 1
        return is_server and name.startswith(f"{self.tool}__")


@attrs.frozen
class Rules:
    """The rules of a session, by what they decide."""

    allow: tuple[Rule, ...] = attrs.field(default=(), converter=tuple[Rule, ...])
    deny: tuple[Rule, ...] = attrs.field(default=(), converter=tuple[Rule, ...])
    ask: tuple[Rule, ...] = attrs.field(default=(), converter=tuple[Rule, ...])

    def merged(self, other: Rules) -> Rules:
        """Both sets of rules: none takes another away, so a deny holds whoever wrote it."""
        return Rules(
            tuple(dict.fromkeys((*self.allow, *other.allow))),
            tuple(dict.fromkeys((*self.deny, *other.deny))),
            tuple(dict.fromkeys((*self.ask, *other.ask))),
        )


def parse_rule(text: str) -> Rule:
    """The rule that ``text`` is. Raises `ConfigError`, naming the text, if it is none."""
    found = FORM.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"permission rule {text!r}", "this is no rule", REMEDY)
    tool, specifier = found[1], found[2]
    if specifier is not None and not specifier.strip():
        raise ConfigError(f"permission rule {text!r}", "the parentheses are empty", f"write {tool} for all its calls")
    if specifier is not None and "\0" in specifier:
        raise ConfigError(f"permission rule {text!r}", "it holds a NUL character", REMEDY)
    return Rule(tool, specifier.strip() if specifier is not None else None)


def parse_rule_list(texts: Iterable[str]) -> tuple[Rule, ...]:
    """
    The rules in ``texts``, each of which may hold several, parted by commas or spaces outside of parentheses.

    Raises `ConfigError` for the first that is none.
    """
    return tuple(parse_rule(piece) for text in texts for piece in _pieces(text))


def _pieces(text: str) -> Iterator[str]:
    start, depth, escaped = 0, 0, False
    for index, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char in "()":
            depth = max(0, depth + (1 if char == "(" else -1))
        elif depth == 0 and (char == "," or char.isspace()):
            if piece := text[start:index].strip():
                yield piece
            start = index + 1
    if piece := text[start:].strip():
        yield piece
