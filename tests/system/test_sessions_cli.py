"""The command line's sessions as real processes: listed, named, resumed, forked, exported, deleted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.support import forking
from tests.support.forking import Ended

from atrio.actors.testing import ScriptedModel, Turn, text
from atrio.runtime.journal import JournalFile

pytestmark = pytest.mark.slow

LIMIT = 30.0


@attrs.frozen
class Shell:
    """A folder and a home to run commands in."""

    folder: Path
    url: str = ""

    async def __call__(self, *words: str) -> Ended:
        known = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV", "PYTHONPATH") if name in os.environ}
        own = {"HOME": str(self.folder), "ATRIO_HOME": str(self.folder / "home"), "ANTHROPIC_BASE_URL": self.url}
        return await forking.run(words, cwd=self.folder, env={**known, **own})

    async def listed(self) -> list[dict[str, Any]]:
        return (await self("sessions", "list", "--json")).lines

    async def ids(self) -> list[str]:
        return [info["id"] for info in await self.listed()]


async def test_a_session_from_its_first_run_to_its_deletion(tmp_path: Path) -> None:
    model = ScriptedModel([Turn(text("One.")), Turn(text("Two.")), Turn(text("Three."))])
    async with model.serve() as url:
        atrio = Shell(tmp_path, url)
        assert Ended(0, "One.\n", "") == await atrio("run", "first <b>")
        (id,) = await atrio.ids()
        assert Ended(0, "", "") == await atrio("sessions", "rename", id[:8], "my name")
        assert Ended(0, "Two.\n", "") == await atrio("run", "second", "--resume", "my name")
        assert Ended(0, "Three.\n", "") == await atrio("-p", "third", "-c", "--fork-session")

    ids = await atrio.ids()
    assert 2 == len(ids)
    listed = (await atrio("sessions")).out
    assert ("my name" in listed, "4 messages" in listed) == (True, True)
    shown = (await atrio("sessions", "show", "my name")).out
    assert ("first &lt;b>" in shown, "Two." in shown, "Three." in shown) == (True, True, False)
    assert Ended(0, "", "") == await atrio("sessions", "export", id, "--format", "html", "-o", "page.html")
    assert 0o600 == (atrio.folder / "page.html").stat().st_mode & 0o777
    assert "first &lt;b&gt;" in (tmp_path / "page.html").read_text()
    again = await atrio("sessions", "export", id, "--output", "page.html")
    assert (2, True) == (again.code, "name a new file" in again.err)
    assert id in (await atrio("sessions", "search", "SECOND")).out
    assert Ended(1, "", "atrio: nothing found\n") == await atrio("sessions", "search", "zebra")
    assert Ended(0, "", "") == await atrio("sessions", "delete", *ids)
    assert [] == await atrio.ids()


async def test_a_session_that_is_done_wants_a_prompt_and_one_in_use_names_its_owner(tmp_path: Path) -> None:
    async with ScriptedModel([Turn(text("One."))]).serve() as url:
        atrio = Shell(tmp_path, url)
        await atrio("run", "first")
        (info,) = await atrio.listed()
        id = info["id"]
        done = await atrio("run", "--continue")
        journal = JournalFile.open(Path(info["path"]))
        try:
            locked = await atrio("run", "second", "--resume", id)
            kept = await atrio("sessions", "delete", id)
        finally:
            journal.close()

    assert (2, True) == (done.code, done.err.startswith("atrio: the prompt: it is missing"))
    for ended in (locked, kept):
        assert (2, "") == (ended.code, ended.out)
        assert f"is in use by process {os.getpid()} " in ended.err


@pytest.mark.parametrize(
    "words",
    [("nonsense",), ("rename", "x"), ("show", "nobody"), ("delete", "nobody"), ("export", "x", "--format", "pdf")],
)
async def test_what_makes_no_sense_is_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    ended = await Shell(tmp_path)("sessions", *words)

    assert (2, "", 1) == (ended.code, ended.out, len(ended.err.splitlines()))
