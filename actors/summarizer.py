"""
The summarizer: tells a person in a few words what a run does. It may fail freely, and the run never feels it.

It listens to the run's events like any subscriber. Every now and then, while something happens, it asks a small model
what the agent is about; and for each batch of tool calls what that has come to, while the next model call is under way.
What it has to tell goes to the loop, the only one that publishes; if the loop is busy, it is dropped.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import attrs
import trio

from atrio.runtime.actor import Status
from atrio.runtime.asides import (
    ACTIVITY_WORDS,
    CALLS_WORDS,
    CallNote,
    Question,
    activity_question,
    calls_question,
    note_of,
    read_line,
)
from atrio.runtime.events import AssistantBlock, Event, MessageWithdrawn, ToolEnded, TurnEnded, UserMessageAdded
from atrio.runtime.mailbox import Address
from atrio.runtime.messages import TextBlock, ToolUseBlock, text_of

from .asker import Asker, Book
from .broadcaster import Broadcaster
from .protocol import ActivityNoted, CallsSummarized, LoopInput

__all__ = ["EVERY", "Summarizer"]

EVERY: Final = 30.0
"""Seconds from one summary to the next question."""

ANSWER_LIMIT: Final = 20.0
"""Seconds for an answer: an older one describes what is no longer going on."""

MIN_NOTES: Final = 2
"""With fewer than that, the prompt itself says what goes on."""

KEPT_NOTES: Final = 10


@attrs.define(eq=False)
class _Batch:
    """The tool calls of the turn in progress."""

    said: str = ""
    labels: dict[str, str] = attrs.field(factory=dict)
    outcomes: dict[str, str] = attrs.field(factory=dict)

    def notes(self) -> tuple[CallNote, ...]:
        return tuple(CallNote(id=id, label=label, outcome=self.outcomes.get(id)) for id, label in self.labels.items())


class Summarizer:
    """The actor. It is not restarted: a defect in here ends the summaries, never the run."""

    name = "summarizer"

    def __init__(self, *, prompt: str, bus: Broadcaster, loop: Address[LoopInput], asker: Asker, book: Book) -> None:
        self._prompt = prompt
        self._bus = bus
        self._loop = loop
        self._asker = asker
        self._book = book
        self._notes: deque[str] = deque(maxlen=KEPT_NOTES)
        self._noted = 0
        self._batch = _Batch()
        self._summarizing = False
        self.status = Status()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Summarise until cancelled. Cancelled: the questions under way are given up; what they cost is booked."""
        events = self._bus.subscribe(partials=False)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell_activity)
                task_status.started()
                async for event in events:
                    self._take(event, nursery)
        finally:
            self._bus.unsubscribe(events)

    # --- what happens -----------------------------------------------------------------------------

    def _take(self, event: Event, nursery: trio.Nursery) -> None:
        match event:
            case AssistantBlock():
                self._note(note_of(event.block))
                if isinstance(event.block, TextBlock):
                    self._batch.said = event.block.text
                elif isinstance(event.block, ToolUseBlock):
                    self._batch.labels[event.block.id] = note_of(event.block) or event.block.name
            case ToolEnded():
                self._note(note_of(event.result))
                self._batch.outcomes[event.call_id] = note_of(event.result) or ""
            case UserMessageAdded() if event.message.origin == "steer":
                self._note(f"the user says: {text_of(event.message.content)[:200]}")
            case MessageWithdrawn():
                self._batch = _Batch()
            case TurnEnded():
                batch, self._batch = self._batch, _Batch()
                # One at a time: with a model slower than the agent, batches go without rather than pile up.
                if batch.labels and not self._summarizing:
                    self._summarizing = True
                    nursery.start_soon(self._summarize, batch)
            case _:
                return

    def _note(self, text: str | None) -> None:
        if text is not None:
            self._notes.append(text)
            self._noted += 1

    # --- what is told -----------------------------------------------------------------------------

    async def _tell_activity(self) -> None:
        told: str | None = None
        seen = 0
        while True:
            await trio.sleep(EVERY)
            if self._noted == seen or self._noted < MIN_NOTES:
                continue
            seen = self._noted
            question = activity_question(self._prompt, tuple(self._notes), told)
            with self.status.waiting("a summary of what goes on"):
                text = await self._ask(question, ACTIVITY_WORDS)
            if text is not None and text != told:
                told = text
                self._loop.offer(ActivityNoted(text))

    async def _summarize(self, batch: _Batch) -> None:
        try:
            calls = batch.notes()
            text = await self._ask(calls_question(calls, batch.said), CALLS_WORDS)
            if text is not None:
                self._loop.offer(CallsSummarized(tuple(call.id for call in calls), text))
        finally:
            self._summarizing = False

    async def _ask(self, question: Question, max_words: int) -> str | None:
        answer = await self._asker.ask(question, limit=ANSWER_LIMIT, book=self._book)
        return read_line(answer, max_words) if answer is not None else None
