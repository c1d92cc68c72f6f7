"""Everything that a session reads about its project before its first request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from atrio.actors.subagents.definitions import SubagentDefinition, find_subagents
from atrio.tools.files import in_thread

from .command_files import CommandFile, find_commands
from .instructions import MANAGED, Instructions, read_instructions
from .memory import Memory, read_memory
from .skills import Skill, find_skills
from .texts import real

__all__ = ["ProjectContext", "load_project_context"]


@attrs.frozen(kw_only=True)
class ProjectContext:
    """
    What is known of the project. The default is a project that says nothing.

    ``warnings`` are for the user: what was skipped or is odd, where, and what to do about it.
    """

    instructions: Instructions = attrs.field(factory=Instructions)
    skills: tuple[Skill, ...] = ()
    memory: Memory = attrs.field(factory=Memory)
    subagents: tuple[SubagentDefinition, ...] = ()
    commands: tuple[CommandFile, ...] = ()
    warnings: tuple[str, ...] = ()

    def skill(self, name: str) -> Skill | None:
        """The skill of this name, whatever the case."""
        exact = next((skill for skill in self.skills if skill.name == name), None)
        return exact or next((skill for skill in self.skills if skill.name.lower() == name.lower()), None)


async def load_project_context(
    cwd: Path,
    add_dirs: Sequence[Path],
    home: Path,
    user_home: Path | None,
    *,
    managed: Sequence[Path] = MANAGED,
) -> ProjectContext:
    """
    Read it all: instruction files, skills, commands, the memory's index. It raises nothing for what the files hold.

    Args:
        cwd: the working directory; ``add_dirs`` are further folders that imports may come from.
        home: atrio's own folder of the user (``~/.atrio``); ``user_home`` the one that holds ``.claude``.
        managed: the administrator's instruction files.

    Cancelled: nothing was changed.
    """
    return await in_thread(_load, real(cwd), tuple(real(folder) for folder in add_dirs), home, user_home, managed)


def _load(
    cwd: Path, add_dirs: tuple[Path, ...], home: Path, user_home: Path | None, managed: Sequence[Path]
) -> ProjectContext:
    instructions = read_instructions(cwd, add_dirs, home, user_home, managed)
    skills, skill_warnings = find_skills(cwd, home, user_home)
    memory = read_memory(cwd, home, user_home)
    subagents, agent_warnings = find_subagents(cwd, home, user_home)
    commands, command_warnings = find_commands(cwd, home, user_home)
    return ProjectContext(
        instructions=instructions,
        skills=skills,
        memory=memory,
        subagents=subagents,
        commands=commands,
        warnings=(
            *instructions.warnings,
            *skill_warnings,
            *memory.warnings,
            *agent_warnings,
            *command_warnings,
        ),
    )
