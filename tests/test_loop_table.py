"""The tables of docs/loop.md say all there is, and nothing that isn't."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from atrio.runtime.result import TerminalReason
from atrio.runtime.state import ContinueReason

ROOT = Path(__file__).parents[1]


def rows(heading: str) -> dict[str, str]:
    text = (ROOT / "docs" / "loop.md").read_text(encoding="utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            found[cells[0].strip("`")] = cells[-1]
    return found


@pytest.mark.parametrize(
    ("heading", "reasons"), [("Transitions", list(ContinueReason)), ("Ends", list(TerminalReason))], ids=str
)
def test_every_reason_has_its_row_and_every_test_named_there_exists(heading: str, reasons: list[str]) -> None:
    table = rows(heading)
    assert {str(reason) for reason in reasons} == set(table)
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "system").glob("test_*.py"))
    for reason, cell in table.items():
        named = re.findall(r"`(test_\w+)`", cell)
        assert named, f"no test is named for {reason}"
        assert [] == [name for name in named if f"def {name}(" not in tests], reason
