"""The benches run, end and print what they promise. No timing is asserted: that is what the benches are for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow]

BENCH = Path(__file__).resolve().parents[2] / "bench"
LIMIT = 50.0


def run_bench(name: str, *options: str) -> str:
    command = [sys.executable, str(BENCH / name), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


def json_of(name: str, *options: str) -> dict[str, Any]:
    measured: dict[str, Any] = json.loads(run_bench(name, *options, "--json"))
    return measured


def test_overlap_measures_every_mode_and_draws_its_timeline(tmp_path: Path) -> None:
    measured = json_of("overlap.py", "--scale", "0.05", "--pictures", str(tmp_path))

    assert ["streaming", "after", "sequential"] == list(measured["modes"])
    assert 0.16 == pytest.approx(measured["ideal"])
    for mode, row in measured["modes"].items():
        assert row["wall"] >= row["expected"] - 0.01
        assert (tmp_path / f"overlap-{mode}.svg").read_text().rstrip().endswith("</svg>")


def test_stream_counts_every_event_of_every_client() -> None:
    measured = json_of("stream.py", "--events", "2000", "--rounds", "1")

    assert ["bare", "raw", "httpx-sse", "pieces", "session"] == list(measured["clients"])
    assert all(row["cpu_us"] > 0 for row in measured["clients"].values())
    assert ["raw", "session"] == list(measured["memory"])


def test_fanout_ends_every_session(tmp_path: Path) -> None:
    measured = json_of("fanout.py", "--sessions", "5", "--delay", "0.001", "--durability", "os")

    ends = {kind: row["ends"] for kind, row in measured["kinds"].items()}
    assert {"floor": {"completed, 5 turns": 5}, "session": {"completed, 5 turns": 5}} == ends


@pytest.mark.soak
@pytest.mark.parametrize("name", ["overlap.py", "stream.py", "fanout.py"])
def test_without_json_a_table_names_the_target(name: str, tmp_path: Path) -> None:
    tiny = {
        "overlap.py": ("--scale", "0.02", "--pictures", str(tmp_path)),
        "stream.py": ("--events", "500", "--rounds", "1", "--no-memory"),
        "fanout.py": ("--sessions", "2", "--delay", "0.001"),
    }
    assert "target" in run_bench(name, *tiny[name])
