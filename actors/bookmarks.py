"""
Bookmarks: what the session does in the background once a run is over. Nobody waits for it, and nobody misses it.

One actor works off the runs that have ended: a guess at the next prompt, notes for the memory, and now and then the
memory put in order. Each is a question to the model without tools, in bounded time. A new run makes a guess void; the
session's end makes everything void. Failures are in the log, at debug level.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import attrs
import trio

from atrio.runtime.actor import Status
from atrio.runtime.bookmarks import Bookmark, read_suggestion, suggestion_question
from atrio.runtime.childspec import ChildSpec, Restart
from atrio.runtime.events import Event, PromptSuggested
from atrio.runtime.memory_notes import extraction_question, read_notes, read_tidied, tidying_question
from atrio.runtime.messages import AssistantMessage, Message
from atrio.tools.files import in_thread

from .asker import Asker, Book
from .context.memory_files import (
    Redact,
    consolidation_due,
    keep_notes,
    put_in_order,
    read_shelf,
    release,
    reserve,
)

__all__ = ["Bookmarks"]

SUGGESTION_LIMIT: Final = 20.0
"""Seconds. Later, the user has begun to type."""

MEMORY_LIMIT: Final = 180.0
"""Seconds for a question about the memory, whose answer may be long."""

SCAN_EVERY: Final = 600.0
"""Seconds between two looks at whether the memory is to be put in order."""

SHUTDOWN: Final = 2.0
EDITS: Final = frozenset(("Write", "Edit", "MultiEdit"))

_log: Final = logging.getLogger("atrio.asides")


@attrs.frozen(kw_only=True)
class _Ended:
    """A run that has come to its end by itself."""

    run_id: str
    messages: tuple[Message, ...]


@attrs.define(eq=False, kw_only=True)
class Bookmarks:
    """
    The actor, and the desk at which the session says what happens. Saying never waits.

    Args:
        wanted: what is to be done.
        publish: takes the suggestion as an event.
        memory: the folder for notes; None: no notes.
        journals: the folder with the project's sessions.
        now: the wall clock.
    """

    name = "bookmarks"

    wanted: frozenset[Bookmark]
    asker: Asker
    book: Book
    publish: Callable[[Event], None]
    memory: Path | None
    journals: Path
    redact: Redact
    now: Callable[[], datetime]
    suggestion: PromptSuggested | None = None
    """For the last run that has ended; None while there is none."""
    status: Status = attrs.field(factory=Status)
    _next: _Ended | None = None
    _wake: trio.Event = attrs.field(factory=trio.Event)
    _idle: trio.Event = attrs.field(factory=trio.Event)
    _guessing: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _remembered: str | None = None
    """The last message that was looked at for the memory."""
    _looked: float = float("-inf")
    _ended: bool = False

    def spec(self) -> ChildSpec:
        """For the session's supervisor. Not restarted: a defect in here ends the bookmarks, never the session."""
        return ChildSpec(self.name, lambda: self, restart=Restart.TEMPORARY, shutdown=SHUTDOWN)

    # --- the desk ---------------------------------------------------------------------------------

    def run_begins(self) -> None:
        """The user has said what comes next: a guess at it is void."""
        self.suggestion = None
        self._guessing.cancel(reason="the next run has begun")

    def run_ended(self, run_id: str, messages: tuple[Message, ...]) -> None:
        """A run has come to its end by itself. If an earlier one still waits for its turn, this takes its place."""
        if self._ended:
            return
        self._next = _Ended(run_id=run_id, messages=messages)
        self._guessing = trio.CancelScope()
        if self._idle.is_set():
            self._idle = trio.Event()
        self._wake.set()

    async def settle(self) -> None:
        """Wait until nothing is left to be done. Cancelled: it goes on all the same."""
        if self._next is not None or not self._idle.is_set():
            await self._idle.wait()

    # --- the actor --------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Work off what has ended. Cancelled: what is in progress is given up, files are whole."""
        task_status.started()
        try:
            while True:
                if self._next is None:
                    self._idle.set()
                    with self.status.waiting("the end of a run"):
                        await self._wake.wait()
                self._wake = trio.Event()
                ended, self._next = self._next, None
                if ended is not None:
                    await self._follow(ended)
        finally:
            self._ended = True
            self._next = None
            self._idle.set()

    async def _follow(self, ended: _Ended) -> None:
        if Bookmark.PROMPT_SUGGESTION in self.wanted:
            await self._suggest(ended)
        if self.memory is None:
            return
        try:
            if Bookmark.MEMORY_EXTRACTION in self.wanted:
                await self._remember(ended, self.memory)
            if Bookmark.MEMORY_CONSOLIDATION in self.wanted:
                await self._tidy(self.memory)
        except OSError as error:
            _log.debug("the memory in %s can't be written: %s", self.memory, error)

    async def _suggest(self, ended: _Ended) -> None:
        question = suggestion_question(ended.messages)
        if question is None:
            return
        with self._guessing, self.status.waiting("a suggestion"):
            answer = await self.asker.ask(question, limit=SUGGESTION_LIMIT, book=self.book)
            text = read_suggestion(answer) if answer is not None else None
            if text is not None:
                self.suggestion = PromptSuggested(run_id=ended.run_id, text=text)
                self.publish(self.suggestion)

    # --- memory -----------------------------------------------------------------------------------

    async def _remember(self, ended: _Ended, folder: Path) -> None:
        new = _after(ended.messages, self._remembered)
        if not new:
            return
        self._remembered = new[-1].uuid
        if _writes_below(new, folder):
            return
        known = (await in_thread(read_shelf, folder)).descriptions
        with self.status.waiting("what is to be remembered"):
            question = extraction_question(new, known)
            answer = await self.asker.ask(question, limit=MEMORY_LIMIT, book=self.book)
        if answer is not None and (notes := read_notes(answer)):
            kept = await in_thread(keep_notes, folder, notes, self.redact)
            _log.debug("remembered in %s: %s", folder, ", ".join(kept) or "nothing")

    async def _tidy(self, folder: Path) -> None:
        if trio.current_time() - self._looked < SCAN_EVERY:
            return
        self._looked = trio.current_time()
        now = self.now().timestamp()
        if not await in_thread(consolidation_due, folder, self.journals, now):
            return
        if not await in_thread(reserve, folder, now):
            return
        done = False
        try:
            done = await self._put_in_order(folder)
        finally:
            # A few system calls; a lock that stays behind would keep others out for an hour.
            release(folder, now, done=done)

    async def _put_in_order(self, folder: Path) -> bool:
        """Whether that was seen to; if not, it is tried again later."""
        shelf = await in_thread(read_shelf, folder)
        question = tidying_question(shelf.texts, shelf.index, f"{self.now():%Y-%m-%d}")
        with self.status.waiting("the memory to be put in order"):
            answer = await self.asker.ask(question, limit=MEMORY_LIMIT, book=self.book)
        if answer is None:
            return False
        wanted = read_tidied(answer)
        return not wanted.changes or await in_thread(put_in_order, folder, shelf, wanted, self.redact)


def _after(messages: Sequence[Message], uuid: str | None) -> tuple[Message, ...]:
    """What came behind a message; everything if it is no longer there."""
    position = next((n for n, message in enumerate(messages) if message.uuid == uuid), -1)
    return tuple(messages[position + 1 :])


def _writes_below(messages: Sequence[Message], folder: Path) -> bool:
    """The agent itself has written memory: whatever was worth it, it has noted."""
    calls = (call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_uses)
    paths = (str(call.input.get("file_path", "")) for call in calls if call.name in EDITS)
    return any(path.startswith(f"{folder}/") for path in paths)
