"""The recorder: order, answers after the disk, and what becomes of it all when it dies."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
import trio
import trio.testing

from atrio.actors.recorder import Append, Recorder, ask_to_write, write_and_wait
from atrio.runtime.config import Durability
from atrio.runtime.errors import JournalLocked, JournalUnwritable, PeerGone, ReplyDropped
from atrio.runtime.journal import JournalFile
from atrio.runtime.mailbox import Address, Inbox, Pending, Reply, open_mailbox, open_reply
from atrio.runtime.records import SystemRecord
from atrio.runtime.redact import Redactor

SECRET = "hunter2hunter2"


def record(number: int, text: str = "") -> SystemRecord:
    return SystemRecord(uuid=f"u{number}", subtype="informational", text=text)


@attrs.define(eq=False)
class Desk:
    """A recorder with its mailbox and its file."""

    path: Path
    durability: Durability = Durability.BATCH
    parent: str | None = None
    capacity: int = 256
    address: Address[Append] = attrs.field(init=False)
    inbox: Inbox[Append] = attrs.field(init=False)
    recorder: Recorder = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        address: Address[Append]
        address, self.inbox = open_mailbox(self.capacity, name="recorder")
        self.address = address
        self.recorder = Recorder(
            inbox=self.inbox,
            path=self.path,
            session_id="s",
            cwd=Path("/w"),
            durability=self.durability,
            redactor=Redactor.for_environment({"MY_TOKEN": SECRET}),
            now=lambda: datetime(2026, 3, 4, tzinfo=UTC),
            parent=self.parent,
        )

    def put(self, *numbers: int, sync: bool = False) -> Pending[None]:
        reply: Reply[None]
        pending: Pending[None]
        reply, pending = open_reply()
        assert self.address.offer(Append([record(number) for number in numbers], sync, reply))
        return pending

    def lines(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.path.read_bytes().splitlines()]

    def uuids(self) -> list[str]:
        return [line["uuid"] for line in self.lines()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "p" / "s.jsonl")


class Disk:
    """Stands in for ``fdatasync``: counts, may be held up, may refuse."""

    def __init__(self, sync: Callable[[int], None]) -> None:
        self._sync = sync
        self.rounds = 0
        self.refuses = False
        self.gate = threading.Event()
        self.gate.set()
        self.busy = trio.Event()
        self._token = trio.lowlevel.current_trio_token()

    def __call__(self, fd: int) -> None:
        self.rounds += 1
        self._token.run_sync_soon(self.busy.set)
        assert self.gate.wait(10)
        if self.refuses:
            raise OSError(errno.EIO, "Input/output error")
        self._sync(fd)


@pytest.fixture
async def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    stand_in = Disk(os.fdatasync)
    monkeypatch.setattr(os, "fdatasync", stand_in)
    return stand_in


async def settled(pending: Pending[None]) -> None:
    with trio.fail_after(5):
        await pending.get()


# --- writing --------------------------------------------------------------------------------------


async def test_records_are_written_in_the_order_of_sending_and_linked(desk: Desk) -> None:
    desk.parent = "before"
    desk.__attrs_post_init__()
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.recorder.run)
        for number in range(30):
            await desk.address.send(Append([record(number), record(number + 100)]))
        await write_and_wait(desk.address, [record(999)], sync=False)
        desk.address.close()
    expected = [f"u{n}" for number in range(30) for n in (number, number + 100)] + ["u999"]
    assert expected == desk.uuids()
    assert ["before", *expected[:-1]] == [line["parentUuid"] for line in desk.lines()]


async def test_what_waits_is_written_in_one_go(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    append = JournalFile.append

    def counted(journal: JournalFile, lines: bytes) -> None:
        writes.append(lines.count(b"\n"))
        append(journal, lines)

    monkeypatch.setattr(JournalFile, "append", counted)
    for number in range(50):
        desk.put(number)
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.recorder.run)
        desk.address.close()
    assert [50] == [count for count in writes if count]


async def test_secrets_do_not_reach_the_file(desk: Desk) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.recorder.run)
        await write_and_wait(desk.address, [record(1, f"MY_TOKEN={SECRET}\n")], sync=True)
        desk.address.close()
    assert SECRET.encode() not in desk.path.read_bytes()
    assert "MY_TOKEN=[redacted:MY_TOKEN]\n" == desk.lines()[0]["content"]


async def test_a_torn_line_is_cut_off_and_that_is_on_record(desk: Desk) -> None:
    desk.path.parent.mkdir()
    desk.path.write_bytes(b'{"n":1}\n{"torn')
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.recorder.run)
        await write_and_wait(desk.address, [record(1)], sync=True)
        desk.address.close()
    _, repaired, last = desk.lines()
    assert ("journal_repaired", "6 bytes of an unfinished last line were cut off") == (
        repaired["subtype"],
        repaired["content"],
    )
    assert repaired["uuid"] == last["parentUuid"]


# --- answers --------------------------------------------------------------------------------------


async def test_a_sync_answer_waits_for_the_disk_and_an_ordinary_one_does_not(desk: Desk, disk: Disk) -> None:
    disk.gate.clear()
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.recorder.run)
        durable, ordinary = desk.put(1, sync=True), desk.put(2)
        await disk.busy.wait()
        await settled(ordinary)
        assert not durable.settled
        assert ["u1", "u2"] == desk.uuids()
        disk.gate.set()
        await settled(durable)
        desk.address.close()
    assert 1 == disk.rounds


async def test_a_sync_without_records_covers_what_was_written_before(desk: Desk, disk: Disk) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.recorder.run)
        await desk.address.send(Append([record(1)]))
        await write_and_wait(desk.address, (), sync=True)
        assert (1, ["u1"]) == (disk.rounds, desk.uuids())
        desk.address.close()


@pytest.mark.parametrize(("durability", "rounds"), [(Durability.OS, 0), (Durability.BATCH, 1), (Durability.ALWAYS, 3)])
async def test_durability_says_when_the_disk_is_waited_for(
    tmp_path: Path, disk: Disk, durability: Durability, rounds: int
) -> None:
    desk = Desk(tmp_path / "s.jsonl", durability)
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.recorder.run)
        for sync in (False, True, False):
            await write_and_wait(desk.address, [record(1)], sync=sync)
        desk.address.close()
    assert rounds == disk.rounds


async def test_always_means_each_answer(tmp_path: Path, disk: Disk) -> None:
    desk = Desk(tmp_path / "s.jsonl", Durability.ALWAYS)
    disk.gate.clear()
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.recorder.run)
        pending = [desk.put(1), desk.put(sync=True)]
        await disk.busy.wait()
        assert [False, False] == [each.settled for each in pending]
        disk.gate.set()
        for each in pending:
            await settled(each)
        desk.address.close()


# --- the end --------------------------------------------------------------------------------------


async def test_a_cancelled_recorder_writes_what_was_sent(desk: Desk) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.recorder.run)
        pending = [desk.put(number, sync=number % 2 == 0) for number in range(20)]
        nursery.cancel_scope.cancel()
    assert [f"u{number}" for number in range(20)] == desk.uuids()
    for each in pending:
        await settled(each)
    assert not desk.path.with_suffix(".lock").exists()
    with pytest.raises(PeerGone):
        await desk.address.send(Append([record(1)]))


async def test_a_recorder_cancelled_while_the_disk_works_leaves_nobody_waiting(desk: Desk, disk: Disk) -> None:
    disk.gate.clear()
    pending: list[Pending[None]] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.recorder.run)
        pending.append(desk.put(1, sync=True))
        await disk.busy.wait()
        pending += [desk.put(2), desk.put(3, sync=True)]
        nursery.cancel_scope.cancel()
        disk.gate.set()
    assert ["u1", "u2", "u3"] == desk.uuids()
    for each in pending:
        await settled(each)


async def test_a_full_disk_ends_it_and_drops_the_answers(desk: Desk) -> None:
    desk.path.parent.mkdir()
    desk.path.symlink_to("/dev/full")
    pending: list[Pending[None]] = []
    with pytest.RaisesGroup(pytest.RaisesExc(JournalUnwritable, match="No space left")):
        async with trio.open_nursery() as nursery:
            await nursery.start(desk.recorder.run)
            pending += [desk.put(1), desk.put(2, sync=True)]
    for each in pending:
        with pytest.raises(ReplyDropped):
            await settled(each)
    with pytest.raises(PeerGone):
        await write_and_wait(desk.address, [record(3)], sync=True)


async def test_nothing_is_written_after_a_hole(desk: Desk, disk: Disk) -> None:
    disk.refuses = True
    disk.gate.clear()
    pending: list[Pending[None]] = []
    with pytest.RaisesGroup(pytest.RaisesExc(JournalUnwritable, match=r"s\.jsonl: Input/output error")):
        async with trio.open_nursery() as nursery:
            await nursery.start(desk.recorder.run)
            pending.append(desk.put(1, sync=True))
            await disk.busy.wait()
            pending += [desk.put(2), desk.put(3, sync=True)]
            disk.gate.set()
    assert ["u1"] == desk.uuids()
    for each in pending:
        with pytest.raises(ReplyDropped):
            await settled(each)


async def test_a_defect_in_a_record_drops_its_answer_and_writes_nothing_after_it(desk: Desk) -> None:
    pending: list[Pending[None]] = []
    wrong: Sequence[Any] = [None]
    reply: Reply[None]
    reply, mine = open_reply()
    pending.append(mine)
    assert desk.address.offer(Append(wrong, False, reply))
    pending.append(desk.put(1))
    with pytest.raises((AssertionError, AttributeError)):
        await desk.recorder.run(task_status=trio.TASK_STATUS_IGNORED)
    assert [] == desk.uuids()
    assert all(each.settled for each in pending)


async def test_a_journal_in_use_refuses_the_start_and_drops_what_was_sent(desk: Desk) -> None:
    owner = JournalFile.open(desk.path)
    pending = desk.put(1)
    with pytest.raises(JournalLocked):
        await desk.recorder.run(task_status=trio.TASK_STATUS_IGNORED)
    with pytest.raises(ReplyDropped):
        await settled(pending)
    owner.close()


async def test_once_asked_a_record_is_written_whatever_becomes_of_the_asker(desk: Desk) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.recorder.run)
        await ask_to_write(desk.address, [record(1)])
        await write_and_wait(desk.address, (), sync=False)
        desk.address.close()
    assert ["u1"] == desk.uuids()


async def test_no_descriptor_stays_open(desk: Desk) -> None:
    before = set(os.listdir("/proc/self/fd"))
    async with trio.open_nursery() as nursery:
        await nursery.start(desk.recorder.run)
        await write_and_wait(desk.address, [record(1)], sync=True)
        nursery.cancel_scope.cancel()
    assert before == set(os.listdir("/proc/self/fd"))
