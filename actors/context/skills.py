"""
Skills: folders with a ``SKILL.md`` that says how something is done. Read from ``.atrio/skills`` and ``.claude/skills``.

The model first sees a listing (name, description, path); the whole text comes when it asks for one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from atrio.runtime.errors import ToolRejected
from atrio.tools.files import in_thread

from .front_matter import FrontMatter, parse_front_matter
from .instructions import repository_of
from .texts import Unreadable, printable, read_text

__all__ = ["LoadedSkill", "Skill", "find_skills", "load_skill", "skill_listing"]

FILE_LIMIT_BYTES: Final = 256 * 1024
MAX_SKILLS: Final = 300
MAX_ENTRIES: Final = 2_000

DESCRIPTION_CHARS: Final = 1_536
"""Of one description; what is longer explains what the skill itself should."""

LISTING_CHARS: Final = 16_000
"""The whole listing: about 4,000 tokens, which every request carries."""

SHORT_CHARS: Final = 60
"""Descriptions are cut no shorter than this; then names stand alone."""

_NAME: Final = re.compile(r"[\w.:-]{1,64}")


@attrs.frozen(kw_only=True)
class Skill:
    """
    What is known of a skill without reading it all.

    ``listed``: the model may see it; else only the user calls it. ``globs``: files that it is about.
    """

    name: str
    description: str
    path: Path
    listed: bool = True
    globs: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where the files are that its text names."""
        return self.path.parent


@attrs.frozen(kw_only=True)
class LoadedSkill:
    """A skill's whole text, ready for the model. It has no front matter."""

    skill: Skill
    text: str

    def within(self, chars: int) -> str:
        """Its beginning, at most so long, with a pointer to the rest: for what is restored after a compaction."""
        if len(self.text) <= chars:
            return self.text
        note = f"\n[The rest was left out; it is in {printable(self.skill.path)}.]"
        return self.text[: max(0, chars - len(note))] + note


def find_skills(cwd: Path, home: Path, user_home: Path | None) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """
    All skills, sorted by name, and warnings. Blocking.

    Of two with one name the user's own wins over the project's, the nearer folder over the one above, ``.atrio`` over
    ``.claude``.
    """
    warnings: list[str] = []
    skills: dict[str, Skill] = {}
    seen: set[str] = set()
    for folder in _folders(cwd, home, user_home):
        for path in _skill_files(folder):
            # Links may make one skill appear in several places.
            if (found := os.path.realpath(path)) in seen:
                continue
            seen.add(found)
            skill = _read(path, warnings)
            if skill is None:
                continue
            winner = skills.setdefault(skill.name, skill)
            if winner is not skill:
                warnings.append(f"{printable(path)}: hidden by the skill of the same name, {printable(winner.path)}")
    if len(skills) > MAX_SKILLS:
        warnings.append(f"skills: there are {len(skills)}; only the first {MAX_SKILLS} by name are used")
    return tuple(sorted(skills.values(), key=lambda skill: skill.name)[:MAX_SKILLS]), tuple(warnings)


def _folders(cwd: Path, home: Path, user_home: Path | None) -> Iterable[Path]:
    yield home / "skills"
    if user_home is not None:
        yield user_home / ".claude" / "skills"
    top = repository_of(cwd) or cwd
    for folder in (cwd, *cwd.parents):
        yield folder / ".atrio" / "skills"
        yield folder / ".claude" / "skills"
        if folder == top:
            return


def _skill_files(folder: Path) -> list[Path]:
    """The ``SKILL.md`` of each folder in it, in order of their names."""
    try:
        names = sorted(os.listdir(folder))[:MAX_ENTRIES]
    except OSError:
        return []
    return [path for name in names if os.path.exists(path := folder / name / "SKILL.md")]


