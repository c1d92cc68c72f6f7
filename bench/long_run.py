"""
A day in the life of an agent, in minutes: one run of ten thousand turns on a virtual clock, with faults all along.

The scripted model answers at once in real time and after some seconds in virtual time; when a conversation gets long
it refuses it, and an injected compaction (a stub) makes room. One request in ten or so meets a fault. The run must
end as it should, and keep at its end about as much memory as it had kept at turn 1,000.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import attrs
import trio
import trio.testing

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, not only with -m

from bench.memory import resident_kib

from atrio.actors import Agent, Dependencies, open_session
from atrio.actors.testing import Fault, RecordedRequest, ScriptedModel, Turn, text, tool
from atrio.actors.testing.sim_world import without_threads
from atrio.runtime.config import Config, Durability
from atrio.runtime.messages import JsonObject, Message, TextBlock, UserMessage
from atrio.runtime.model import ModelFailure
from atrio.runtime.result import Result
from atrio.tools.function import tool as made_tool

GROWTH_TARGET = 10.0
"""Per cent that memory at the end may be above memory at turn 1,000 (or a tenth of the turns)."""

LONGEST = 120
"""Messages of a conversation that the model still takes."""

TOO_LONG = Fault.status(400, type="invalid_request_error", message="prompt is too long: 210000 tokens > 200000 maximum")

MODEL = "claude-sonnet-4-5"


@made_tool(name="Look", concurrency_safe=True, read_only=True)
async def look(number: int) -> str:
    """Look at something."""
    await trio.sleep(0.5)
    return f"{number}: " + "what there is to see; " * 20


class _Forgetful(list[RecordedRequest]):
    """Counts what it is given and keeps none of it: the model's own memory is not what is measured."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def append(self, item: RecordedRequest) -> None:
        self._count += 1

    def __len__(self) -> int:
        return self._count


@attrs.define
class Measured:
    """Memory at one turn. Traced bytes are 0 where nothing traces."""

    turn: int
    traced_bytes: int
    resident_kib: int


@attrs.define(eq=False)
class Day:
    """The model's side: turns, faults, compactions, and the measuring of memory between them."""

    turns: int
    pace: float
    samples: Sequence[int]
    rng: Random
    turn: int = 0
    faults: Counter[str] = attrs.field(factory=Counter)
    compactions: int = 0
    measured: list[Measured] = attrs.field(factory=list)

    def say(self, request: JsonObject) -> Turn:
        """The next turn, once the one before it has come back."""
        self.turn = self._done(request) + 1
        if self.turn > self.turns:
            return Turn(text("The day is over."))
        if self.turn in self.samples and (not self.measured or self.measured[-1].turn < self.turn):
            self.measured.append(_measure(self.turn))
        words = text(f"Turn {self.turn}. " + "Some words about what comes next. " * 5, chunk=60)
        return Turn(words, tool("Look", {"number": self.turn}), delay=self.pace)

    def _done(self, request: JsonObject) -> int:
        """The number of the last call that has its result; what a compaction keeps says it too."""
        for message in reversed(request["messages"]):
            for block in reversed(message["content"]):
                if block.get("type") == "tool_use":
                    return int(block["input"]["number"])
                if block.get("type") == "text" and block["text"].startswith("So far: "):
                    return int(block["text"].split()[2])
        return 0

    def fault(self, number: int, request: JsonObject) -> Fault | None:
        if len(request["messages"]) > LONGEST:
            return TOO_LONG
        if self.rng.random() >= 0.1:
            return None
        fault = self.rng.choice(
            (
                Fault.cut(self.rng.randrange(2000)),
                Fault.stall(self.rng.randrange(2000)),
                Fault.status(529),
                Fault.status(429, retry_after=5),
                Fault.status(500),
                Fault.error_event(self.rng.randrange(8)),
                Fault.garbage(self.rng.randrange(8)),
                Fault.refuse(),
                Fault.slow(20.0),
            )
        )
        self.faults[fault.name.split(" after ")[0]] += 1
        return fault

    async def compact(self, messages: tuple[Message, ...], level: str, failure: ModelFailure) -> tuple[Message, ...]:
        """A stub: one message takes the place of all."""
        self.compactions += 1
        await trio.sleep(20.0)
        said = TextBlock(f"So far: {self.turn - 1} turns are done. Go on.")
        return (UserMessage(uuid=f"00000000-0000-4000-8000-{self.compactions:012d}", content=(said,)),)


