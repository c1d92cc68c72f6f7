"""
Kinds of subagents: what a host program, a flag or a file says of one.

Files are ``agents/*.md`` in ``.atrio`` and ``.claude``, of the project and of the user: front matter, and the system
prompt as the text behind it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from atrio.actors.context.front_matter import FrontMatter, parse_front_matter, split_list
from atrio.actors.context.instructions import repository_of
from atrio.actors.context.texts import Unreadable, printable, read_text
from atrio.runtime.errors import ConfigError
from atrio.tools.permissions import PermissionMode
from atrio.tools.rules import Rule, parse_rule_list

__all__ = ["GENERAL_PURPOSE", "INHERIT", "SubagentDefinition", "find_subagents", "parse_subagents"]

FILE_LIMIT_BYTES: Final = 256 * 1024
MAX_FILES: Final = 300
MAX_DESCRIPTION: Final = 2_000
"""Characters: every request carries all descriptions."""

INHERIT: Final = "inherit"
"""As a model: the parent's."""

DEFAULT_MAX_TURNS: Final = 200

_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


def _names(values: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)


@attrs.frozen(kw_only=True)
class SubagentDefinition:
    """
    One kind of subagent.

    Args:
        name: what the model calls it.
        description: when to use it, for the model.
        prompt: its system prompt; empty: the parent's.
        tools: names (or rules such as ``mcp__server``) of the tools it has; None: all that subagents may have.
        disallowed_tools: taken from those; with a specifier, such calls are denied.
        model: a name, ``sonnet``, ``opus``, ``haiku``, or ``inherit`` for the parent's.
        max_turns: model requests; None: no limit.
        permission_mode: None: the parent's. It never allows more than that.
        background: it always runs beside its parent.
        max_budget_usd: it ends before a request once it has cost this much; the parent's budget holds besides.
    """

    name: str = attrs.field()
    description: str
    prompt: str = ""
    tools: tuple[str, ...] | None = attrs.field(default=None, converter=_names)
    disallowed_tools: tuple[str, ...] = attrs.field(default=(), converter=tuple[str, ...])
    model: str = INHERIT
    max_turns: int | None = attrs.field(default=DEFAULT_MAX_TURNS)
    permission_mode: PermissionMode | None = None
    background: bool = False
    max_budget_usd: float | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.gt(0))
    )

    @name.validator
    def _check_name(self, attribute: object, value: str) -> None:
        if not _NAME.fullmatch(value):
            raise ConfigError(f"subagent {value[:80]!r}", "this is no name", "use up to 64 of a-z, 0-9, - _ and .")

    @max_turns.validator
    def _check_turns(self, attribute: object, value: int | None) -> None:
        if value is not None and value < 1:
            raise ConfigError(f"subagent {self.name}", f"max_turns is {value}", "give at least 1, or None for no limit")

    def __attrs_post_init__(self) -> None:
        if not self.description.strip():
            raise ConfigError(f"subagent {self.name}", "its description is empty", "say when it is to be used")
        parse_rule_list((*(self.tools or ()), *self.disallowed_tools))

    def offers(self, name: str, *aliases: str) -> bool:
        """Whether it has the tool of this name, if its parent has."""
        if any(rule.specifier is None and rule.names(name, *aliases) for rule in self.denied):
            return False
        return self.tools is None or any(rule.names(name, *aliases) for rule in parse_rule_list(self.tools))

    @property
    def denied(self) -> tuple[Rule, ...]:
        """Rules for what it may not do."""
        return parse_rule_list(self.disallowed_tools)


GENERAL_PURPOSE: Final = SubagentDefinition(
    name="general-purpose",
    description=(
        "for any task of several steps: searching a large code base, looking into a question, doing a piece of work "
        "whose details needn't be in this conversation. It has all tools."
    ),
)
"""There is always this one, unless another has its name."""


def parse_subagents(text: str, thing: str = "--agents") -> tuple[SubagentDefinition, ...]:
    """
    The definitions in a JSON object from names to definitions, as ``--agents`` takes it.

    Raises:
        ConfigError: it is no such object; the text says where.
    """
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(thing, f"it is no valid JSON: {error}", "correct it") from None
    if not isinstance(value, dict):
        raise ConfigError(thing, "it is no JSON object", 'write {"name": {"description": "...", "prompt": "..."}}')
    return tuple(_from_json(name, each, f"{thing}, {name[:80]!r}") for name, each in value.items())


_FIELDS: Final = (
    "description",
    "prompt",
    "tools",
    "disallowedTools",
    "model",
    "maxTurns",
    "permissionMode",
    "background",
)