def _read(path: Path, warnings: list[str]) -> Skill | None:
    file = read_text(path, FILE_LIMIT_BYTES)
    if file is None:
        return None
    if isinstance(file, Unreadable):
        warnings.append(str(file))
        return None
    where = printable(path)
    matter = parse_front_matter(file.text)
    warnings += (f"{where}: {problem}" for problem in matter.problems)
    if file.problem:
        warnings.append(file.problem)
    description = _description(matter)
    if not description:
        warnings.append(f"{where}: skipped, as it says nothing; give it a description and a text")
        return None
    name = matter.text("name") or path.parent.name
    if not _NAME.fullmatch(name):
        warnings.append(f"{where}: {name[:80]!r} is no name for a skill; its folder's name is used")
        name = re.sub(r"[^\w.:-]+", "-", printable(Path(path.parent.name)))[:64]
    return Skill(
        name=name,
        description=description,
        path=path,
        listed=not matter.flag("disable-model-invocation", False),
        globs=tuple(dict.fromkeys((*matter.items("paths"), *matter.items("globs")))),
    )


def _description(matter: FrontMatter) -> str:
    """One line: as the front matter says, else the text's first paragraph."""
    said = matter.text("description")
    if said is None:
        paragraphs = (part.strip() for part in re.split(r"\n\s*\n", matter.body))
        said = next((part for part in paragraphs if part and not part.startswith("#")), "")
    when = matter.text("when_to_use")
    return _cut(" ".join(f"{said} {when or ''}".split()), DESCRIPTION_CHARS)


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 3].rstrip() + "..."


# --- for the model --------------------------------------------------------------------------------


def skill_listing(skills: Sequence[Skill], limit_chars: int = LISTING_CHARS) -> str:
    """
    One line for each skill that the model may see, under the folder that holds it; empty if there is none. Pure, and
    the same for the same skills.

    What would be longer than the limit gets shorter descriptions, then none, then an end that counts what is missing.
    """
    shown = [skill for skill in skills if skill.listed]
    for chars in (DESCRIPTION_CHARS, 400, 200, 100, SHORT_CHARS, 0):
        text = _listing(shown, chars)
        if len(text) <= limit_chars:
            return text
    kept = len(shown)
    while kept and len(_listing(shown[:kept], 0)) + len(_missing(len(shown))) + 1 > limit_chars:
        kept -= 1
    return f"{_listing(shown[:kept], 0)}\n{_missing(len(shown) - kept)}".lstrip("\n")


def _listing(skills: Sequence[Skill], chars: int) -> str:
    groups: dict[Path, list[str]] = {}
    for skill in skills:
        line = f"- {skill.name}"
        if skill.folder.name != skill.name:
            line += f" (in {printable(Path(skill.folder.name))}/)"
        if chars:
            line += f": {_cut(skill.description, chars)}"
        groups.setdefault(skill.folder.parent, []).append(line)
    return "\n".join(line for folder, lines in sorted(groups.items()) for line in (f"In {printable(folder)}:", *lines))


def _missing(count: int) -> str:
    return f"- ... and {count} more, whose names found no room here"


async def load_skill(skill: Skill, arguments: str = "") -> LoadedSkill:
    """
    The whole skill. ``$ARGUMENTS`` in it becomes ``arguments``, which otherwise stand at its end.

    Cancelled: nothing was changed.

    Raises:
        ToolRejected: its file is gone or can't be used any more.
    """
    file = await in_thread(read_text, skill.path, FILE_LIMIT_BYTES)
    if file is None:
        raise ToolRejected(f"The skill {skill.name} is gone: there is no file {printable(skill.path)} any more.")
    if isinstance(file, Unreadable):
        raise ToolRejected(f"The skill {skill.name} can't be used. {file}.")
    body = parse_front_matter(file.text).body
    body = body.replace("${CLAUDE_SKILL_DIR}", printable(skill.folder))
    if "$ARGUMENTS" in body:
        body = body.replace("$ARGUMENTS", arguments)
    elif arguments:
        body = f"{body.rstrip()}\n\nARGUMENTS: {arguments}\n"
    return LoadedSkill(skill=skill, text=f"Base directory of this skill: {printable(skill.folder)}\n\n{body}")
