"""Group commit: one round for all who wait, in real threads."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from atrio.runtime.commit import GroupCommit, group_commit


class Disk:
    """Stands in for ``fdatasync``: notes each call and lets a test hold it up."""

    def __init__(self, sync: Callable[[int], None]) -> None:
        self._sync = sync
        self.calls: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.busy = trio.Event()
        self._token = trio.lowlevel.current_trio_token()

    def __call__(self, fd: int) -> None:
        self.calls.append(fd)
        self._token.run_sync_soon(self.busy.set)
        assert self.gate.wait(10)
        self._sync(fd)


@pytest.fixture
async def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    stand_in = Disk(os.fdatasync)
    monkeypatch.setattr(os, "fdatasync", stand_in)
    return stand_in


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    fds = [os.open(tmp_path / str(n), os.O_WRONLY | os.O_CREAT) for n in range(20)]
    yield fds
    for fd in fds:
        os.close(fd)


async def test_many_waiters_share_one_round(files: list[int]) -> None:
    commit = GroupCommit()
    async with trio.open_nursery() as nursery:
        for fd in files:
            nursery.start_soon(commit.sync, fd)
    assert len(files) == commit.commits
    # The first may have begun before the others came.
    assert commit.rounds <= 2


async def test_who_comes_during_a_round_joins_the_next(disk: Disk, files: list[int]) -> None:
    commit = GroupCommit()
    disk.gate.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit.sync, files[0])
        await disk.busy.wait()
        for fd in files[1:]:
            nursery.start_soon(commit.sync, fd)
        # The same file again: what was written since the round began is not in it.
        nursery.start_soon(commit.sync, files[0])
        await trio.testing.wait_all_tasks_blocked()
        assert [files[0]] == disk.calls
        disk.gate.set()
    assert 2 == commit.rounds
    assert sorted([files[0], *files]) == sorted(disk.calls)


async def test_a_file_that_many_wait_for_is_synced_once_a_round(disk: Disk, files: list[int]) -> None:
    commit = GroupCommit()
    disk.gate.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit.sync, files[0])
        await disk.busy.wait()
        for _ in range(5):
            nursery.start_soon(commit.sync, files[1])
        await trio.testing.wait_all_tasks_blocked()
        disk.gate.set()
    assert files[:2] == disk.calls
    assert 6 == commit.commits


async def test_an_error_reaches_those_alone_whose_file_it_was(files: list[int]) -> None:
    commit = GroupCommit()
    failed: list[OSError] = []

    async def fails() -> None:
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            await commit.sync(987_654)
        failed.append(caught.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit.sync, files[0])
        nursery.start_soon(fails)
        nursery.start_soon(commit.sync, files[1])
        nursery.start_soon(fails)
    assert [errno.EBADF] * 2 == [error.errno for error in failed]
    assert failed[0] is not failed[1]
    await commit.sync(files[2])


async def test_a_cancelled_follower_harms_nobody(disk: Disk, files: list[int]) -> None:
    commit = GroupCommit()
    disk.gate.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit.sync, files[0])
        await disk.busy.wait()
        async with trio.open_nursery() as others:
            others.start_soon(commit.sync, files[1])
            await trio.testing.wait_all_tasks_blocked()
            others.cancel_scope.cancel()
        nursery.start_soon(commit.sync, files[2])
        await trio.testing.wait_all_tasks_blocked()
        disk.gate.set()
    assert [files[0], files[2]] == disk.calls


async def test_a_leader_cancelled_in_its_round_still_finishes_it(disk: Disk, files: list[int]) -> None:
    commit = GroupCommit()
    disk.gate.clear()
    leader = trio.CancelScope()

    async def lead() -> None:
        with leader:
            await commit.sync(files[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lead)
        await disk.busy.wait()
        nursery.start_soon(commit.sync, files[1])
        leader.cancel()
        await trio.testing.wait_all_tasks_blocked()
        disk.gate.set()
    assert files[:2] == disk.calls


@pytest.mark.parametrize("waiting", range(4))
async def test_a_leader_cancelled_before_its_round_leaves_it_to_the_next(files: list[int], waiting: int) -> None:
    commit = GroupCommit()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            # All are cancelled while the first is about to begin a round with them.
            for fd in files[: waiting + 1]:
                nursery.start_soon(commit.sync, fd)
            scope.cancel()
    with trio.fail_after(5):
        await commit.sync(files[5])
    assert (1, 1) == (commit.rounds, commit.commits)


async def test_some_cancelled_waiters_never_stop_the_others(files: list[int]) -> None:
    commit = GroupCommit()
    done: list[int] = []

    async def sync(number: int) -> None:
        with trio.CancelScope() as scope:
            if number % 3 == 0:
                scope.cancel()
            await commit.sync(files[number])
            done.append(number)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(sync, number)
    assert {number for number in range(20) if number % 3} <= set(done)
    await commit.sync(files[0])


async def test_a_run_has_one_group_commit() -> None:
    first = group_commit()
    await trio.lowlevel.checkpoint()
    assert first is group_commit()


def test_another_run_has_its_own() -> None:
    async def mine() -> GroupCommit:
        await trio.lowlevel.checkpoint()
        return group_commit()

    assert trio.run(mine) is not trio.run(mine)
