"""
A thousand sessions in one process: five responses each, 20 ms between chunks, a trivial tool call after each of the
first four.

Each measurement is a fresh process, so that its memory is its own; the servers are further ones. The floor is a
hand-written loop on Trio and httpx with the same pieces a session needs (its own connection, one parse for each
event, the conversation kept), but no journal, permissions, supervision or events.

Wall time is compared with the ideal: what the responses take one after the other, for as many sessions as you like.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import httpx
import orjson
import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, not only with -m

from bench.memory import peak_kib, resident_kib
from bench.server import TOOL, ideal, running_server

from atrio.actors.agent import Agent
from atrio.actors.session import open_session
from atrio.runtime.config import Config, Durability
from atrio.tools.function import tool

CPU_TARGET = 12.0
"""Milliseconds of CPU a session."""

MEMORY_TARGET = 300.0
"""KiB a session."""

TURNS = 4
FILES_PER_SESSION = 4
"""A connection and a journal, and some room."""

KINDS = ("floor", "session")


@tool(name=TOOL, concurrency_safe=True, read_only=True)
async def nothing(seconds: float, number: int) -> str:
    """Do nothing."""
    await trio.lowlevel.checkpoint()
    return f"{number} done"


@attrs.define
class Outcomes:
    """How the sessions ended, and when the last one did."""

    ends: Counter[str] = attrs.field(factory=Counter)


async def floor(url: str, client: httpx.AsyncClient, outcomes: Outcomes) -> None:
    """One conversation by hand. Cancelled: its connection is closed."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    turns = 0
    async with client:
        while True:
            content = await _response(client, url, messages)
            turns += 1
            messages.append({"role": "assistant", "content": content})
            calls = [block for block in content if block["type"] == "tool_use"]
            if not calls:
                break
            results = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": await nothing(**call["input"])}
                for call in calls
            ]
            messages.append({"role": "user", "content": results})
    outcomes.ends[f"completed, {turns} turns"] += 1


async def _response(client: httpx.AsyncClient, url: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    body = orjson.dumps({"model": "bench", "max_tokens": 1000, "messages": messages, "stream": True})
    blocks: list[dict[str, Any]] = []
    texts: list[str] = []
    rest = b""
    async with client.stream("POST", f"{url}/v1/messages", content=body) as response:
        async for chunk in response.aiter_raw():
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if line.startswith(b"data: "):
                    _take(orjson.loads(line[6:]), blocks, texts)
    return blocks


def _take(event: dict[str, Any], blocks: list[dict[str, Any]], texts: list[str]) -> None:
    match event["type"]:
        case "content_block_start":
            blocks.append(event["content_block"])
        case "content_block_delta":
            texts.append(event["delta"].get("text") or event["delta"].get("partial_json", ""))
        case "content_block_stop":
            whole = "".join(texts)
            texts.clear()
            if blocks[-1]["type"] == "text":
                blocks[-1]["text"] = whole
            else:
                blocks[-1]["input"] = orjson.loads(whole)


async def session(config: Config, cwd: Path, outcomes: Outcomes) -> None:
    """One atrio session, its events read to the end. Cancelled: its run is aborted."""
    agent = Agent(model="bench", tools=[nothing])
    async with open_session(agent, cwd=cwd, config=config) as opened, opened.submit("go") as run:
        async for _event in run:
            pass
    result = run.result
    outcomes.ends[f"{result.terminal_reason.value}, {result.num_turns} turns"] += 1


async def run_all(kind: str, urls: list[str], sessions: int, durability: Durability, home: Path) -> Outcomes:
    """All of them at once. Cancelled: all are."""
    outcomes = Outcomes()
    tls = httpx.create_ssl_context()
    async with trio.open_nursery() as nursery:
        for number in range(sessions):
            url = urls[number % len(urls)]
            if kind == "floor":
                nursery.start_soon(floor, url, httpx.AsyncClient(verify=tls, timeout=None), outcomes)
            else:
                config = Config(home=home, base_url=url, durability=durability)
                nursery.start_soon(session, config, home, outcomes)
    return outcomes


def measure(kind: str, urls: list[str], sessions: int, durability: Durability) -> dict[str, Any]:
    """In this process: one session to load everything, then all of them."""
    with tempfile.TemporaryDirectory(prefix="atrio-bench-") as folder:
        home = Path(folder)
        trio.run(run_all, kind, urls, 1, durability, home)
        before = resident_kib()
        cpu, wall = time.process_time(), time.perf_counter()
        outcomes = trio.run(run_all, kind, urls, sessions, durability, home)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "sessions": sessions,
        "wall": wall,
        "cpu_ms": cpu / sessions * 1000,
        "kib": (peak_kib() - before) / sessions,
        "ends": dict(outcomes.ends),
    }


def in_child(kind: str, urls: list[str], sessions: int, durability: Durability) -> dict[str, Any]:
    """The same in a process of its own. Raises RuntimeError unless every session ended as it should."""
    command = [sys.executable, __file__, "--measure", kind, "--urls", *urls]
    command += ["--sessions", str(sessions), "--durability", durability.value]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    if measured["ends"] != {f"completed, {TURNS + 1} turns": sessions}:
        raise RuntimeError(f"{kind}: not every session ended as it should: {measured['ends']}")
    return measured


def raise_file_limit(sessions: int) -> None:
    """Ask for as many open files as the sessions need, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = sessions * FILES_PER_SESSION + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def show(rows: dict[str, dict[str, Any]], bound: float, durability: str) -> None:
    print(f"ideal: {bound:.2f} s; journal durability: {durability}\n")
    print(f"{'kind':<10}{'sessions':>9}{'wall':>10}{'/ ideal':>9}{'CPU ms each':>13}{'KiB each':>10}   ends")
    for kind, row in rows.items():
        print(
            f"{kind:<10}{row['sessions']:>9,}{row['wall']:>8.2f} s{row['wall'] / bound:>9.2f}{row['cpu_ms']:>13.2f}"
            f"{row['kib']:>10.0f}   {', '.join(f'{count:,} x {end}' for end, count in row['ends'].items())}"
        )
    if set(KINDS) <= set(rows):
        ratio = rows["session"]["cpu_ms"] / rows["floor"]["cpu_ms"]
        print(f"\na session costs {ratio:.2f} x the CPU of the hand-written loop")
    print(f"target: {CPU_TARGET:g} ms and {MEMORY_TARGET:g} KiB a session")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--durability", type=Durability, choices=list(Durability), default=Durability.BATCH)
    parser.add_argument("--rounds", type=int, default=1, help="the round with the least CPU counts")
    parser.add_argument("--servers", type=int, default=1, help="server processes")
    parser.add_argument("--delay", type=float, default=0.02, help="seconds between chunks")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    parser.add_argument("--measure", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--urls", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    raise_file_limit(options.sessions)
    if options.measure:
        print(json.dumps(measure(options.measure, options.urls, options.sessions, options.durability)))
        return
    spec = f"paced,turns={TURNS},delay={options.delay}"
    rows: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        urls = [f"{stack.enter_context(running_server(spec))}/{spec}" for _ in range(options.servers)]
        for _ in range(options.rounds):
            for kind in options.kinds:
                row = in_child(kind, urls, options.sessions, options.durability)
                if kind not in rows or row["cpu_ms"] < rows[kind]["cpu_ms"]:
                    rows[kind] = row
    if options.json:
        print(json.dumps({"ideal": ideal(spec), "durability": options.durability.value, "kinds": rows}))
    else:
        show(rows, ideal(spec), options.durability.value)


if __name__ == "__main__":
    main()
