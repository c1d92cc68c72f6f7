"""
Looks up memories and skills while the model works, so that nobody ever waits for them.

An actor of the session: the loop says what a run and each of its turns are about, and later takes whatever has been
found by then. What comes too late is there the next time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs
import trio

from atrio.runtime.actor import Status
from atrio.runtime.childspec import ChildSpec, Restart
from atrio.runtime.mailbox import Address, Inbox, open_mailbox
from atrio.tools.files import in_thread

from .matching import best_matches
from .memory import MemoryFile, Recollection, recall, scan_memory
from .project import ProjectContext
from .skills import Skill

__all__ = ["Candidate", "Choose", "Found", "Prefetch", "choose_by_words"]

MAX_MEMORIES: Final = 5
MAX_SKILLS: Final = 3

SESSION_BYTES: Final = 60_000
"""All memories that one session is shown by itself; beyond that they would crowd out the work."""

CHOICE_LIMIT: Final = 10.0
"""Seconds for a choice. Later than that, the turn that it was for is over."""

_INBOX: Final = 4
_SHUTDOWN: Final = 5.0
_MIN_WORDS: Final = 2


@attrs.frozen(kw_only=True)
class Candidate:
    """Something that may matter: ``key`` tells it from others."""

    key: str
    name: str
    description: str


Choose: TypeAlias = Callable[[str, Sequence[Candidate], int], Awaitable[Sequence[str]]]
"""
Asked with a text, the candidates and how many to choose at most; gives the keys of those that matter. It may ask a
small model. If it fails or is slow, nothing is chosen, and a warning says so.
"""


async def choose_by_words(text: str, candidates: Sequence[Candidate], limit: int) -> Sequence[str]:
    """The choice that needs no model: shared words."""
    things = [(candidate.name, candidate.description) for candidate in candidates]
    positions = await in_thread(best_matches, text, things, limit)
    return [candidates[position].key for position in positions]


@attrs.frozen(kw_only=True)
class Found:
    """What was found since the last time."""

    memories: tuple[Recollection, ...] = ()
    skills: tuple[Skill, ...] = ()
    warnings: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class _Lookup:
    about: Literal["memories", "skills"]
    text: str
    run: int


class Prefetch:
    """The actor, and the desk at which the loop asks and takes. Asking and taking never wait."""

    name = "prefetch"

    def __init__(self, project: ProjectContext, choose: Choose = choose_by_words) -> None:
        self._project = project
        self._choose = choose
        self._address: Address[_Lookup]
        self.inbox: Inbox[_Lookup]
        self._address, self.inbox = open_mailbox(_INBOX, name=self.name)
        self.status = Status()
        self._scope = trio.CancelScope()
        self._open = 0
        self._settled = trio.Event()
        self._run = 0
        self._memories: list[Recollection] = []
        self._skills: list[Skill] = []
        self._warnings: list[str] = []
        self._shown: set[Path] = set()
        self._shown_bytes = 0
        self._suggested: set[str] = set()

    def spec(self) -> ChildSpec:
        """For the session's supervisor. Not restarted: a defect in here ends the looking up, never the session."""
        return ChildSpec(self.name, lambda: self, restart=Restart.TEMPORARY, shutdown=_SHUTDOWN)

    # --- the desk ---------------------------------------------------------------------------------

    def begin_run(self, prompt: str) -> None:
        """A run begins: look for memories that fit its prompt. A prompt of a single word says too little."""
        self.end_run()
        if self._project.memory.folders and len(prompt.split()) >= _MIN_WORDS:
            self._ask(_Lookup(about="memories", text=prompt, run=self._run))

    def begin_turn(self, text: str) -> None:
        """A turn begins: look for skills that fit what was said last. When others still wait, this is passed over."""
        if any(self._open_skills()) and len(text.split()) >= _MIN_WORDS:
            self._ask(_Lookup(about="skills", text=text, run=self._run))

    def _ask(self, lookup: _Lookup) -> None:
        if self._address.offer(lookup):
            self._open += 1
            if self._open == 1:
                self._settled = trio.Event()

    async def settle(self) -> None:
        """Wait until nothing is being looked up. For tests: a run doesn't wait. Cancelled: nothing changes."""
        if self._open:
            await self._settled.wait()

    def take(self, known: Container[Path] = frozenset()) -> Found:
        """
        What has been found by now, each thing once.

        ``known`` are files that the model has read or written; what they say need not be said again.
        """
        memories: list[Recollection] = []
        for memory in self._memories:
            size = len(memory.text.encode())
            if memory.path in known or memory.path in self._shown or self._shown_bytes + size > SESSION_BYTES:
                continue
            self._shown.add(memory.path)
            self._shown_bytes += size
            memories.append(memory)
        skills = [skill for skill in self._skills if skill.name not in self._suggested and skill.path not in known]
        self._suggested.update(skill.name for skill in skills)
        found = Found(memories=tuple(memories), skills=tuple(skills), warnings=tuple(self._warnings))
        self._drop()
        return found

    def end_run(self) -> None:
        """The run is over, however it ended: what is still being looked up for it is dropped."""
        self._run += 1
        self._scope.cancel(reason="the run that this was looked up for is over")
        self._drop()

    def forget(self) -> None:
        """The history that held what was shown has been cut away; it may be shown again."""
        self._shown.clear()
        self._shown_bytes = 0
        self._suggested.clear()

    def _drop(self) -> None:
        self._memories.clear()
        self._skills.clear()
        self._warnings.clear()

    # --- the actor --------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Look up what is asked for. Cancelled: the lookup in progress is given up, and nobody misses it."""
        task_status.started()
        while True:
            with self.status.waiting("something to look up"):
                lookup = await self.inbox.receive()
            try:
                if lookup.run == self._run:
                    await self._find(lookup)
            finally:
                self._open -= 1
                if not self._open:
                    self._settled.set()

    async def _find(self, lookup: _Lookup) -> None:
        with trio.CancelScope() as self._scope:
            if lookup.about == "memories":
                await self._find_memories(lookup)
            else:
                await self._find_skills(lookup)

    async def _find_memories(self, lookup: _Lookup) -> None:
        files, warnings = await in_thread(scan_memory, self._project.memory.folders)
        candidates = [_memory_candidate(file) for file in files if file.path not in self._shown]
        keys = await self._chosen(lookup, candidates, MAX_MEMORIES)
        recalled = await in_thread(recall, [Path(key) for key in keys])
        if lookup.run == self._run:
            self._memories += recalled
            self._warnings += warnings

    async def _find_skills(self, lookup: _Lookup) -> None:
        skills = {skill.name: skill for skill in self._open_skills()}
        candidates = [
            Candidate(key=skill.name, name=skill.name, description=skill.description) for skill in skills.values()
        ]
        keys = await self._chosen(lookup, candidates, MAX_SKILLS)
        if lookup.run == self._run:
            self._skills += (skills[key] for key in keys)

    def _open_skills(self) -> list[Skill]:
        return [skill for skill in self._project.skills if skill.listed and skill.name not in self._suggested]

    async def _chosen(self, lookup: _Lookup, candidates: Sequence[Candidate], limit: int) -> list[str]:
        if not candidates:
            return []
        offered = {candidate.key for candidate in candidates}
        chosen: list[str] = []
        with trio.move_on_after(CHOICE_LIMIT) as patience, self.status.waiting(f"a choice of {lookup.about}"):
            try:
                keys = await self._choose(lookup.text, candidates, limit)
                chosen = [key for key in dict.fromkeys(keys) if key in offered]
            except Exception as error:
                # A host's function: a memory that isn't shown must not cost the session.
                self._warn(lookup, f"the choice of {lookup.about} failed: {type(error).__name__}: {error}")
        if patience.cancelled_caught:
            self._warn(lookup, f"the choice of {lookup.about} took longer than {CHOICE_LIMIT:g} s and was given up")
        return chosen[:limit]

    def _warn(self, lookup: _Lookup, text: str) -> None:
        if lookup.run == self._run:
            self._warnings.append(text)


def _memory_candidate(file: MemoryFile) -> Candidate:
    return Candidate(key=str(file.path), name=file.path.stem, description=file.description)