def _from_json(name: str, value: object, thing: str) -> SubagentDefinition:
    if not isinstance(value, dict):
        raise ConfigError(thing, "it is no JSON object", f"give it {', '.join(_FIELDS)}")
    if unknown := [key for key in value if key not in _FIELDS]:
        raise ConfigError(thing, f"{unknown[0][:80]!r} is not known", f"there are {', '.join(_FIELDS)}")
    texts = {key: value.get(key) for key in ("description", "prompt", "model", "permissionMode")}
    for key, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise ConfigError(thing, f"its {key} is no text", "correct it")
    turns = value.get("maxTurns", DEFAULT_MAX_TURNS)
    if not isinstance(turns, int) or isinstance(turns, bool) or turns < 1:
        raise ConfigError(thing, f"its maxTurns is {turns!r}", "give a whole number of at least 1")
    if not texts["description"]:
        raise ConfigError(thing, "it has no description", "say when it is to be used")
    return SubagentDefinition(
        name=name,
        description=str(texts["description"]),
        prompt=str(texts["prompt"] or ""),
        tools=_list(value, "tools", thing),
        disallowed_tools=_list(value, "disallowedTools", thing) or (),
        model=str(texts["model"] or INHERIT),
        max_turns=turns,
        permission_mode=_mode(texts["permissionMode"], thing),
        background=value.get("background") is True,
    )


def _list(value: Mapping[str, Any], key: str, thing: str) -> tuple[str, ...] | None:
    found = value.get(key)
    if found is None:
        return None
    if isinstance(found, str):
        return split_list(found)
    if isinstance(found, list) and all(isinstance(item, str) for item in found):
        return tuple(found)
    raise ConfigError(thing, f"its {key} is no list of texts", "correct it")


def _mode(text: str | None, thing: str) -> PermissionMode | None:
    if text is None:
        return None
    try:
        return PermissionMode(text)
    except ValueError:
        known = ", ".join(mode.value for mode in PermissionMode)
        raise ConfigError(thing, f"permission mode {text[:40]!r} is not known", f"choose from {known}") from None


# --- files ----------------------------------------------------------------------------------------


def find_subagents(
    cwd: Path, home: Path, user_home: Path | None
) -> tuple[tuple[SubagentDefinition, ...], tuple[str, ...]]:
    """
    All kinds that files define, sorted by name, and warnings. Blocking.

    Of two with one name the project's wins over the user's, the nearer folder over the one above, ``.atrio`` over
    ``.claude``.
    """
    warnings: list[str] = []
    found: dict[str, SubagentDefinition] = {}
    seen: set[str] = set()
    for path in _files(cwd, home, user_home):
        if (real := os.path.realpath(path)) in seen:
            continue
        seen.add(real)
        definition = _read(path, warnings)
        if definition is not None:
            found.setdefault(definition.name, definition)
    return tuple(sorted(found.values(), key=lambda each: each.name)), tuple(warnings)


def _files(cwd: Path, home: Path, user_home: Path | None) -> Iterable[Path]:
    folders: list[Path] = []
    top = repository_of(cwd) or cwd
    for folder in (cwd, *cwd.parents):
        folders += (folder / ".atrio" / "agents", folder / ".claude" / "agents")
        if folder == top:
            break
    folders.append(home / "agents")
    if user_home is not None:
        folders.append(user_home / ".claude" / "agents")
    for folder in folders:
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".md"))
        except OSError:
            continue
        yield from (folder / name for name in names[:MAX_FILES])


def _read(path: Path, warnings: list[str]) -> SubagentDefinition | None:
    file = read_text(path, FILE_LIMIT_BYTES)
    if file is None:
        return None
    where = printable(path)
    if isinstance(file, Unreadable):
        warnings.append(str(file))
        return None
    matter = parse_front_matter(file.text)
    warnings += (f"{where}: {problem}" for problem in matter.problems)
    if not matter.fields:
        # A README among the agents.
        return None
    try:
        return _from_matter(matter, path, where)
    except ConfigError as error:
        warnings.append(f"{where}: skipped; {error}")
        return None


def _from_matter(matter: FrontMatter, path: Path, where: str) -> SubagentDefinition:
    turns = matter.text("maxturns")
    if turns is not None and not (turns.isascii() and turns.isdigit() and 1 <= int(turns[:9])):
        raise ConfigError("maxTurns", f"{turns[:40]!r} is no whole number of at least 1", "correct it")
    return SubagentDefinition(
        name=matter.text("name") or path.stem,
        description=" ".join((matter.text("description") or "").split())[:MAX_DESCRIPTION],
        prompt=matter.body.strip(),
        tools=matter.items("tools") if matter.text("tools") is not None else None,
        disallowed_tools=matter.items("disallowedtools"),
        model=matter.text("model") or INHERIT,
        max_turns=int(turns[:9]) if turns is not None else DEFAULT_MAX_TURNS,
        permission_mode=_mode(matter.text("permissionmode"), where),
        background=matter.flag("background", False),
    )
