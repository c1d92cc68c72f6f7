"""The Skill tool: brings the text of a skill into the conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import attrs

from atrio.runtime.errors import ToolRejected
from atrio.runtime.tool import Tool, ToolContext, ToolOutput

from .schema import Field, json_schema, structure
from .shapes import close_names

__all__ = ["LoadSkill", "Skill", "SkillInput"]

MAX_CHARS: Final = 100_000
"""About 25,000 tokens. The end of a longer skill is left out, as a preview of a few lines would help nobody."""

LISTED_NAMES: Final = 50

LoadSkill: TypeAlias = Callable[[str, str], Awaitable[str]]
"""``await load(name, args)`` gives the skill's text. Raises `ToolRejected` if its file can't be used."""


@attrs.frozen(kw_only=True)
class SkillInput:
    """Which skill."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=200, aliases=("skill", "command"), description="the skill's name, as listed"),
    ]
    args: Annotated[
        str, Field(max_length=MAX_CHARS, aliases=("arguments",), description="what the skill is to work on, if it asks")
    ] = ""


class Skill(Tool):
    """
    Loads skills by name.

    Args:
        load: reads a skill's text.
        names: the names there are now; asked at each call, as skills may come and go.
    """

    name = "Skill"
    description = (
        "Loads a skill: instructions for a kind of task, written for this project or user. When a listed skill fits "
        "the task, load it before you begin and follow its text. A skill that was loaded needn't be loaded again."
    )
    input_schema = json_schema(SkillInput)
    read_only = True
    idempotent = True
    permission: Literal["allow", "read", "edit", "ask"] = "allow"
    max_result_chars: int | None = None

    def __init__(self, load: LoadSkill, names: Callable[[], Sequence[str]]) -> None:
        self._load = load
        self._names = names

    def parse(self, raw: Mapping[str, Any]) -> SkillInput:
        return structure(SkillInput, raw, tool=self.name)

    def specifier(self, input: SkillInput) -> str:
        return _plain(input.name)

    async def check(self, input: SkillInput, ctx: ToolContext) -> None:
        """Raises `ToolRejected` for a name that is not there, with those that may have been meant."""
        name, names = _plain(input.name), self._names()
        if name in names:
            return
        close = close_names(name, names)
        if close:
            hint = f"Did you mean {' or '.join(close)}?"
        elif names:
            more = f" and {len(names) - LISTED_NAMES} more" if len(names) > LISTED_NAMES else ""
            hint = f"There are {', '.join(names[:LISTED_NAMES])}{more}."
        else:
            hint = "There are no skills here; go on without."
        raise ToolRejected(f"There is no skill {name!r}. {hint}")

    async def run(self, input: SkillInput, ctx: ToolContext) -> ToolOutput:
        """Load it. Raises what the loader raises. Cancelled: nothing was changed."""
        name = _plain(input.name)
        text = await self._load(name, input.args)
        if len(text) > MAX_CHARS:
            left = len(text) - MAX_CHARS
            text = f"{text[:MAX_CHARS]}\n[... {left:,} more characters of this skill; read its SKILL.md for the rest]"
        return ToolOutput(text, details={"skill": name, "args": input.args})


def _plain(name: str) -> str:
    """Models write the name as a user would call it, too: ``/deploy``."""
    return name.strip().removeprefix("/")
