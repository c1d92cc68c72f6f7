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

SCAN_TRIES: Final = 4
"""Scans in a row while processes come and go: one that forked and ended during a scan may have left a child unseen."""

_scans: Final = trio.CapacityLimiter(4)


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
    state: str
    parent: int
    group: int
    session: int

    @property
    def ended(self) -> bool:
        return self.state in "ZX"


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
        while True:
            late = trio.current_time() >= deadline
            left = await trio.to_thread.run_sync(sweep, late, limiter=_scans)
            self.reap()
            if not left or trio.current_time() >= deadline + KILL_LIMIT:
                return Stopped(names=tuple(self._asked.values()), survivors=tuple(member.name for member in left))
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _sweep(self, kill: bool) -> list[Member]:
        """One look: signal who is there, and say who that is."""
        members = self._scan()
        for member in members:
            if kill or member not in self._asked:
                _send(member, signal.SIGKILL if kill else signal.SIGTERM)
            self._asked.setdefault(member, member.name)
        return members

    def _scan(self) -> list[Member]:
        for _ in range(SCAN_TRIES):
            table, settled = self._read_table()
            members = self._select(table)
            if members or settled:
                return members
        return []

    def _read_table(self) -> tuple[dict[int, _Status], bool]:
        """The processes no older than the leader, and whether none of them ended meanwhile."""
        assert self._started is not None
        table: dict[int, _Status] = {}
        settled = True
        for entry in os.listdir("/proc"):
            if not entry.isdecimal():
                continue
            status = _read_status(int(entry))
            if status is None:
                settled = False
            elif status.member.started >= self._started:
                table[status.member.pid] = status
        return table, settled

    def _select(self, table: dict[int, _Status]) -> list[Member]:
        inside = {pid for pid, status in table.items() if self._is_member(status)}
        size = -1
        while size != len(inside):
            size = len(inside)
            inside.update(pid for pid, status in table.items() if status.parent in inside)
        members: list[Member] = []
        for status in (table[pid] for pid in inside):
            if status.ended:
                self._bury(status)
            else:
                members.append(status.member)
        self._known.update(members)
        return members

    def _is_member(self, status: _Status) -> bool:
        if self.leader in (status.member.pid, status.group, status.session) or status.member in self._known:
            return True
        return not status.ended and _environment_holds(status.member.pid, self.token)

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
    return _Status(
        Member(pid, int(fields[19]), name), fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3])
    )


def _environment_holds(pid: int, token: str) -> bool:
    return token.encode() in _read_file(f"/proc/{pid}/environ")


def _read_file(path: str) -> bytes:
    """A file of /proc; empty where the process is gone or belongs to somebody else."""
    parts: list[bytes] = []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while part := os.read(descriptor, 65_536):
                parts.append(part)
        finally:
            os.close(descriptor)
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
            status = _read_status(member.pid)
            if status is not None and status.member == member:
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)
