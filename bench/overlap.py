"""
Do tools run while the model still speaks? Three 1 s tools, complete at 0.6, 1.2 and 1.8 s of a 3 s response, then a
response of 0.2 s. Nobody can be faster than the two responses: 3.2 s. Each mode's timeline is drawn.

Three modes on the same script, the same tool and the same wire code:

- streaming: an atrio session, opened and closed within the measured time.
- after: a hand-written loop that collects a response to its end and then runs its calls at once.
- sequential: the same loop, but one call after the other.

The hand-written loop has no journal, permissions or supervision, which can only make it faster than the session.
A first, short round that nobody counts pays for what a process pays once (imports, the certificate store).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import httpx
import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, not only with -m

from bench.server import TOOL, ideal, running_server

from atrio.actors.agent import Agent
from atrio.actors.session import open_session
from atrio.runtime.assembler import MessageAssembler
from atrio.runtime.config import Config
from atrio.runtime.messages import ToolUseBlock
from atrio.runtime.model import BlockCompleted
from atrio.runtime.sse import EventStreamDecoder
from atrio.runtime.timeline import MODEL, Span, TimelineBuilder, render_svg
from atrio.tools.function import tool

TARGET = 1.01
"""Wall time of the streaming mode, as a multiple of the ideal."""

TITLES = {
    "streaming": "Streaming: a call runs as soon as it is complete",
    "after": "After the stream: all calls at once",
    "sequential": "Sequential: after the stream, one call after the other",
}
PICTURES = Path(__file__).parent / "out"
WARM_UP = 0.02
"""Scale of the round that nobody counts."""


@tool(name=TOOL, concurrency_safe=True, read_only=True)
async def wait(seconds: float, number: int) -> str:
    """Wait so many seconds."""
    await trio.sleep(seconds)
    return f"{number} done"


@attrs.frozen
class Measured:
    """One mode: its wall time in seconds, and what ran when."""

    wall: float
    spans: Sequence[Span]


async def streaming(url: str) -> Measured:
    """A session. Cancelled: the run is aborted and its tools with it."""
    timeline = TimelineBuilder()
    with tempfile.TemporaryDirectory(prefix="atrio-bench-") as folder:
        config = Config(home=Path(folder, "home"), base_url=url)
        began = time.perf_counter()
        agent = Agent(model="bench", tools=[wait])
        async with open_session(agent, cwd=folder, config=config) as session, session.submit("go") as run:
            async for event in run:
                timeline.take(event, trio.current_time())
        wall = time.perf_counter() - began
    if run.result.is_error or run.result.num_turns != 2:
        raise RuntimeError(f"the run did not end as it should: {run.result}")
    return Measured(wall, timeline.spans())


@attrs.define
class Collector:
    """The loop of most agents: a response to its end, then its calls, together or one after the other."""

    url: str
    together: bool
    messages: list[dict[str, Any]] = attrs.field(factory=lambda: [{"role": "user", "content": "three calls, please"}])
    spans: list[Span] = attrs.field(factory=list)

    async def run(self) -> Measured:
        """The whole conversation. Cancelled: its calls are too."""
        began = time.perf_counter()
        async with httpx.AsyncClient(timeout=None) as client:
            while calls := await self._response(client):
                results: dict[str, str] = {}
                if self.together:
                    async with trio.open_nursery() as nursery:
                        for call in calls:
                            nursery.start_soon(self._call, call, results)
                else:
                    for call in calls:
                        await self._call(call, results)
                content = [{"type": "tool_result", "tool_use_id": c.id, "content": results[c.id]} for c in calls]
                self.messages.append({"role": "user", "content": content})
        return Measured(time.perf_counter() - began, self.spans)

    async def _response(self, client: httpx.AsyncClient) -> list[ToolUseBlock]:
        decoder, assembler, began = EventStreamDecoder(), MessageAssembler(), trio.current_time()
        calls: list[ToolUseBlock] = []
        body = json.dumps({"messages": self.messages})
        async with client.stream("POST", f"{self.url}/v1/messages", content=body) as response:
            async for chunk in response.aiter_raw():
                for item in (item for event in decoder.feed(chunk) for item in assembler.feed(event)):
                    if isinstance(item, BlockCompleted) and isinstance(item.block, ToolUseBlock):
                        calls.append(item.block)
        uses = [{"type": "tool_use", "id": c.id, "name": c.name, "input": dict(c.input)} for c in calls]
        self.messages.append({"role": "assistant", "content": uses})
        self.spans.append(Span(MODEL, "model", f"turn {len(self.messages) // 2}", began, trio.current_time()))
        return calls

    async def _call(self, call: ToolUseBlock, results: dict[str, str]) -> None:
        began = trio.current_time()
        results[call.id] = await wait(**call.input)
        self.spans.append(Span(f"{call.name} {call.id}", "tool", call.name, began, trio.current_time()))


async def measure(mode: str, url: str) -> Measured:
    """One round of a mode. Cancelled: as the mode."""
    if mode == "streaming":
        return await streaming(url)
    return await Collector(url, together=mode == "after").run()


def expected(mode: str, scale: float) -> float:
    """What the mode's order of things comes to, without any cost of its own."""
    after_the_stream = {"streaming": 0.0, "after": 1.0, "sequential": 3.0}
    return ideal(f"overlap,scale={scale}") + after_the_stream[mode] * scale


def run_rounds(base: str, options: argparse.Namespace) -> dict[str, Measured]:
    """The best round of each mode."""
    best: dict[str, Measured] = {}
    for mode in options.modes:
        trio.run(measure, mode, f"{base}/overlap,scale={WARM_UP}")
    for _ in range(options.rounds):
        for mode in options.modes:
            measured = trio.run(measure, mode, f"{base}/overlap,scale={options.scale}")
            if mode not in best or measured.wall < best[mode].wall:
                best[mode] = measured
    return best


def draw(best: dict[str, Measured], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for mode, measured in best.items():
        picture = render_svg(measured.spans, title=TITLES[mode])
        (folder / f"overlap-{mode}.svg").write_text(picture, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, help="the best round counts")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on all times")
    parser.add_argument("--modes", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="the folder for the timelines")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    options = parser.parse_args()
    spec = f"overlap,scale={options.scale}"
    with running_server(spec, f"overlap,scale={WARM_UP}") as base:
        best = run_rounds(base, options)
    draw(best, options.pictures)
    bound = ideal(spec)
    rows = {
        mode: {"wall": m.wall, "ratio": m.wall / bound, "expected": expected(mode, options.scale)}
        for mode, m in best.items()
    }
    if options.json:
        print(json.dumps({"ideal": bound, "modes": rows, "pictures": str(options.pictures)}))
        return
    print(f"ideal: {bound:.3f} s\n\n{'mode':<12}{'wall':>9}{'/ ideal':>10}{'its own order':>16}")
    for mode, row in rows.items():
        print(f"{mode:<12}{row['wall']:>7.3f} s{row['ratio']:>10.4f}{row['expected']:>14.3f} s")
    print(f"\ntarget for streaming: {TARGET}\ntimelines: {options.pictures}/overlap-*.svg")


if __name__ == "__main__":
    main()
