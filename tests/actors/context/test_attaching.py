"""After each turn's tools, each thing that changed is told once."""

from __future__ import annotations

import hashlib
import os
from datetime import date
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from atrio.actors.context.attaching import Attachments, TurnFacts
from atrio.actors.context.attachments import TaskLine
from atrio.actors.context.instructions import NestedInstructions, read_instructions
from atrio.actors.context.prefetch import Prefetch
from atrio.actors.context.project import ProjectContext
from atrio.actors.context.skills import Skill
from atrio.runtime.tool import FileState


def facts(**more: Any) -> TurnFacts:
    return attrs.evolve(TurnFacts(new_id=lambda kind: kind), **more)


def state_of(path: Path) -> FileState:
    found, digest = os.stat(path), hashlib.sha256(path.read_bytes()).hexdigest()
    return FileState(mtime_ns=found.st_mtime_ns, size=found.st_size, digest=digest)


async def kinds(attachments: Attachments, turn: TurnFacts) -> list[str]:
    return [message.uuid for message in (await attachments.after_tools(turn)).messages]


async def test_a_turn_that_changed_nothing_brings_nothing() -> None:
    attachments = Attachments(today=date(2026, 1, 1), tools=("Read",), mode="default")
    turn = facts(today=date(2026, 1, 1), tools=["Read"], mode="default")
    assert [] == await kinds(attachments, turn)
    assert [] == await kinds(attachments, facts())


async def test_news_come_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "a.txt"
    path.parent.mkdir()
    path.write_text("one")
    (path.parent / "CLAUDE.md").write_text("sub @gone.md")
    start = read_instructions(tmp_path, (), tmp_path / "home", None, ())
    attachments = Attachments(
        nested=NestedInstructions(start=start, cwd=tmp_path), today=date(2026, 1, 1), tools=("A", "B"), mode="default"
    )
    files = {path: state_of(path)}
    path.write_text("two!")
    turn = facts(files=files, queued=["hi"], today=date(2026, 1, 2), mode="plan", tools=["B", "C"], news=["n"])
    attached = await attachments.after_tools(turn)
    assert ["queued_command", "changed_files", "nested_instructions", "new_day", "mode_change", "environment"] == [
        message.uuid for message in attached.messages
    ]
    (warning,) = attached.warnings
    assert "there is no file @gone.md" in warning
    assert [] == await kinds(attachments, attrs.evolve(turn, queued=(), news=()))
    attachments.forget()
    assert ["nested_instructions"] == await kinds(attachments, attrs.evolve(turn, queued=(), news=()))


@pytest.mark.parametrize("tools", [("Read",), ()])
async def test_without_a_task_tool_there_is_no_reminder(tools: tuple[str, ...]) -> None:
    attachments = Attachments(tools=tools)
    for _ in range(30):
        assert [] == await kinds(attachments, facts())


async def test_the_task_list_is_reminded_of_every_ten_turns_without_it() -> None:
    attachments = Attachments(tools=("TodoWrite",))
    turn = facts(tasks=[TaskLine("a", "open")])
    reminded = [turn_number for turn_number in range(1, 35) if await kinds(attachments, turn)]
    assert [10, 20, 30] == reminded
    assert [] == await kinds(attachments, facts(used_tools=["TodoWrite"]))
    assert [9] == [turn_number for turn_number in range(10) if await kinds(attachments, turn)]


async def test_what_was_found_ahead_is_told(tmp_path: Path) -> None:
    skill = Skill(name="deploy", description="ships it", path=tmp_path / "deploy" / "SKILL.md")
    prefetch = Prefetch(ProjectContext(skills=(skill,)))
    attachments = Attachments(prefetch=prefetch)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: prefetch.run(task_status=task_status))
        prefetch.begin_turn("now deploy the thing")
        await prefetch.settle()
        assert ["relevant_skills"] == await kinds(attachments, facts())
        nursery.cancel_scope.cancel()


async def test_what_was_found_when_cancelled_is_told_the_next_time(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "CLAUDE.md").write_text("sub")
    start = read_instructions(tmp_path, (), tmp_path / "home", None, ())
    attachments = Attachments(nested=NestedInstructions(start=start, cwd=tmp_path))
    turn = facts(touched=[tmp_path / "sub" / "a.txt"])
    told: list[str] = []

    async def look() -> None:
        told.extend(await kinds(attachments, turn))

    for checkpoints in range(6):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    told += await kinds(attachments, turn)
    assert ["nested_instructions"] == told
