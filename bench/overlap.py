"""
Do tools run while the model still speaks? Three 1 s tools, complete at 0.6, 1.2 and 1.8 s of a 3 s response, then a
response of 0.2 s. Nobody can be faster than the two responses: 3.2 s.

Three modes on the same script, the same tool and the same wire code:

- streaming: an atrio session, opened and closed within the measured time.
- after: a hand-written loop that collects a response to its end and then runs its calls at once.
- sequential: the same loop, but one call after the other.

The hand-written loop has no journal, permissions or supervision, which can only make it faster than the session.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import attrs
import httpx
import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, not only with -m

from bench.server import TOOL, ideal, running_server

from atrio.actors.agent import Agent
from atrio.actors.session import open_session
from atrio.runtime.assembler import MessageAssembler
from atrio.runtime.config import Config
from atrio.runtime.events import Event
from atrio.runtime.messages import ToolUseBlock
from atrio.runtime.model import BlockCompleted
from atrio.runtime.sse import EventStreamDecoder
from atrio.tools.function import tool

TARGET = 1.01
"""Wall time of the streaming mode, as a multiple of the ideal."""

MODES = ("streaming", "after", "sequential")
PICTURE = Path(__file__).parent / "out" / "overlap.svg"
CAN_DRAW = importlib.util.find_spec("atrio.runtime.timeline") is not None


@tool(name=TOOL, concurrency_safe=True, read_only=True)
async def wait(seconds: float, number: int) -> str:
    """Wait so many seconds."""
    await trio.sleep(seconds)
    return f"{number} done"


@attrs.frozen
class Measured:
    """One mode: its wall time in seconds, and what a picture can be drawn from."""

    wall: float
    events: Sequence[tuple[Event, float]] = ()


async def streaming(url: str) -> Measured:
    """A session. Cancelled: the run is aborted and its tools with it."""
    events: list[tuple[Event, float]] = []
    with tempfile.TemporaryDirectory(prefix="atrio-bench-") as folder:
        config = Config(home=Path(folder, "home"), base_url=url)
        began = time.perf_counter()
        async with open_session(Agent(model="bench", tools=[wait]), cwd=folder, config=config) as session:
            async with session.submit("three calls, please") as run:
                async for event in run:
                    events.append((event, trio.current_time()))
        wall = time.perf_counter() - began
    if run.result.is_error or run.result.num_turns != 2:
        raise RuntimeError(f"the run did not end as it should: {run.result}")
    return Measured(wall, events)


async def collect_then_run(url: str, *, together: bool) -> Measured:
    """The loop of most agents. Cancelled: its calls are too."""
    began = time.perf_counter()
    messages: list[dict[str, Any]] = [{"role": "user", "content": "three calls, please"}]
    async with httpx.AsyncClient(timeout=None) as client:
        while calls := await _response(client, url, messages):
            results: dict[str, str] = {}
            if together:
                async with trio.open_nursery() as nursery:
                    for call in calls:
                        nursery.start_soon(_run, call, results)
            else:
                for call in calls:
                    await _run(call, results)
            content = [{"type": "tool_result", "tool_use_id": c.id, "content": results[c.id]} for c in calls]
            messages.append({"role": "user", "content": content})
    return Measured(time.perf_counter() - began)


async def _response(client: httpx.AsyncClient, url: str, messages: list[dict[str, Any]]) -> list[ToolUseBlock]:
    """One response to its end; what it calls."""
    decoder, assembler = EventStreamDecoder(), MessageAssembler()
    calls: list[ToolUseBlock] = []
    async with client.stream("POST", f"{url}/v1/messages", content=json.dumps({"messages": messages})) as response:
        async with aclosing(cast("AsyncGenerator[bytes]", response.aiter_raw())) as chunks:
            async for chunk in chunks:
                for item in (item for event in decoder.feed(chunk) for item in assembler.feed(event)):
                    if isinstance(item, BlockCompleted) and isinstance(item.block, ToolUseBlock):
                        calls.append(item.block)
    uses = [{"type": "tool_use", "id": c.id, "name": c.name, "input": dict(c.input)} for c in calls]
    messages.append({"role": "assistant", "content": uses})
    return calls


async def _run(call: ToolUseBlock, results: dict[str, str]) -> None:
    results[call.id] = await wait(**call.input)


async def measure(mode: str, url: str) -> Measured:
    """One round of a mode. Cancelled: as the mode."""
    if mode == "streaming":
        return await streaming(url)
    return await collect_then_run(url, together=mode == "after")


def expected(mode: str, scale: float) -> float:
    """What the mode's order of things comes to, without any cost of its own."""
    after_the_stream = {"streaming": 0.0, "after": 1.0, "sequential": 3.0}
    return ideal(f"overlap,scale={scale}") + after_the_stream[mode] * scale


def draw(events: Sequence[tuple[Event, float]], path: Path) -> bool:
    """The timeline of a session as a picture; False where this atrio can't draw."""
    if not CAN_DRAW:
        return False
    from atrio.runtime.timeline import TimelineBuilder, render_svg

    builder = TimelineBuilder()
    for event, at in events:
        builder.take(event, at)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_svg(builder.spans(), title="Three tools inside a 3 s response"), encoding="utf-8")
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, help="the best round counts")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on all times")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    options = parser.parse_args()
    spec = f"overlap,scale={options.scale}"
    best: dict[str, Measured] = {}
    with running_server(spec) as base:
        for _ in range(options.rounds):
            for mode in options.modes:
                measured = trio.run(measure, mode, f"{base}/{spec}")
                if mode not in best or measured.wall < best[mode].wall:
                    best[mode] = measured
    bound = ideal(spec)
    drawn = "streaming" in best and draw(best["streaming"].events, options.picture)
    rows = {
        mode: {"wall": m.wall, "ratio": m.wall / bound, "expected": expected(mode, options.scale)}
        for mode, m in best.items()
    }
    if options.json:
        print(json.dumps({"ideal": bound, "modes": rows, "picture": str(options.picture) if drawn else None}))
        return
    print(f"ideal: {bound:.3f} s\n\n{'mode':<12}{'wall':>9}{'/ ideal':>10}{'its own order':>16}")
    for mode, row in rows.items():
        print(f"{mode:<12}{row['wall']:>7.3f} s{row['ratio']:>10.4f}{row['expected']:>14.3f} s")
    print(f"\ntarget for streaming: {TARGET}")
    print(f"picture: {options.picture}" if drawn else "no picture: this atrio has no atrio.runtime.timeline")


if __name__ == "__main__":
    main()
