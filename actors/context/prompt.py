"""
The system prompt: a static part, which all sessions of an agent share, a boundary, and a dynamic part. Pure.

Both are made once, when a session opens, and then stay the same to the byte, so that the provider's cache holds. The
boundary stands between sections while they are put together and is never sent.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import attrs

from .project import ProjectContext
from .skills import skill_listing
from .texts import printable

__all__ = [
    "BOUNDARY",
    "SHORT_PROMPT",
    "SYSTEM_PROMPT",
    "PromptBuilder",
    "PromptFacts",
    "SystemPrompt",
    "build_system",
    "default_sections",
]

BOUNDARY: Final = "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__"
"""A section of its own, between what is the same for all sessions and what is not."""

SYSTEM_PROMPT: Final = """\
You are an agent that works on its own, without a person watching each step. You get a task and a set of tools; \
work until the task is done, then say briefly what you did and what the outcome is.

How to work:
- Find out before you act: read the files that matter, search rather than guess, trust what you see.
- Calls that don't depend on each other may go into one response; they run side by side where that is safe.
- Make the smallest change that does the whole job, in the style of what is already there. Leave the rest alone.
- Check your work with the means at hand (run the tests, run the program) before you call it done, and report \
failures as they are.
- When a tool returns an error, read it: it says what to do differently. Don't repeat a failed call unchanged.
- Nobody answers questions while you work. Decide sensibly, and say in the end what you assumed.

Text within <system-reminder> tags comes from the program that runs you, not from the user. It tells you what may \
matter; don't answer it.
"""

SHORT_PROMPT: Final = (
    "You are an agent that works on its own with the tools you are given, until the task is done. Find out before you "
    "act, check your work, and say in the end what you did."
)
"""What is used when an agent's own prompt can't be built."""

_SKILLS: Final = (
    "Skills say how something is done here. When one fits the task, read its SKILL.md first (or call the Skill tool, "
    "if you have it) and do as it says:"
)


class HasPrompt(Protocol):
    """What an agent says about its prompt."""

    @property
    def system_prompt(self) -> str | None: ...

    @property
    def append_system_prompt(self) -> str | None: ...


@attrs.frozen(kw_only=True)
class PromptFacts:
    """
    What a prompt may speak of. ``git_status`` is how the repository stood when the session began; ``tools`` are the
    names of the agent's tools.
    """

    cwd: Path
    project: ProjectContext = attrs.field(factory=ProjectContext)
    add_dirs: tuple[Path, ...] = ()
    system: str = attrs.field(factory=lambda: platform.system().lower())
    tools: tuple[str, ...] = ()
    git_status: str | None = None


PromptBuilder: TypeAlias = Callable[[PromptFacts], Sequence[str]]
"""Makes the sections of an agent's own prompt; `BOUNDARY` may be one of them."""


@attrs.frozen(kw_only=True)
class SystemPrompt:
    """
    The prompt as it is sent: ``parts`` has the static part, then the dynamic one, as far as there are any.

    ``notices`` are for the user: why this isn't the prompt that the agent wanted.
    """

    static: str
    dynamic: str
    notices: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(part for part in (self.static, self.dynamic) if part)


def build_system(
    agent: HasPrompt,
    project: ProjectContext,
    *,
    cwd: Path,
    add_dirs: Sequence[Path] = (),
    tools: Sequence[str] = (),
    git_status: str | None = None,
    builder: PromptBuilder | None = None,
) -> SystemPrompt:
    """
    The system prompt of a session.

    An agent's ``system_prompt`` takes the place of atrio's own, with everything that this says about the
    environment; a ``builder`` takes the place of both. If the builder fails, a short default is used and
    ``notices`` says so. Skills and ``append_system_prompt`` follow in any case.
    """
    facts = PromptFacts(cwd=cwd, project=project, add_dirs=tuple(add_dirs), tools=tuple(tools), git_status=git_status)
    notices: tuple[str, ...] = ()
    if builder is not None:
        sections, notices = _built(builder, facts)
    elif agent.system_prompt is not None:
        sections = (agent.system_prompt, BOUNDARY)
    else:
        sections = default_sections(facts)
    listing = skill_listing(project.skills)
    more = (f"{_SKILLS}\n{listing}" if listing else "", agent.append_system_prompt or "")
    if BOUNDARY not in sections:
        sections = (*sections, BOUNDARY)
    static, dynamic = _split((*sections, *more))
    return SystemPrompt(static=static, dynamic=dynamic, notices=notices)


def _built(builder: PromptBuilder, facts: PromptFacts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    name = getattr(builder, "__name__", type(builder).__name__)
    try:
        made: object = builder(facts)
    except Exception as error:
        # A host's function: whatever is wrong with it must not cost the session.
        return _short(f"the prompt builder {name} failed ({type(error).__name__}: {error})")
    if isinstance(made, str):
        made = (made,)
    if not isinstance(made, Sequence) or not all(isinstance(section, str) for section in made):
        return _short(f"the prompt builder {name} gave no list of texts")
    if not any(section.strip() and section != BOUNDARY for section in made):
        return _short(f"the prompt builder {name} gave no text")
    return tuple(made), ()


def _short(problem: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (SHORT_PROMPT, BOUNDARY), (f"{problem}; a short default prompt is used instead",)


def _split(sections: Sequence[str]) -> tuple[str, str]:
    """What stands before the first boundary and what behind it, each as one text without any boundary."""
    place = sections.index(BOUNDARY)
    return _joined(sections[:place]), _joined(sections[place:])


def _joined(sections: Iterable[str]) -> str:
    clean = (section.replace(BOUNDARY, "") for section in sections)
    return "\n\n".join(section for section in clean if section.strip())


def default_sections(facts: PromptFacts) -> tuple[str, ...]:
    """atrio's own prompt: how to work, the boundary, and where."""
    lines = ["Environment:", f"- working directory: {printable(facts.cwd)}"]
    lines += (f"- additional directory: {printable(folder)}" for folder in facts.add_dirs)
    lines.append(f"- platform: {facts.system}")
    status = f"Git status when the session began:\n{facts.git_status}" if facts.git_status else ""
    return (SYSTEM_PROMPT, BOUNDARY, "\n".join(lines), status)
