"""What is looked up ahead is taken without waiting, once, and never harms anybody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from atrio.actors.context import prefetch as module
from atrio.actors.context.memory import Memory
from atrio.actors.context.prefetch import Candidate, Choose, Found, Prefetch, choose_by_words
from atrio.actors.context.project import ProjectContext
from atrio.actors.context.skills import Skill
from atrio.runtime.supervisor import Supervisor


def make_skills(*names: str) -> tuple[Skill, ...]:
    return tuple(Skill(name=name, description="d", path=Path("/s", name, "SKILL.md")) for name in names)


def project_of(tmp_path: Path, *skills: str) -> ProjectContext:
    return ProjectContext(skills=make_skills(*skills), memory=Memory(folders=(tmp_path,)))


@asynccontextmanager
async def running(prefetch: Prefetch) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor("session", [prefetch.spec()], max_restarts=0)
        await nursery.start(supervisor.run)
        yield
        nursery.cancel_scope.cancel()


async def settled(prefetch: Prefetch) -> Found:
    """What there is to take once nothing is being looked up any more."""
    await prefetch.settle()
    return prefetch.take()


async def test_memories_that_fit_the_prompt_are_found_once(tmp_path: Path) -> None:
    (tmp_path / "deploy.md").write_text("---\ndescription: how to deploy\n---\ntext")
    (tmp_path / "soup.md").write_text("soup")
    prefetch = Prefetch(project_of(tmp_path))
    async with running(prefetch):
        prefetch.begin_run("how do we deploy this")
        found = await settled(prefetch)
        assert [tmp_path / "deploy.md"] == [memory.path for memory in found.memories]
        assert Found() == prefetch.take()
        prefetch.begin_run("how do we deploy this")
        assert Found() == await settled(prefetch)
        prefetch.forget()
        prefetch.begin_run("how do we deploy this")
        assert 1 == len((await settled(prefetch)).memories)


def test_nothing_is_looked_up_for_a_single_word_or_without_anything_to_find(tmp_path: Path) -> None:
    prefetch = Prefetch(project_of(tmp_path, "deploy"))
    prefetch.begin_run("deploy")
    prefetch.begin_turn("deploy")
    empty = Prefetch(ProjectContext())
    empty.begin_run("deploy this now")
    empty.begin_turn("deploy this now")
    assert [0, 0] == [prefetch.inbox.depth, empty.inbox.depth]


async def test_what_the_model_knows_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "deploy.md").write_text("x")
    prefetch = Prefetch(project_of(tmp_path, "deploy"))
    async with running(prefetch):
        prefetch.begin_run("please deploy this")
        prefetch.begin_turn("please deploy this")
        await prefetch.settle()
        assert Found() == prefetch.take({tmp_path / "deploy.md", Path("/s/deploy/SKILL.md")})


async def test_a_sessions_memories_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SESSION_BYTES", 10)
    for name in ("deploy-a.md", "deploy-b.md", "deploy-c.md"):
        (tmp_path / name).write_text("12345")
    prefetch = Prefetch(project_of(tmp_path))
    async with running(prefetch):
        prefetch.begin_run("please deploy this")
        assert 2 == len((await settled(prefetch)).memories)


async def test_taking_never_waits_and_what_is_late_for_its_run_is_dropped(tmp_path: Path) -> None:
    asked: list[str] = []
    go = trio.Event()

    async def choose(text: str, candidates: Sequence[Candidate], limit: int) -> Sequence[str]:
        asked.append(text)
        await go.wait()
        return [candidate.key for candidate in candidates]

    prefetch = Prefetch(project_of(tmp_path, "one"), choose)
    async with running(prefetch):
        prefetch.begin_turn("first turn")
        await wait_all_tasks_blocked()
        for _ in range(10):
            prefetch.begin_turn("more than fit")
        assert Found() == prefetch.take()
        prefetch.end_run()
        await wait_all_tasks_blocked()
        go.set()
        assert Found() == await settled(prefetch)
        assert ["first turn"] == asked
        prefetch.begin_turn("second run")
        assert make_skills("one") == (await settled(prefetch)).skills


async def test_a_choice_that_fails_or_answers_nonsense_is_only_a_warning(tmp_path: Path) -> None:
    answers: list[Any] = [ValueError("no"), 5, [[]], ["gone", "one", "one", "two", "three", "four"]]

    async def choose(text: str, candidates: Sequence[Candidate], limit: int) -> Sequence[str]:
        await trio.lowlevel.checkpoint()
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]  # what a host without a type checker does

    prefetch = Prefetch(project_of(tmp_path, "one", "two", "three", "four"), choose)
    async with running(prefetch):
        prefetch.begin_turn("first turn")
        assert Found(warnings=("the choice of skills failed: ValueError: no",)) == await settled(prefetch)
        for problem in ("TypeError: 'int' object is not iterable", "TypeError: unhashable type: 'list'"):
            prefetch.begin_turn("another turn")
            assert Found(warnings=(f"the choice of skills failed: {problem}",)) == await settled(prefetch)
        prefetch.begin_turn("last turn")
        assert Found(skills=make_skills("one", "two", "three")) == await settled(prefetch)


async def test_a_slow_choice_is_given_up(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async def choose(text: str, candidates: Sequence[Candidate], limit: int) -> Sequence[str]:
        await trio.sleep_forever()
        raise AssertionError

    prefetch = Prefetch(project_of(tmp_path, "one"), choose)
    async with running(prefetch):
        prefetch.begin_turn("first turn")
        await trio.sleep(module.CHOICE_LIMIT + 1)
        warning = "the choice of skills took longer than 10 s and was given up"
        assert Found(warnings=(warning,)) == prefetch.take()


async def test_a_defect_ends_the_looking_up_and_not_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def defect(folders: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(module, "scan_memory", defect)
    prefetch = Prefetch(project_of(tmp_path))
    async with running(prefetch):
        prefetch.begin_run("first run of all")
        assert Found() == await settled(prefetch)
        for _ in range(10):
            prefetch.begin_run("another run")
        assert Found() == prefetch.take()
    assert ["session/prefetch failed: RuntimeError: a defect"] == [record.message for record in caplog.records]


async def test_words_choose_without_a_model() -> None:
    candidates = [
        Candidate(key="1", name="soup", description="cooks"),
        Candidate(key="2", name="tests", description="r"),
    ]
    chosen: Choose = choose_by_words
    assert ["2"] == list(await chosen("run the tests", candidates, 3))
