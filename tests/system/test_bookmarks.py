"""What follows a run in the background: only if it is wanted, in its time, on the bill, and never felt."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from tests.support.agents import Probe, Stage, config, stage
from trio.testing import MockClock

from atrio.actors import Agent, Dependencies, Session, open_session
from atrio.actors.bookmarks import SUGGESTION_LIMIT
from atrio.actors.context.memory_files import SESSIONS
from atrio.actors.testing import Fault, ScriptedModel, Turn, text, tool
from atrio.runtime.bookmarks import Bookmark
from atrio.runtime.messages import JsonObject
from atrio.tools.permissions import PermissionMode

SMALL = "claude-haiku-4-5"
NOTE = {"file": "style.md", "description": "how code looks", "text": "Tabs."}
GUESS = frozenset((Bookmark.PROMPT_SUGGESTION,))


class Cast:
    """A main model that just answers, and a small one that says ``say``, or what is for the question."""

    def __init__(self, say: Turn | None = None) -> None:
        self.say = say or Turn(text("run the tests"))
        self.notes: JsonObject = {"notes": [NOTE]}
        self.tidied: JsonObject = {"notes": [], "drop": []}
        self.asked: list[str] = []
        self.model = ScriptedModel(by=self)

    def __call__(self, body: JsonObject) -> Turn:
        if body["model"] != SMALL:
            return Turn(text("done"))
        assert not body.get("tools")
        question = str(body["messages"])
        self.asked.append(question)
        if "worth a note" in question:
            return Turn(text(json.dumps(self.notes)))
        if "Put them in order" in question:
            return Turn(text(json.dumps(self.tidied)))
        return self.say


def staged(tmp_path: Path, cast: Cast, *tools: Any, **changes: Any) -> Any:
    return stage(tmp_path, cast.model, *tools, **{"bookmarks": GUESS, "small_model": SMALL, **changes})


async def twice(on: Stage) -> None:
    """A conversation that is old enough."""
    await on.run()
    await on.run()


async def test_after_a_run_the_next_prompt_is_guessed(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast()
    async with staged(tmp_path, cast) as on:
        await twice(on)
        await on.session.settle()
        assert on.session.suggestion is not None
        assert "run the tests" == on.session.suggestion.text
        assert 1 == len(cast.asked)
        assert 3 == sum(used.requests for used in on.session._parts.ledger.by_model.values())
        # the next run makes it void
        async with on.session.submit("go") as run:
            assert on.session.suggestion is None
            await run.wait()


async def test_a_guess_is_void_once_the_next_run_begins(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast(Turn(text("run the tests"), delay=10))
    async with staged(tmp_path, cast) as on:
        await twice(on)
        await trio.sleep(5)
        cast.say = Turn(text("commit this"))
        result = await on.run()
        assert 0.1 > result.duration
        await on.session.settle()
        assert on.session.suggestion is not None
        assert "commit this" == on.session.suggestion.text


FAULTS = {
    "refused": Fault.refuse(),
    "status": Fault.status(500),
    "limited": Fault.status(429, headers={"retry-after": "3600"}),
    "silent": Fault.stall(80),
    "garbage": Fault.garbage(),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
async def test_a_small_model_that_fails_is_not_felt(tmp_path: Path, autojump_clock: MockClock, fault: Fault) -> None:
    cast = Cast()
    cast.model = ScriptedModel(by=cast, faults=lambda _number, body: fault if body["model"] == SMALL else None)
    async with staged(tmp_path, cast) as on:
        begin = trio.current_time()
        await twice(on)
        await on.session.settle()
        assert on.session.suggestion is None
        assert SUGGESTION_LIMIT + 1 > trio.current_time() - begin
        assert (await on.run()).is_success


async def test_the_sessions_end_is_the_end_of_what_follows(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast(Turn(text("run the tests"), delay=10))
    async with staged(tmp_path, cast) as on:
        await twice(on)
        await trio.sleep(1)
        begin = trio.current_time()
    assert 0.5 > trio.current_time() - begin
    assert 1 == len(cast.asked)


async def test_the_crash_of_the_bookmarks_is_nothing_to_the_session(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast()
    async with staged(tmp_path, cast) as on:
        await on.run()
        bookmarks = on.session._parts.bookmarks
        assert bookmarks is not None
        bookmarks.run_ended("r", None)  # no messages: whoever looks at them fails
        await bookmarks.settle()
        await trio.testing.wait_all_tasks_blocked()
        assert (await on.run()).is_success
        await on.session.settle()
        assert on.session.suggestion is None


async def test_nothing_follows_unless_it_is_wanted(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast()
    for changes in ({"bookmarks": ()}, {"permission_mode": PermissionMode.PLAN}):
        async with staged(tmp_path, cast, **changes) as on:
            await twice(on)
            await on.session.settle()
            assert "bookmarks" not in [info.name for info in on.session.tree()]
    assert [] == cast.asked


async def test_a_run_that_was_aborted_is_followed_by_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    cast = Cast()
    async with staged(tmp_path, cast) as on:
        await on.run()
        async with on.session.submit("go") as run:
            run.interrupt()
        await on.session.settle()
    assert [] == cast.asked


def test_an_agent_takes_names_of_bookmarks_and_refuses_others() -> None:
    assert GUESS == Agent(model="m", bookmarks=["prompt_suggestion"]).bookmarks
    with pytest.raises(ValueError, match="world_peace"):
        Agent(model="m", bookmarks=["world_peace"])


# --- memory: real files, real time ----------------------------------------------------------------


@asynccontextmanager
async def project(tmp_path: Path, cast: Cast, *wanted: Bookmark, tools: tuple[Any, ...] = ()) -> AsyncIterator[Session]:
    cwd = tmp_path / "project"
    cwd.mkdir(exist_ok=True)
    agent = Agent(model="scripted-1", bookmarks=wanted, small_model=SMALL, tools=tools, context_window=200_000)
    transport: httpx.AsyncBaseTransport = cast.model.transport()
    settings = config(tmp_path / "home", environ={"HOME": str(tmp_path)})
    async with open_session(
        agent, cwd=cwd, config=settings, transport=transport, deps=Dependencies(jitter=lambda: 0.0), project=True
    ) as session:
        yield session


def memory_of(session: Session) -> Path:
    return session.journal.parent / "memory"


async def go(session: Session, prompt: str = "I want tabs") -> None:
    async with session.submit(prompt) as run:
        assert (await run.wait()).is_success
    with trio.fail_after(10):
        await session.settle()


async def test_what_is_worth_it_is_noted_and_each_message_looked_at_once(tmp_path: Path) -> None:
    cast = Cast()
    async with project(tmp_path, cast, Bookmark.MEMORY_EXTRACTION) as session:
        await go(session)
        note = (memory_of(session) / "style.md").read_text()
        assert "Tabs." in note
        assert "- [style](style.md): how code looks\n" == (memory_of(session) / "MEMORY.md").read_text()
        cast.notes = {"notes": []}
        await go(session, "something else")
        assert "I want tabs" in cast.asked[0]
        assert "I want tabs" not in cast.asked[1]
        assert "- style.md: how code looks" in cast.asked[1]
        assert note == (memory_of(session) / "style.md").read_text()


async def test_where_the_agent_itself_has_written_memory_nothing_is_added(tmp_path: Path) -> None:
    class Writing(Cast):
        def __call__(self, body: JsonObject) -> Turn:
            if body["model"] == SMALL or len(body["messages"]) > 1:
                return super().__call__(body)
            return Turn(tool("Write", {"file_path": str(path)}))

    cast = Writing()
    path = Path("/nowhere")
    async with project(tmp_path, cast, Bookmark.MEMORY_EXTRACTION, tools=(Probe("Write"),)) as session:
        path = memory_of(session) / "mine.md"
        await go(session)
    assert [] == cast.asked


async def test_a_memory_that_can_not_be_written_is_not_felt(tmp_path: Path) -> None:
    cast = Cast()
    async with project(tmp_path, cast, Bookmark.MEMORY_EXTRACTION) as session:
        memory_of(session).write_text("no folder")
        await go(session)
        await go(session)
        assert 2 == len(cast.asked)


async def test_a_memory_is_put_in_order_when_it_is_time(tmp_path: Path) -> None:
    cast = Cast()
    cast.tidied = {"notes": [{**NOTE, "text": "All."}], "drop": ["b.md"], "index": "- [style](style.md)"}
    async with project(tmp_path, cast, Bookmark.MEMORY_CONSOLIDATION) as session:
        folder = memory_of(session)
        folder.mkdir()
        (folder / "style.md").write_text("Tabs.")
        (folder / "b.md").write_text("Tabs, as I said.")
        for number in range(SESSIONS):
            (folder.parent / f"{number}.jsonl").touch()
        await go(session)
        assert {"MEMORY.md", "style.md", ".consolidated"} == {entry.name for entry in folder.iterdir()}
        assert "All." in (folder / "style.md").read_text()
        await go(session)
        assert 1 == len(cast.asked)


async def test_a_failed_consolidation_is_tried_again_by_a_later_session(tmp_path: Path) -> None:
    cast = Cast()
    cast.model = ScriptedModel(
        by=cast, faults=lambda _number, body: Fault.status(500) if body["model"] == SMALL else None
    )
    async with project(tmp_path, cast, Bookmark.MEMORY_CONSOLIDATION) as session:
        folder = memory_of(session)
        folder.mkdir()
        (folder / "style.md").write_text("Tabs.")
        (folder / "b.md").write_text("Tabs, as I said.")
        for number in range(SESSIONS):
            (folder.parent / f"{number}.jsonl").touch()
        await go(session)
        assert {"b.md", "style.md"} == {entry.name for entry in folder.iterdir()}
