"""Sessions that go on: the same one, a fork of it, from an earlier message; who else may."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
import trio
import trio.testing
from tests.support.agents import Probe, config

from atrio.actors import Agent, Session, open_session
from atrio.actors.testing import ScriptedModel, Turn, text, tool
from atrio.runtime.errors import ConfigError, JournalLocked
from atrio.runtime.events import Event, Notice, RunStarted
from atrio.runtime.history import check
from atrio.runtime.journal import journal_path
from atrio.runtime.messages import Message, SystemMessage, TextBlock, ToolResultBlock, ToolUseBlock, UserMessage
from atrio.runtime.records import BlockRecord, Record, RunStartRecord, ToolStartRecord, UserRecord
from atrio.runtime.replay import replay_file
from atrio.runtime.store import rename_session
from atrio.runtime.tool import Tool
from atrio.runtime.transcript import LineWriter


def said(messages: Sequence[Message]) -> list[str]:
    return [
        part.text
        for message in messages
        if not isinstance(message, SystemMessage)
        for part in message.content
        if isinstance(part, TextBlock)
    ]


class House:
    """A folder, a home, and sessions opened in them with a scripted model."""

    def __init__(self, tmp_path: Path, *turns: Turn, tools: Sequence[Tool] = ()) -> None:
        self.cwd = tmp_path
        self.home = tmp_path / "home"
        self.model = ScriptedModel(turns)
        self.tools = tools

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Session]:
        async with open_session(
            Agent(model="scripted-1", tools=self.tools),
            cwd=self.cwd,
            config=config(self.home),
            transport=self.model.transport(),
            **options,
        ) as session:
            yield session
        assert [] == check(session.messages)
        assert [] == self.model.violations
        assert list(session.messages) == list(replay_file(session.journal).messages)

    def write(self, id: str, records: Sequence[Record], *, end: bytes = b"") -> Path:
        """A journal as a crash left it."""
        path = journal_path(self.home, self.cwd.resolve(), id)
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = LineWriter(session_id=id, cwd=str(self.cwd), version="1")
        now = datetime(2026, 3, 4, tzinfo=UTC)
        path.write_bytes(b"".join(writer.line(record, now) for record in records) + end)
        return path


async def one(session: Session, prompt: str) -> list[Event]:
    async with session.submit(prompt) as run:
        return [event async for event in run]


def crashed(name: str, *, idempotent: bool) -> tuple[Record, ...]:
    """One call was running when the process was killed."""
    call = ToolUseBlock("c1", name, {"name": "x"})
    return (
        RunStartRecord(uuid=str(uuid4()), run_id="r", model="scripted-1"),
        UserRecord(message=UserMessage(uuid=str(uuid4()), content=(TextBlock("look"),))),
        BlockRecord(uuid=str(uuid4()), message_id="m1", model="scripted-1", block=call),
        ToolStartRecord(uuid=str(uuid4()), call_id="c1", name=name, idempotent=idempotent),
    )


def result_of(session: Session, id: str) -> ToolResultBlock:
    (found,) = [
        part
        for message in session.messages
        if isinstance(message, UserMessage)
        for part in message.content
        if isinstance(part, ToolResultBlock) and part.tool_use_id == id
    ]
    return found


async def test_a_resumed_session_goes_on_in_its_journal(tmp_path: Path) -> None:
    house = House(tmp_path, Turn(text("One.")), Turn(text("Two.")))
    async with house.open() as first:
        await one(first, "a")
    async with house.open(resume=first.id[:8]) as second:
        assert first.messages == second.messages
        await one(second, "b")

    assert (first.id, first.journal) == (second.id, second.journal)
    assert ["a", "One.", "b", "Two."] == said(second.messages)
    lines = [orjson.loads(line) for line in second.journal.read_bytes().splitlines()]
    assert [None, *(line["uuid"] for line in lines[:-1])] == [line["parentUuid"] for line in lines]


async def test_a_session_has_one_writer_and_the_second_hears_who_that_is(tmp_path: Path) -> None:
    house = House(tmp_path, Turn(text("One.")), Turn(text("Two.")))
    async with house.open() as owner:
        await one(owner, "a")
        with pytest.raises(JournalLocked, match=r"in use by process \d+"):
            async with house.open(resume=owner.id):
                raise AssertionError("it must not open")
        async with house.open(resume=owner.id, fork=True) as fork:
            await one(fork, "b")
    async with house.open(resume=owner.id) as later:
        assert ["a", "One."] == said(later.messages)

    assert ["a", "One.", "b", "Two."] == said(fork.messages)
    assert fork.id != owner.id


async def test_a_fork_has_a_journal_of_its_own_that_counts_nothing_twice(tmp_path: Path) -> None:
    house = House(tmp_path, Turn(text("One.")), Turn(text("Two.")), Turn(text("Three.")))
    id = str(uuid4())
    async with house.open() as first:
        await one(first, "a")
    async with house.open(resume=first.id, fork=True, session_id=id) as fork:
        await one(fork, "b")
    async with house.open(resume=id) as again:
        await one(again, "c")

    assert ["a", "One.", "b", "Two.", "c", "Three."] == said(again.messages)
    assert id == fork.id == again.id
    assert ["a", "One."] == said(replay_file(first.journal).messages)
    assert 2 == len(replay_file(again.journal).usage)
    counted = [line for line in again.journal.read_text().splitlines() if '"usage":' in line]
    assert 2 == len(counted)


async def test_a_session_can_go_on_from_an_earlier_message(tmp_path: Path) -> None:
    house = House(tmp_path, Turn(text("One.")), Turn(text("Two.")), Turn(text("Three.")))
    async with house.open() as first:
        await one(first, "a")
        mark = first.messages[-1].uuid
        await one(first, "b")
    async with house.open(resume=first.id, resume_at=mark) as second:
        assert ["a", "One."] == said(second.messages)
        await one(second, "c")
    async with house.open(resume=first.id, resume_at=mark, fork=True) as third:
        assert ["a", "One."] == said(third.messages)
    async with house.open(resume=first.id) as last:
        pass

    assert ["a", "One.", "c", "Three."] == said(last.messages)
    lines = [orjson.loads(line) for line in last.journal.read_bytes().splitlines()]
    (rewound,) = [line for line in lines if line.get("subtype") == "rewound"]
    assert mark != rewound["parentUuid"]  # the line that ended that response
    assert rewound["parentUuid"] in {line["uuid"] for line in lines if line["type"] == "assistant"}


async def test_a_call_with_an_unknown_outcome_is_never_made_again(tmp_path: Path) -> None:
    probe = Probe()
    house = House(tmp_path, Turn(text("I see.")), tools=[probe])
    path = house.write(str(uuid4()), crashed("Probe", idempotent=False))
    async with house.open(resume=path.stem) as session:
        assert session.interrupted_prompt is not None
        async with session.resume() as run:
            result = await run.wait()
        with pytest.raises(ConfigError, match="nothing was left to be done"):
            async with session.resume():
                raise AssertionError("there is nothing to go on with")

    assert ([], "I see.") == (probe.log, result.text)
    assert "outcome is unknown" in str(result_of(session, "c1").content)
    assert session.can_resume is False


async def test_a_call_of_an_idempotent_tool_is_made_again_on_resume(tmp_path: Path) -> None:
    probe = Probe(idempotent=True)
    house = House(tmp_path, Turn(text("I see.")), tools=[probe])
    path = house.write(str(uuid4()), crashed("Probe", idempotent=True))
    async with house.open(resume=path.stem) as session:
        assert "x done" == result_of(session, "c1").content
        await one(session, "go on")

    assert ["+", "-"] == [what for _name, what, _time in probe.log]


async def test_a_tool_that_is_gone_or_hangs_leaves_the_outcome_unknown(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async def hang(_name: str, _ctx: object) -> None:
        await trio.sleep_forever()

    for tools in ([], [Probe(idempotent=True, behave=hang)]):
        house = House(tmp_path, Turn(text("I see.")), tools=tools)
        path = house.write(str(uuid4()), crashed("Probe", idempotent=True))
        async with house.open(resume=path.stem) as session:
            assert result_of(session, "c1").is_error


async def test_a_torn_end_is_cut_off_and_told_behind_the_runs_start(tmp_path: Path) -> None:
    house = House(tmp_path, Turn(text("I see.")))
    path = house.write(str(uuid4()), crashed("Probe", idempotent=False), end=b'{"type":"user","mess')
    async with house.open(resume=path.stem) as session:
        events = await one(session, "go on")

    assert [RunStarted, Notice] == [type(event) for event in events[:2]]
    assert isinstance(events[1], Notice)
    assert "20 bytes of an unfinished last line were cut off" == events[1].text


async def test_a_session_is_found_by_its_title_and_keeps_it(tmp_path: Path) -> None:
    house = House(
        tmp_path,
        Turn(text("One.")),
        Turn(tool("Nothing", {}), text("x" * 400_000, chunk=100_000)),
        Turn(text("Three.")),
    )
    async with house.open() as first:
        await one(first, "a")
    rename_session(first.journal, "the first one")
    async with house.open(resume="The First One") as second:
        await one(second, "b")
    async with house.open(resume="the first one") as third:
        pass

    assert first.id == second.id == third.id
    assert 2 == first.journal.read_bytes().count(b'"custom-title"')


async def test_another_programs_journal_is_read_and_never_written(tmp_path: Path) -> None:
    house = House(tmp_path, Turn(text("One.")))
    foreign = tmp_path / "foreign.jsonl"
    line = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "hello"}, "sessionId": "x"}
    foreign.write_bytes(orjson.dumps(line) + b"\n")
    before = foreign.read_bytes()
    async with house.open(resume=foreign) as session:
        await one(session, "b")

    assert (before, ["hello", "b", "One."]) == (foreign.read_bytes(), said(session.messages))
    assert session.journal.is_relative_to(house.home)


async def test_what_says_how_to_resume_needs_what_to_resume(tmp_path: Path) -> None:
    house = House(tmp_path)
    for options in ({"fork": True}, {"resume_at": "x"}, {"resume": "nothing here"}):
        with pytest.raises(ConfigError):
            async with house.open(**options):
                raise AssertionError("it must not open")
