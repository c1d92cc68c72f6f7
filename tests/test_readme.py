"""The programs that README and docs show run as they are written, against a scripted model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import trio

from atrio.actors.testing import ScriptedModel, Turn, text, tool
from atrio.runtime.messages import JsonObject

TOP: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ("README.md", "docs/supervision.md")
LIMIT: Final = 30.0


def programs(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (TOP / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


ALL: Final = [
    pytest.param(program, id=f"{page}:{number}") for page in PAGES for number, program in enumerate(programs(page), 1)
]


def model() -> ScriptedModel:
    def turn(request: JsonObject) -> Turn:
        asked = len(request["messages"]) == 1
        cities = (tool("population", {"city": city}) for city in ("Oslo", "Bergen"))
        return Turn(text("I look both up."), *cities) if asked else Turn(text("Oslo is larger."))

    return ScriptedModel(by=turn)


def test_there_are_programs() -> None:
    assert [2, 1] == [len(programs(page)) for page in PAGES]


@pytest.mark.slow
@pytest.mark.parametrize("program", ALL)
async def test_a_program_runs_as_written(program: str, tmp_path: Path) -> None:
    scripted = model()
    async with scripted.serve() as url:
        environ = {**os.environ, "ANTHROPIC_BASE_URL": url, "ATRIO_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
        with trio.fail_after(LIMIT):
            done = await trio.run_process(
                [sys.executable, "-W", "error", "-c", program],
                cwd=tmp_path,
                env=environ,
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                check=False,
            )
    assert (0, []) == (done.returncode, scripted.violations), done.stdout.decode()
    if "population" in program:
        assert b"Oslo is larger." in done.stdout


@pytest.mark.parametrize("page", [*PAGES, "docs/cli.md", "docs/architecture.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_to_files(page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (TOP / page).read_text(encoding="utf-8"))
    assert [] == [link for link in links if not (TOP / page).parent.joinpath(link).exists()]
