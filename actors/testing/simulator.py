"""
Deterministic simulation: one session with real actors in a world that is drawn from a seed.

    python -m atrio.actors.testing.simulator --seed 7 --trace
    python -m atrio.actors.testing.simulator --seed 0 --count 2000

A seed draws a scenario and everything that goes wrong in it (`draw_plan`); time is virtual, the wire is in memory.
After each run the invariants of `sim_checks` must hold. The same seed gives the same trace in any process.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs
import trio
import trio.testing

from .sim_driver import Director
from .sim_plan import Plan, draw_plan
from .sim_world import deterministic_scheduling, without_threads

__all__ = ["Outcome", "draw_plan", "main", "simulate"]

COLLECT_EVERY = 50
"""Seeds between two garbage collections, which pause while a seed runs."""


@attrs.frozen(kw_only=True)
class Outcome:
    """
    What came of one seed.

    ``digest`` stands for the whole trace, ``trace`` is there only if it was asked for. ``reasons`` has the end of
    each run; the last is the run after the storm.
    """

    seed: int
    findings: tuple[str, ...]
    digest: str
    reasons: tuple[str, ...]
    events: int
    virtual: float
    trace: tuple[str, ...] = ()

    @property
    def replay(self) -> str:
        """The command that plays it again, with a trace."""
        return f"python -m atrio.actors.testing.simulator --seed {self.seed} --trace"

    def __str__(self) -> str:
        if not self.findings:
            return f"seed {self.seed}: {', '.join(self.reasons)}"
        return "\n".join(
            (f"seed {self.seed} breaks what must hold:", *(f"- {each}" for each in self.findings), f"  {self.replay}")
        )


def simulate(seed: int, *, trace: bool = False, plan: Plan | None = None) -> Outcome:
    """
    Play the session of ``seed`` (or ``plan`` in its place) and say what did not hold.

    Runs Trio by itself: call it outside of any Trio run. Wants no network and a temporary folder for the journal.
    """
    if plan is None:
        plan = draw_plan(seed)
    with tempfile.TemporaryDirectory(prefix="atrio-sim-") as folder:
        director = Director(plan, Path(folder).resolve(), keep_trace=trace)
        clock = trio.testing.MockClock(autojump_threshold=0)
        with deterministic_scheduling(plan.scheduler), without_threads():
            trio.run(director.perform, clock=clock, instruments=[director.steps])
        virtual = clock.current_time()
    if seed % COLLECT_EVERY == 0:
        gc.collect()
    results = [log.result for log in director.logs]
    return Outcome(
        seed=seed,
        findings=tuple(director.findings),
        digest=director.digest.hexdigest(),
        reasons=tuple(result.terminal_reason.value if result is not None else "none" for result in results),
        events=sum(len(log.events) for log in director.logs),
        virtual=virtual,
        trace=tuple(director.trace),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 1 if something did not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m atrio.actors.testing.simulator", description="Simulated sessions, from seeds."
    )
    parser.add_argument("--seed", type=int, default=0, help="the (first) seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds (default: 1)")
    parser.add_argument("--trace", action="store_true", help="print the plan and every event")
    parser.add_argument("--digest", action="store_true", help="print the trace's digest of each seed")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    began = time.perf_counter()
    ends: Counter[str] = Counter()
    failed = 0
    for seed in range(given.seed, given.seed + given.count):
        if given.trace:
            print("\n".join(draw_plan(seed).describe()))
        outcome = simulate(seed, trace=given.trace)
        ends.update(outcome.reasons)
        failed += bool(outcome.findings)
        for line in outcome.trace:
            print(line.encode("ascii", "backslashreplace").decode())
        if given.digest:
            print(f"{seed} {outcome.digest}")
        if outcome.findings or given.count == 1:
            print(str(outcome).encode("ascii", "backslashreplace").decode(), flush=True)
    took = time.perf_counter() - began
    if given.count > 1:
        print(f"{given.count} seeds, {failed} with findings, {took:.1f} s; ends: {dict(ends.most_common())}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
