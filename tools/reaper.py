"""
Finds every process that one command started, and ends them all.

A process group misses whoever calls ``setsid``, and parent links are lost when a parent dies. So on Linux a process
belongs to a command when it is in the leader's session or group, descends from a member, was found to be a member
before, or carries the command's token in its environment, which forks and daemons inherit. What this misses is a
process that clears its environment, leaves the session and loses its parent, all before the command ends.
Elsewhere only the process group is known.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

import attrs
import trio

__all__ = ["KILL_LIMIT", "TOKEN_VARIABLE", "ProcessTree", "Stopped"]

TOKEN_VARIABLE: Final = "ATRIO_CALL"
"""The environment variable that holds the tokens of the command, and of those around it, separated by colons."""

KILL_LIMIT: Final = 2.0
"""Seconds that killed processes get to vanish. Only one stuck in the kernel (a dead network disk) needs longer."""

FIRST_PAUSE: Final = 0.002
LONGEST_PAUSE: Final = 0.05
"""Seconds between two looks: short at first, as most processes end at once, then easy on the processor."""

PF_EXITING: Final = 0x4
"""The kernel's flag for a process that is about to end."""

SCAN_TRIES: Final = 25
"""
Scans in a row while it is uncertain that nobody is left. A process that forked and ended shortly before it was looked
at may have left a child unseen, and one in the middle of ``execve`` has no environment to look into.
"""

SCAN_PAUSE: Final = 0.001
"""Seconds between them; an ``execve`` takes less."""


@attrs.frozen
class Member:
    """A process: its pid, and when it started (clock ticks since boot), since pids are used again."""

    pid: int
    started: int
    name: str = attrs.field(eq=False, default="")


@attrs.frozen(kw_only=True)
class Stopped:
    """The names of the processes that were told to end, and of those that are still there all the same."""

    names: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()


@attrs.frozen
class _Status:
    """What /proc says of one process."""

    member: Member
    ended: bool
    ending: bool
    """It is on its way out by itself: its files are closed already, but it still is in the table."""
    parent: int
    group: int
    session: int


