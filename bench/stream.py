"""
What one event of a fast stream costs, from a bare socket to a whole session.

Another process sends text deltas without pause, one HTTP chunk and one send for each. Rounds of all clients
alternate, so that a busy moment of the machine hits everybody, and the median counts. Memory is measured in processes
of their own, at a tenth of the events and at all of them: the difference is what an event leaves behind.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, not only with -m

from bench.clients import CLIENTS, FLOOR, WHOLE
from bench.memory import peak_kib
from bench.server import running_server

TARGET = 1.5
"""CPU per event of a session, as a multiple of the floor."""


@attrs.frozen
class Sample:
    """One client, once."""

    cpu: float
    wall: float
    dropped: int


def measure(client: str, url: str, events: int) -> Sample:
    """Run a client over a flood. Raises RuntimeError if it lost events."""
    cpu, wall = time.process_time(), time.perf_counter()
    seen = CLIENTS[client](url)
    sample = Sample(time.process_time() - cpu, time.perf_counter() - wall, seen.dropped)
    if seen.deltas + seen.dropped < events or seen.deltas > events:
        raise RuntimeError(f"{client} saw {seen.deltas} of {events} events")
    return sample


def run_rounds(base: str, names: list[str], events: int, rounds: int) -> dict[str, list[Sample]]:
    """Alternating rounds, after one small one that nobody counts."""
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    for name in names:
        measure(name, f"{base}/flood,events=1000", 1000)
    for _ in range(rounds):
        for name in names:
            samples[name].append(measure(name, f"{base}/flood,events={events}", events))
    return samples


def memory_of(client: str, base: str, events: int) -> int:
    """Peak KiB of a fresh process that runs one client."""
    command = [sys.executable, __file__, "--peak", client, base, "--events", str(events)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def report(samples: dict[str, list[Sample]], events: int) -> dict[str, dict[str, float]]:
    """Medians for each client, and its CPU as a multiple of the floor's."""
    rows: dict[str, dict[str, float]] = {}
    for name, taken in samples.items():
        cpu = statistics.median(sample.cpu for sample in taken)
        wall = statistics.median(sample.wall for sample in taken)
        rows[name] = {"cpu_us": cpu / events * 1e6, "least_cpu_us": min(s.cpu for s in taken) / events * 1e6}
        rows[name]["events_per_s"] = events / wall
        rows[name]["dropped"] = max(sample.dropped for sample in taken)
    for row in rows.values():
        if FLOOR in rows:
            row["ratio"] = row["cpu_us"] / rows[FLOOR]["cpu_us"]
            row["least_ratio"] = row["least_cpu_us"] / rows[FLOOR]["least_cpu_us"]
    return rows


def show(rows: dict[str, dict[str, float]], memory: dict[str, dict[str, float]], events: int) -> None:
    print(f"{events:,} text deltas\n")
    print(f"{'client':<12}{'us/event':>10}{'events/s':>12}{'x floor':>10}{'best round':>13}")
    for name, row in rows.items():
        ratio, least = row.get("ratio", float("nan")), row.get("least_ratio", float("nan"))
        print(f"{name:<12}{row['cpu_us']:>10.2f}{row['events_per_s']:>12,.0f}{ratio:>10.2f}{least:>13.2f}")
    if WHOLE in rows and FLOOR in rows:
        print(f"\na session costs {rows[WHOLE]['ratio']:.2f} x the floor (target: {TARGET})")
    for name, row in rows.items():
        if row["dropped"]:
            print(
                f"{name}: its reader fell behind, {row['dropped']:,.0f} partial events of a round were dropped for it"
            )
    for name, row in memory.items():
        print(
            f"memory, {name}: peak {row['few_kib']:,.0f} KiB at {row['few']:,.0f} events, "
            f"{row['many_kib']:,.0f} KiB at {row['many']:,.0f}: {row['bytes_per_event']:.0f} bytes an event"
        )


def measure_memory(base: str, names: list[str], events: int) -> dict[str, dict[str, float]]:
    few = max(1, events // 10)
    rows: dict[str, dict[str, float]] = {}
    for name in names:
        low, high = memory_of(name, base, few), memory_of(name, base, events)
        left = (high - low) * 1024 / (events - few)
        rows[name] = {"few": few, "few_kib": low, "many": events, "many_kib": high, "bytes_per_event": left}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    parser.add_argument("--peak", nargs=2, metavar=("CLIENT", "URL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        client, base = options.peak
        measure(client, f"{base}/flood,events={options.events}", options.events)
        print(peak_kib())
        return
    with running_server("flood,events=1000", f"flood,events={options.events}") as base:
        rows = report(run_rounds(base, options.clients, options.events, options.rounds), options.events)
        watched = [] if options.no_memory else [name for name in (FLOOR, WHOLE) if name in options.clients]
        memory = measure_memory(base, watched, options.events)
    if options.json:
        print(json.dumps({"events": options.events, "clients": rows, "memory": memory}))
    else:
        show(rows, memory, options.events)


if __name__ == "__main__":
    main()
