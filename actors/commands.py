"""
Slash commands: which there are, and what a prompt that calls one stands for.

Built-in ones are done by the session itself, without a request. Those from files, and skills, become the prompt of an
ordinary run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from atrio.runtime.errors import AtrioError
from atrio.runtime.messages import Block, TextBlock
from atrio.runtime.slash import Invocation, close_names, parse_command
from atrio.tools.files import in_thread
from atrio.tools.rules import Rule, parse_rule_list

from .context.command_files import CommandFile, load_command
from .context.project import ProjectContext
from .context.skills import Skill, load_skill

__all__ = ["BUILT_IN", "CommandBook", "CommandInfo", "Expanded", "Local"]


@attrs.frozen(kw_only=True)
class CommandInfo:
    """A command, for a list of them."""

    name: str
    description: str
    argument_hint: str = ""


BUILT_IN: Final[Mapping[str, CommandInfo]] = {
    info.name: info
    for info in (
        CommandInfo(
            name="compact",
            description="put a summary in place of the conversation so far",
            argument_hint="[what matters in it]",
        ),
        CommandInfo(name="clear", description="forget the conversation so far"),
        CommandInfo(name="model", description="say which model is used, or choose another", argument_hint="[name]"),
        CommandInfo(name="cost", description="what the session has used and cost so far"),
        CommandInfo(name="context", description="what fills the model's window"),
        CommandInfo(name="help", description="list the commands"),
    )
}


@attrs.frozen(kw_only=True)
class Local:
    """The session itself does it: a built-in command; or, with ``error``, it says why nothing was done."""

    name: str
    arguments: str = ""
    error: str | None = None


@attrs.frozen(kw_only=True)
class Expanded:
    """The prompt that a command stands for. In its run, ``allow`` allows calls; ``model``, if given, answers."""

    blocks: tuple[Block, ...]
    allow: tuple[Rule, ...] = ()
    model: str | None = None


Reading: TypeAlias = Local | Expanded


@attrs.frozen(kw_only=True)
class CommandBook:
    """
    The commands of one session.

    ``project`` None: the built-in ones alone. ``cwd``: where a prompt's first word may be the name of a file.
    """

    cwd: Path
    project: ProjectContext | None = None

    def commands(self) -> Sequence[CommandInfo]:
        """All of them: built in, from files, skills. A name counts once, in this order."""
        known = dict(BUILT_IN)
        if self.project is not None:
            for command in self.project.commands:
                info = CommandInfo(
                    name=command.name, description=command.description, argument_hint=command.argument_hint
                )
                known.setdefault(command.name, info)
            for skill in self.project.skills:
                known.setdefault(skill.name, CommandInfo(name=skill.name, description=skill.description))
        return list(known.values())

    def names(self) -> tuple[str, ...]:
        """For the first event of a run."""
        return tuple(info.name for info in self.commands())

    def help(self) -> str:
        """The list, for people."""
        heads = [f"/{info.name} {info.argument_hint}".rstrip() for info in self.commands()]
        width = min(36, max(map(len, heads)))
        shown = zip(heads, self.commands(), strict=True)
        return "\n".join(f"{head:<{width}}  {info.description}".rstrip() for head, info in shown)

    async def read(self, blocks: Sequence[Block]) -> Reading | None:
        """
        What a prompt stands for; None if it calls no command. A first word such as ``/tmp`` that is the name of a
        file calls none.

        Cancelled: nothing was changed.
        """
        first = blocks[0] if blocks else None
        called = parse_command(first.text) if isinstance(first, TextBlock) else None
        if called is None:
            return None
        if called.name in BUILT_IN and len(blocks) == 1:
            return Local(name=called.name, arguments=called.arguments)
        try:
            expanded = await self._expand(called)
        except AtrioError as error:
            return Local(name=called.name, arguments=called.arguments, error=str(error))
        if expanded is not None:
            return attrs.evolve(expanded, blocks=(*expanded.blocks, *blocks[1:]))
        if len(blocks) > 1 or await in_thread(Path("/", called.name).exists):
            return None
        return Local(name=called.name, arguments=called.arguments, error=self._unknown(called.name))

    async def _expand(self, called: Invocation) -> Expanded | None:
        command, skill = self._find(called.name)
        if command is not None:
            text = await load_command(command, called.arguments)
            rules = parse_rule_list(command.allowed_tools)
            return Expanded(blocks=(TextBlock(text),), allow=rules, model=command.model)
        if skill is not None:
            return Expanded(blocks=(TextBlock((await load_skill(skill, called.arguments)).text),))
        return None

    def _find(self, name: str) -> tuple[CommandFile | None, Skill | None]:
        if self.project is None:
            return None, None
        command = next((each for each in self.project.commands if each.name == name), None)
        return command, next((each for each in self.project.skills if each.name == name), None)

    def _unknown(self, name: str) -> str:
        close = close_names(name, self.names())
        meant = f"did you mean {' or '.join(f'/{each}' for each in close)}?" if close else "/help lists them"
        return f"there is no command /{name}; {meant}"