@attrs.define(eq=False)
class ProcessTree:
    """
    The processes of one command.

    Args:
        leader: the pid of the command's first process, which leads a session of its own.
        token: unique text in the leader's environment, under `TOKEN_VARIABLE`.
        reap: collects the leader's exit status if it has ended. Called again and again.
    """

    leader: int
    token: str
    reap: Callable[[], object]
    _started: int | None = attrs.field(init=False)
    _known: set[Member] = attrs.field(init=False, factory=set)
    _asked: dict[Member, str] = attrs.field(init=False, factory=dict)
    _dead: set[Member] = attrs.field(init=False, factory=set)
    _unsure: bool = attrs.field(init=False, default=False)
    """The last scan may have missed somebody."""

    @_started.default
    def _look_up_start(self) -> int | None:
        status = _read_status(self.leader) if sys.platform == "linux" else None
        return status.member.started if status is not None else None

    async def stop(self, grace: float) -> Stopped:
        """
        End all of them: ask (SIGTERM), give them ``grace`` seconds together, then kill, and look until none is left.

        Returns as soon as all are gone, at the latest after ``grace`` plus `KILL_LIMIT` seconds. Cancelled: may
        leave processes behind, so callers shield it.
        """
        sweep = self._sweep if self._started is not None else self._sweep_group
        deadline = trio.current_time() + grace
        pause = FIRST_PAUSE
        limiter = trio.CapacityLimiter(1)
        while True:
            late = trio.current_time() >= deadline
            left = await trio.to_thread.run_sync(sweep, late, limiter=limiter)
            self.reap()
            if not left or trio.current_time() >= deadline + KILL_LIMIT:
                return Stopped(names=tuple(self._asked.values()), survivors=tuple(member.name for member in left))
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _sweep(self, kill: bool) -> list[Member]:
        """Look until somebody is found or surely nobody is there; signal who is there, and say who that is."""
        # Whoever comes up while others are still cleaning up may be their helper: it isn't disturbed.
        wait = not kill and any(_is_running(member) for member in self._asked)
        number = None if wait else signal.SIGKILL if kill else signal.SIGTERM
        for attempt in range(SCAN_TRIES):
            if attempt:
                time.sleep(SCAN_PAUSE)
            self._unsure = False
            members = self._scan(number)
            if members or not self._unsure:
                return members
        return []

    def _scan(self, number: signal.Signals | None) -> list[Member]:
        """One look at all processes. The newest come first and are signalled at once, before they fork again."""
        others: dict[int, _Status] = {}
        inside: dict[int, _Status] = {}
        for pid in sorted((int(entry) for entry in os.listdir("/proc") if entry.isdecimal()), reverse=True):
            status = _read_status(pid)
            if status is None:
                self._unsure = True
            elif status.member.started >= (self._started or 0):
                if self._is_member(status):
                    self._strike(status, number)
                    inside[pid] = status
                else:
                    others[pid] = status
        while found := {pid: status for pid, status in others.items() if status.parent in inside}:
            for pid, status in found.items():
                self._strike(status, number)
                inside[pid] = others.pop(pid)
        members = [status.member for status in inside.values() if not status.ended]
        self._known.update(members)
        return members

    def _strike(self, status: _Status, number: signal.Signals | None) -> None:
        if status.ended:
            self._bury(status)
        elif (
            number is not None and not status.ending and (number == signal.SIGKILL or status.member not in self._asked)
        ):
            _send(status.member, number)
            self._asked[status.member] = status.member.name

    def _is_member(self, status: _Status) -> bool:
        if self.leader in (status.member.pid, status.group, status.session) or status.member in self._known:
            return True
        if status.ended:
            self._unsure |= status.member not in self._dead
            self._dead.add(status.member)
            return False
        environment = _read_file(f"/proc/{status.member.pid}/environ")
        self._unsure |= not environment
        return self.token.encode() in environment

    def _bury(self, status: _Status) -> None:
        """Orphans come to us where we are process 1 of a container; nobody else would collect them."""
        if status.parent == os.getpid() and status.member.pid != self.leader:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(status.member.pid, os.WNOHANG)

    def _sweep_group(self, kill: bool) -> list[Member]:
        """The same where there is no /proc: whoever is left of the group, as one."""
        group = Member(self.leader, 0, f"process group {self.leader}")
        number = signal.SIGKILL if kill else 0 if group in self._asked else signal.SIGTERM
        try:
            os.killpg(self.leader, number)
        except (ProcessLookupError, PermissionError):  # macOS: EPERM where only dead ones are left
            return []
        self._asked.setdefault(group, group.name)
        return [group]


def _read_status(pid: int) -> _Status | None:
    """None: there is no such process any more."""
    data = _read_file(f"/proc/{pid}/stat")
    if not data:
        return None
    # The name is in parentheses and may hold any character, parentheses too.
    front, _, back = data.rpartition(b")")
    fields = back.split()
    name = front.partition(b"(")[2].decode("utf-8", "replace")
    member = Member(pid, int(fields[19]), name)
    # With more than one thread, only the first one is dead, and the process lives on.
    single = int(fields[17]) <= 1
    ended = single and fields[0] in (b"Z", b"X")
    ending = single and bool(int(fields[6]) & PF_EXITING)
    return _Status(member, ended, ending, int(fields[1]), int(fields[2]), int(fields[3]))


def _is_running(member: Member) -> bool:
    status = _read_status(member.pid)
    return status is not None and status.member == member and not status.ended


def _read_file(path: str) -> bytes:
    """A file of /proc; empty where the process is gone."""
    parts: list[bytes] = []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while part := os.read(descriptor, 65_536):
                parts.append(part)
        finally:
            os.close(descriptor)
    except PermissionError:
        return b"(somebody else's)"
    except OSError:
        return b""
    return b"".join(parts)


def _send(member: Member, number: signal.Signals) -> None:
    """Signal this very process: the descriptor pins it, so that no later process of the same pid is hit."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(member.pid)
        try:
            if _is_running(member):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
