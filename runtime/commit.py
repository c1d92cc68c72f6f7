"""
Group commit: one ``fdatasync`` round at a time for all journals of the process.

Whoever wants to be durable while a round is under way joins the next one, so that two hundred sessions share a
thread hop and the disk sees each file once a round.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import attrs
import trio

__all__ = ["GroupCommit", "group_commit"]


THREADS = 8
"""A file system makes one commit of what is asked for at the same time: 200 files took a thirtieth of the time."""


@attrs.define(eq=False)
class _Ticket:
    fd: int
    done: bool = False
    error: OSError | None = None
    given_up: bool = False


@attrs.define(eq=False)
class GroupCommit:
    """One for each Trio run; see `group_commit`. ``rounds`` and ``commits`` count what it did."""

    rounds: int = 0
    commits: int = 0
    _waiting: list[_Ticket] = attrs.field(factory=list)
    _leading: bool = False
    _round_over: trio.Event = attrs.field(factory=trio.Event)
    _limiter: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(THREADS))

    async def sync(self, fd: int) -> None:
        """
        Wait until what was written to ``fd`` is on disk.

        Cancelled: it may be, or not. The descriptor must stay open until this returns or raises; a round that is
        under way then meets a closed descriptor or one file more, and tells nobody.

        Raises:
            OSError: the disk refused.
        """
        ticket = _Ticket(fd)
        self._waiting.append(ticket)
        try:
            while not ticket.done:
                if self._leading:
                    await self._round_over.wait()
                else:
                    await self._lead()
        finally:
            if not ticket.done:
                ticket.given_up = True
                self._waiting = [other for other in self._waiting if other is not ticket]
        if ticket.error is not None:
            # An error object of its own: others may raise the same outcome in their tasks.
            raise OSError(ticket.error.errno, ticket.error.strerror) from ticket.error

    async def _lead(self) -> None:
        """One round: everything that waits now."""
        group, self._waiting = self._waiting, []
        self._leading = True
        try:
            # Never abandoned: the descriptors must not be closed under the thread.
            await self._sync(group)
            self.rounds += 1
            self.commits += len(group)
        finally:
            # A leader that was cancelled before the round began leaves it to the next.
            left = [ticket for ticket in group if not ticket.done and not ticket.given_up]
            self._waiting = left + self._waiting
            self._leading = False
            self._round_over.set()
            self._round_over = trio.Event()

    async def _sync(self, group: Sequence[_Ticket]) -> None:
        fds = list(dict.fromkeys(ticket.fd for ticket in group))
        outcomes: dict[int, OSError | None] = {}

        async def sync_some(some: Sequence[int]) -> None:
            outcomes.update(await trio.to_thread.run_sync(_sync_all, some, limiter=self._limiter))

        width = -(-len(fds) // THREADS)
        try:
            async with trio.open_nursery() as nursery:
                for start in range(0, len(fds), width):
                    nursery.start_soon(sync_some, fds[start : start + width])
        finally:
            for ticket in group:
                if ticket.fd in outcomes:
                    ticket.done, ticket.error = True, outcomes[ticket.fd]


def _sync_all(fds: Sequence[int]) -> dict[int, OSError | None]:
    outcomes: dict[int, OSError | None] = {}
    for fd in fds:
        try:
            os.fdatasync(fd)
            outcomes[fd] = None
        except OSError as error:
            outcomes[fd] = error
    return outcomes


_commit: trio.lowlevel.RunVar[GroupCommit] = trio.lowlevel.RunVar("atrio_group_commit")


def group_commit() -> GroupCommit:
    """The group commit of this Trio run."""
    try:
        return _commit.get()
    except LookupError:
        commit = GroupCommit()
        _commit.set(commit)
        return commit
