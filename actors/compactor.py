"""
The compactor: makes each request's view of the history, and room in it when it is too long.

The actor is a thin shell: what is decided and remembered is the keeper's (`atrio.actors.keeper`), so that a crash of
this actor costs one compaction and nothing else. It answers the loop by its mailbox, never with a wait.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar, assert_never

import trio

from atrio.runtime.actor import Status
from atrio.runtime.errors import ContextExhausted, PeerGone
from atrio.runtime.mailbox import Address, Inbox
from atrio.runtime.result import TerminalReason

from .keeper import Keeper
from .protocol import ContextJob, ContextPrepared, ContextRefused, LoopInput, MakeRoom, NoRoom, PrepareContext, RoomMade
from .side_call import SideCall

__all__ = ["Compactor"]

T = TypeVar("T")

CONTEXT_LIMIT = 7 * 3600.0
"""
Seconds that preparing or compacting a history may take. What does so keeps limits of its own and may have to wait out
a rate limit of hours; this is for one that never comes back.
"""


class Compactor:
    """The actor. Its crash means that this compaction failed; the run goes on."""

    name = "compactor"

    def __init__(self, *, inbox: Inbox[ContextJob], loop: Address[LoopInput], keeper: Keeper, side: SideCall) -> None:
        self._inbox = inbox
        self._loop = loop
        self._keeper = keeper
        self._side = side
        self.status = Status()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve jobs until cancelled. Cancelled: the history is as it was."""
        try:
            await self._serve_all(task_status)
        finally:
            await self._side.pool.aclose()  # noqa: ASYNC102  # shielded and bounded there

    async def _serve_all(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            task_status.started()
            async for job in self._inbox:
                with self.status.waiting("the context"):
                    answer = await self._serve(job)
                try:
                    self._loop.reply(answer)
                except PeerGone:
                    # The loop has ended: nobody needs the answer.
                    break
                if (background := self._keeper.background(job, self._side)) is not None:
                    nursery.start_soon(background)

    async def _serve(self, job: ContextJob) -> LoopInput:
        match job:
            case PrepareContext():
                try:
                    return ContextPrepared(job.number, await _in_time(self._keeper.prepare(job, self._side)))
                except ContextExhausted as error:
                    return ContextRefused(job.number, str(error), TerminalReason(error.kind), self._keeper.take_paid())
                except Exception as error:
                    if not self._keeper.injected:
                        raise
                    # The embedding program's own function: its error is its business, and ends the turn by name.
                    text = f"preparing the turn failed: {type(error).__name__}: {error}"
                    return ContextRefused(job.number, text, TerminalReason.TURN_SETUP_FAILED)
            case MakeRoom():
                try:
                    return RoomMade(job.number, job.level, await _in_time(self._keeper.make_room(job, self._side)))
                except ContextExhausted as error:
                    return NoRoom(job.number, job.level, str(error), self._keeper.take_paid())
                except Exception as error:
                    if not self._keeper.injected:
                        raise
                    return NoRoom(job.number, job.level, f"{type(error).__name__}: {error}")
            case _:
                assert_never(job)


async def _in_time(work: Awaitable[T]) -> T:
    """What ``work`` gives. Raises TimeoutError after `CONTEXT_LIMIT`."""
    with trio.move_on_after(CONTEXT_LIMIT):
        return await work
    raise TimeoutError(f"it took more than {CONTEXT_LIMIT:g} s")
