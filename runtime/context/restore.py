"""What a compaction puts back: recently read files and the skills in use, each and together within bounds. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ..messages import TextBlock, UserMessage
from ..state import derive_id
from ..tokens import Estimates, estimate_text

__all__ = ["RestoredFile", "RestoredSkill", "head_of", "restore_files", "restore_skills"]

MAX_FILES = 5
FILE_TOKENS = 5_000
FILES_TOKENS = 50_000
SKILL_TOKENS = 5_000
SKILLS_TOKENS = 25_000

SMALLEST_TOKENS = 200
"""A piece shorter than this helps nobody."""


@attrs.frozen(kw_only=True)
class RestoredFile:
    """A file that was read lately, as it is now."""

    path: str
    text: str


@attrs.frozen(kw_only=True)
class RestoredSkill:
    """A skill that was invoked."""

    name: str
    text: str


def restore_files(
    files: Sequence[RestoredFile], room: int, boundary_uuid: str, estimates: Estimates
) -> tuple[UserMessage, ...]:
    """The newest five files (newest first), 5,000 tokens each, 50,000 together, at most ``room``."""
    items = [(f"The file {file.path}, read before, holds now:\n", file.text) for file in files[:MAX_FILES]]
    return _fitted("file", items, FILE_TOKENS, min(room, FILES_TOKENS), boundary_uuid, estimates)


def restore_skills(
    skills: Sequence[RestoredSkill], room: int, boundary_uuid: str, estimates: Estimates
) -> tuple[UserMessage, ...]:
    """Skills, newest first, the head of each: 5,000 tokens, 25,000 together, at most ``room``."""
    items = [(f"The skill {skill.name}, in use in this session:\n", skill.text) for skill in skills]
    return _fitted("skill", items, SKILL_TOKENS, min(room, SKILLS_TOKENS), boundary_uuid, estimates)


def _fitted(
    kind: str,
    items: Sequence[tuple[str, str]],
    each: int,
    room: int,
    boundary_uuid: str,
    estimates: Estimates,
) -> tuple[UserMessage, ...]:
    kept: list[UserMessage] = []
    for number, (header, text) in enumerate(items):
        if min(each, room) < SMALLEST_TOKENS:
            break
        content = (TextBlock(header + head_of(text, min(each, room) - estimate_text(header) - 10)),)
        uuid = derive_id(boundary_uuid, kind, number)
        message = UserMessage(uuid=uuid, content=content, origin="attachment", hidden=True)
        room -= estimates.of(message)
        kept.append(message)
    return tuple(kept)


_CUT = "\n[... the rest is left out here; read it again if it is needed]"


def head_of(text: str, tokens: int) -> str:
    """As much of the text's beginning as takes ``tokens`` (estimated), by whole lines where there are any."""
    if (size := estimate_text(text)) <= tokens:
        return text
    wanted = tokens - estimate_text(_CUT)
    head = text
    while head and size > wanted:
        head = head[: min(len(head) - 1, int(len(head) * max(0, wanted) / size))]
        size = estimate_text(head)
    cut = head.rfind("\n")
    if cut > len(head) // 2:
        head = head[:cut]
    return head + _CUT
