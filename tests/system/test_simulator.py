"""Sessions drawn from seeds keep every invariant, and the same seed is the same session everywhere."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from atrio.actors.testing.simulator import Outcome, draw_plan, simulate
from atrio.runtime.result import TerminalReason

CHUNK = 20
QUICK = 60
SAME = 10
SOAK = 2_000
LARGE_CHUNK = 125
LIMIT = 280.0


played = functools.cache(simulate)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "atrio.actors.testing.simulator", *arguments]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, QUICK, CHUNK))
def test_every_invariant_holds(first: int) -> None:
    broken = [outcome for outcome in map(played, range(first, first + CHUNK)) if outcome.findings]
    assert not broken, "\n".join(map(str, broken))


@pytest.mark.soak
@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("first", range(QUICK, QUICK + SOAK, LARGE_CHUNK))
def test_every_invariant_holds_for_thousands_of_seeds(first: int) -> None:
    broken = [outcome for outcome in map(simulate, range(first, first + LARGE_CHUNK)) if outcome.findings]
    assert not broken, "\n".join(map(str, broken))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trace_in_any_process() -> None:
    def digests(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            command("--seed", "500", "--count", str(SAME), "--digest"), env=environment, capture_output=True, text=True
        )
        return "\n".join(line for line in done.stdout.splitlines() if len(line.split()) == 2)

    once, again = digests("1"), digests("2")
    assert SAME == len(once.splitlines())
    assert once == again
    # What ran before in this process doesn't matter either.
    assert once == "\n".join(f"{seed} {simulate(seed).digest}" for seed in range(500, 500 + SAME))


def test_a_seed_draws_the_same_plan_twice() -> None:
    assert [draw_plan(seed).describe() for seed in range(50)] == [draw_plan(seed).describe() for seed in range(50)]


def test_a_broken_seed_says_how_to_play_it_again() -> None:
    outcome = Outcome(seed=7, findings=("history: broken",), digest="", reasons=("completed",), events=1, virtual=0.0)
    assert "- history: broken" in str(outcome)
    assert str(outcome).endswith("python -m atrio.actors.testing.simulator --seed 7 --trace")


@pytest.mark.soak
@pytest.mark.timeout(LIMIT)
def test_the_seeds_reach_nearly_every_end() -> None:
    """Otherwise the simulator would have stopped looking at what it is there for."""
    seen = {reason for seed in range(200) for reason in played(seed).reasons}
    rare = {TerminalReason.RAPID_REFILL_BREAKER, TerminalReason.TOOL_DEFERRED, TerminalReason.IMAGE_ERROR}
    assert {reason.value for reason in TerminalReason if reason not in rare} <= seen


def test_the_command_line_prints_a_trace() -> None:
    done = subprocess.run(command("--seed", "3", "--trace"), capture_output=True, text=True)
    assert (0, "") == (done.returncode, done.stderr)
    assert "seed 3: " in done.stdout
    assert "RunStarted(" in done.stdout


@pytest.mark.slow
def test_a_short_day_of_the_long_run_ends_right() -> None:
    bench = Path(__file__).resolve().parents[2] / "bench" / "long_run.py"
    done = subprocess.run(
        [sys.executable, str(bench), "--turns", "150", "--hours", "0.4", "--json"],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (0, "") == (done.returncode, done.stderr)
    figures = json.loads(done.stdout)
    assert "completed" == figures["end"]
    assert figures["compactions"] >= 2
    assert figures["faults"]
    assert figures["virtual_hours"] >= 0.4