def _measure(turn: int) -> Measured:
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0
    return Measured(turn=turn, traced_bytes=traced, resident_kib=resident_kib())


async def live(day: Day, home: Path) -> Result:
    """The run. Cancelled: it is aborted."""
    rng = Random(1)
    model = ScriptedModel(by=day.say, model=MODEL, validate=False, faults=day.fault)
    model.requests = _Forgetful()
    async with open_session(
        Agent(model=MODEL, tools=[look]),
        cwd=home,
        config=Config(home=home / "home", base_url="http://model.test", durability=Durability.OS),
        transport=model.transport(),
        deps=Dependencies(autocompact=day.compact, jitter=rng.random),
    ) as session:
        async with session.submit("Work through the day.") as run:
            async for _event in run:
                pass
        day.measured.append(_measure(day.turn))
        return run.result


def perform(turns: int, hours: float, *, trace: bool) -> dict[str, Any]:
    """One day, and its figures."""
    first = max(1, min(1000, turns // 10))
    day = Day(turns=turns, pace=hours * 3600 / turns, samples=(first, turns // 2), rng=Random(7))
    clock = trio.testing.MockClock(autojump_threshold=0)
    if trace:
        tracemalloc.start()
    began, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="atrio-day-") as folder, without_threads():
        result = trio.run(live, day, Path(folder).resolve(), clock=clock)
    figures = {
        "turns": result.num_turns,
        "end": result.terminal_reason.value,
        "virtual_hours": clock.current_time() / 3600,
        "real_seconds": time.perf_counter() - began,
        "cpu_ms_per_turn": (time.process_time() - cpu) * 1000 / turns,
        "compactions": day.compactions,
        "faults": dict(day.faults.most_common()),
        "memory": [attrs.asdict(each) for each in day.measured],
        "growth_percent": _growth(day.measured, "traced_bytes" if trace else "resident_kib"),
        "measure": "traced bytes" if trace else "resident KiB",
    }
    tracemalloc.stop()
    return figures


def _growth(measured: Sequence[Measured], field: str) -> float:
    first, last = float(getattr(measured[0], field)), float(getattr(measured[-1], field))
    return 100.0 * (last - first) / first


def table(figures: Mapping[str, Any]) -> str:
    lines = [
        f"{figures['turns']:,} turns, {figures['virtual_hours']:.1f} virtual hours in {figures['real_seconds']:.0f} s; "
        f"{figures['cpu_ms_per_turn']:.1f} ms of CPU a turn; the run ended as {figures['end']}",
        f"{figures['compactions']} compactions; faults: "
        + ", ".join(f"{count} {name}" for name, count in figures["faults"].items()),
    ]
    lines += [
        f"turn {each['turn']:>7,}: {each['traced_bytes'] / 1024:>10,.0f} KiB traced {each['resident_kib']:>10,} KiB "
        "resident"
        for each in figures["memory"]
    ]
    lines.append(f"growth of {figures['measure']}: {figures['growth_percent']:.1f} % (target: {GROWTH_TARGET:g} %)")
    return "\n".join(lines)


def main() -> int:
    """Returns 1 where the run did not end as it should."""
    parser = argparse.ArgumentParser(description="One run of many turns on a virtual clock.")
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=24.0, help="virtual hours that the model takes for them")
    parser.add_argument("--trace", action="store_true", help="measure traced bytes (slower), not resident memory")
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    figures = perform(given.turns, given.hours, trace=given.trace)
    print(json.dumps(figures) if given.json else table(figures))
    return 0 if figures["end"] == "completed" else 1


if __name__ == "__main__":
    sys.exit(main())
