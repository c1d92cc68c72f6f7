"""
kill -9 a real command at any instant, resume it, and look: nothing lost, doubled, or run twice unknowingly.

The scripted model asks for effects (each appends its name to a file) until each has happened, or was said to have an
unknown outcome. So a run that ends has accounted for all of them, however often it was killed on the way.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

import attrs
import orjson
import pytest
import trio
from tests.support import forking
from tests.support.dying_journal import How

from atrio.actors.testing import ScriptedModel, Turn, text, thinking, tool
from atrio.runtime.history import check
from atrio.runtime.journal import journal_path
from atrio.runtime.messages import AssistantMessage, JsonObject, TextBlock, ToolResultBlock, UserMessage
from atrio.runtime.replay import Replay, replay_file

PLAN: Final = (("a",), ("b", "c"), ("d",), ("e", "f", "g"))
"""The effects that the model asks for, response by response."""

EFFECTS: Final = tuple(name for names in PLAN for name in names)
PROMPT: Final = "Do all of it."
DONE: Final = "All of it is done."
LIMIT: Final = 60.0
AT_ONCE: Final = max(2, (os.cpu_count() or 2))
COMMAND: Final = (sys.executable, "-m", "atrio.runtime")
FLAGS: Final = ("--allowedTools", "Bash", "Read", "--output-format", "json")


def pick(request: JsonObject) -> Turn:
    """What the model says next: the first effects that are not accounted for."""
    outcomes = outcomes_in(request["messages"])
    for names in PLAN:
        due = [name for name in names if not settled(outcomes.get(name))]
        if due:
            calls = [
                tool("Bash", {"command": f"sleep 0.01; echo {name} >> effects"}, f"{name}_{uuid4().hex}")
                for name in due
            ]
            return Turn(thinking("Next."), text("I go on."), tool("Read", {"file_path": "input"}), *calls, pace=0.004)
    return Turn(text(DONE), pace=0.004)


def outcomes_in(messages: Sequence[JsonObject]) -> dict[str, str]:
    """By effect: the text of its last result."""
    found: dict[str, str] = {}
    for message in messages:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block.get("type") == "tool_result":
                name = str(block["tool_use_id"]).partition("_")[0]
                found[name] = "ok" if not block.get("is_error") else str(block["content"])
    return found


def settled(outcome: str | None) -> bool:
    return outcome is not None and (outcome == "ok" or is_unknown(outcome))


def is_unknown(outcome: str) -> bool:
    return "outcome is unknown" in outcome


@attrs.define(eq=False)
class Victim:
    """One session: its place, its model, and the command that is killed and resumed."""

    folder: Path
    model: ScriptedModel = attrs.field(init=False)
    asked: trio.Event = attrs.field(factory=trio.Event)
    """Its first request has come."""
    id: str = attrs.field(factory=lambda: str(uuid4()))
    url: str = ""

    def __attrs_post_init__(self) -> None:
        self.model = ScriptedModel(by=self.pick)
        self.project.mkdir(parents=True)
        (self.project / "input").write_text("something to read\n")

    def pick(self, request: JsonObject) -> Turn:
        self.asked.set()
        return pick(request)

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def journal(self) -> Path:
        return journal_path(self.folder / "home", self.project.resolve(), self.id)

    def effects(self) -> Counter[str]:
        path = self.project / "effects"
        return Counter(path.read_text().split() if path.exists() else ())

    def environ(self) -> dict[str, str]:
        known = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV", "PYTHONPATH") if name in os.environ}
        home = {"HOME": str(self.folder), "ATRIO_HOME": str(self.folder / "home")}
        return {**known, **home, "ANTHROPIC_BASE_URL": self.url, "ATRIO_DURABILITY": "os"}

    async def run(self, *, dies: tuple[int, How] | None = None, words: Sequence[str] | None = None) -> int:
        """One command to its end, or to its death at a write; its exit code."""
        words = self.first_words if words is None else words
        ended = await forking.run((*words, *FLAGS), cwd=self.project, env=self.environ(), dies=dies)
        with (self.folder / "stderr").open("a") as err:
            err.write(ended.err)
        return ended.code

    @property
    def first_words(self) -> tuple[str, ...]:
        return ("run", PROMPT, "--session-id", self.id)

    async def run_and_kill(self, delay: float) -> None:
        """Kill -9 a process so many seconds after its first request (its journal has begun by then)."""
        null = subprocess.DEVNULL
        process = await trio.lowlevel.open_process(
            [*COMMAND, *self.first_words, *FLAGS],
            stdin=null,
            stdout=null,
            stderr=null,
            cwd=self.project,
            env=self.environ(),
        )
        try:
            with trio.fail_after(LIMIT):
                await self.asked.wait()
            with trio.move_on_after(delay):
                await process.wait()
        finally:
            with trio.move_on_after(LIMIT, shield=True):
                process.kill()
                await process.wait()

    async def resume(self, *, dies: tuple[int, How] | None = None) -> int:
        return await self.run(words=("run", "--resume", self.id), dies=dies)

    def told(self) -> str:
        return (self.folder / "stderr").read_text()

    # --- what must hold ---------------------------------------------------------------------------

    async def finish(self) -> None:
        """Resume to the end, and check everything. A session that had not begun is begun; one that is done is left."""
        if not self.has_begun():
            assert not self.effects()
            assert 0 == await self.begin(), self.told()
        elif not self.is_done():
            assert 0 == await self.resume(), self.told()
        self.check()

    def has_begun(self) -> bool:
        """The prompt is in the journal."""
        return self.journal.exists() and bool(replay_file(self.journal).messages)

    async def begin(self) -> int:
        """The prompt was not taken; whoever gave it gives it again."""
        words = ("run", PROMPT, "--resume", self.id) if self.journal.exists() and self.journal.stat().st_size else None
        if words is None:
            self.journal.unlink(missing_ok=True)
        return await self.run(words=words)

    def is_done(self) -> bool:
        return DONE in texts_of(replay_file(self.journal))

    def check(self) -> None:
        replay = replay_file(self.journal)
        # What was cut in the middle of its last line stays so until the file is opened again.
        assert [] == [line for line in replay.bad_lines if line.offset_bytes < len(self.whole_lines())]
        assert [] == check(replay.messages)
        assert [] == self.model.violations
        self.check_messages(replay)
        self.check_effects(replay)

    def whole_lines(self) -> bytes:
        data = self.journal.read_bytes()
        return data[: data.rfind(b"\n") + 1]

    def check_messages(self, replay: Replay) -> None:
        """None lost, none doubled."""
        prompts = [m for m in replay.messages if isinstance(m, UserMessage) and m.origin == "prompt"]
        assert [(TextBlock(PROMPT),)] == [message.content for message in prompts]
        assert 1 == texts_of(replay).count(DONE)
        lines = [orjson.loads(line) for line in self.whole_lines().splitlines()]
        uuids = Counter(line["uuid"] for line in lines)
        assert [] == [uuid for uuid, count in uuids.items() if count > 1]
        # The chain of links is whole: each line hangs on the one before.
        assert [None, *(line["uuid"] for line in lines[:-1])] == [line["parentUuid"] for line in lines]

    def check_effects(self, replay: Replay) -> None:
        """Each exactly once, or at most once and said to be unknown."""
        happened = self.effects()
        outcomes: dict[str, list[str]] = {name: [] for name in EFFECTS}
        for message in replay.messages:
            if isinstance(message, UserMessage):
                for block in message.content:
                    if isinstance(block, ToolResultBlock) and (name := block.tool_use_id.partition("_")[0]) in outcomes:
                        outcomes[name].append(str(block.content) if block.is_error else "ok")
        assert [] == [name for name in happened if happened[name] > 1 or name not in EFFECTS]
        for name, said in outcomes.items():
            assert 1 == sum(map(settled, said)), (name, said)
            if said[-1] == "ok":
                assert 1 == happened[name], (name, said)
            assert all(settled(one) or one.startswith("Not run") for one in said), (name, said)


def texts_of(replay: Replay) -> list[str]:
    return [
        block.text
        for message in replay.messages
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    ]


# --- at random instants ---------------------------------------------------------------------------


async def kill_at_random_instants(folder: Path, count: int, seed: int) -> int:
    """So many victims, some at a time; returns how many were killed before they were done."""
    draw = random.Random(seed)
    length = await whole_length(folder / "whole")
    delays = [draw.uniform(0, length) for _ in range(count)]
    limiter = trio.CapacityLimiter(AT_ONCE)
    interrupted = 0

    async def one(number: int, delay: float) -> None:
        nonlocal interrupted
        async with limiter:
            victim = Victim(folder / str(number))
            async with victim.model.serve() as victim.url:
                await victim.run_and_kill(delay)
                interrupted += not victim.is_done()
                await victim.finish()

    async with trio.open_nursery() as nursery:
        for number, delay in enumerate(delays):
            nursery.start_soon(one, number, delay)
    return interrupted


async def whole_length(folder: Path) -> float:
    """Seconds from the first request of an undisturbed run to its end."""
    victim = Victim(folder)
    async with victim.model.serve() as victim.url:
        assert 0 == await victim.run(), victim.told()
        ended = trio.current_time()
    victim.check()
    return ended - victim.model.requests[0].at


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_run_killed_at_two_instants_is_resumed_with_nothing_lost_or_doubled(tmp_path: Path) -> None:
    assert 0 < await kill_at_random_instants(tmp_path, 2, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_a_run_killed_at_many_instants_is_resumed_with_nothing_lost_or_doubled(tmp_path: Path) -> None:
    count = int(os.environ.get("ATRIO_TEST_KILLS", "60"))  # 300 before a release: five minutes more
    assert count / 3 < await kill_at_random_instants(tmp_path, count, seed=random.randrange(1 << 30))


# --- at the journal's writes ----------------------------------------------------------------------


async def kill_at_write(folder: Path, number: int, how: How, *, again: int | None = None) -> bool:
    """
    Kill at a write of the journal; with ``again``, kill the resumed process at one of its writes too. False: there
    were fewer writes.
    """
    victim = Victim(folder)
    async with victim.model.serve() as victim.url:
        code = await victim.run(dies=(number, how))
        if code == 0:
            victim.check()
            return False
        assert -signal.SIGKILL == code, victim.told()
        if again is not None and victim.has_begun() and not victim.is_done():
            await victim.resume(dies=(again, how))
        await victim.finish()
    return True


async def kill_at_writes(folder: Path, cases: Sequence[tuple[int, How, int | None]]) -> list[bool]:
    limiter = trio.CapacityLimiter(AT_ONCE)
    outcomes: dict[int, bool] = {}

    async def one(place: int, number: int, how: How, again: int | None) -> None:
        async with limiter:
            outcomes[place] = await kill_at_write(folder / str(place), number, how, again=again)

    async with trio.open_nursery() as nursery:
        for place, case in enumerate(cases):
            nursery.start_soon(one, place, *case)
    return [outcomes[place] for place in range(len(cases))]


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_run_killed_at_some_of_its_writes_is_resumed_with_nothing_lost_or_doubled(tmp_path: Path) -> None:
    cases: list[tuple[int, How, int | None]] = [
        (1, "before", None),
        (2, "after", None),
        (9, "half", 1),
    ]

    assert [True] * len(cases) == await kill_at_writes(tmp_path, cases)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", ["before", "half", "after"])
async def test_a_run_killed_at_each_of_its_writes_is_resumed_with_nothing_lost_or_doubled(
    tmp_path: Path, how: How
) -> None:
    killed: list[bool] = []
    # Until the numbers are beyond the run's writes, so that each was met.
    while all(killed):
        numbers = range(len(killed) + 1, len(killed) + 9)
        cases = [(number, how, number % 4 or None) for number in numbers]
        killed += await kill_at_writes(tmp_path / str(numbers.start), cases)
    assert sum(killed) > 20
