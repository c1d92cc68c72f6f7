"""
Public readers of transcripts, pointed at atrio's folder: they show the session and add its tokens up rightly.

They come from their package registries; where those can't be reached, there is nothing to test.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from tests.support.agents import Probe, config

from atrio.actors import Agent, open_session
from atrio.actors.testing import ScriptedModel, Turn, text, thinking, tool

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

LOG_READER: Final = "claude-code-log==1.7.0"
USAGE_READER: Final = "ccusage@17"
"""The last line of versions that are plain JavaScript."""

INSTALL_LIMIT: Final = 400.0
READ_LIMIT: Final = 120.0
MODEL: Final = "claude-sonnet-4-5"


@attrs.frozen
class Recorded:
    """A session that ended, and what its responses used."""

    home: Path
    session_id: str
    input: int
    output: int
    cache_write: int
    cache_read: int

    @property
    def projects(self) -> Path:
        return self.home / "projects"


def used(input: int, output: int, cache_write: int, cache_read: int) -> dict[str, int]:
    return {
        "input_tokens": input,
        "output_tokens": output,
        "cache_creation_input_tokens": cache_write,
        "cache_read_input_tokens": cache_read,
    }


async def record(tmp_path: Path) -> Recorded:
    """Two turns with parallel calls, one with a message in between, a fork that copies them, a slash command."""
    turns = [
        Turn(
            thinking("Hm."),
            text("I look around."),
            *(tool("Probe", {"name": name}) for name in "ab"),
            usage=used(100, 20, 5, 3),
        ),
        Turn(text("All looked at."), usage=used(200, 30, 11, 7)),
        Turn(text("As you say."), usage=used(300, 40, 0, 13)),
    ]
    model = ScriptedModel(turns)
    options: dict[str, Any] = {
        "cwd": tmp_path,
        "config": config(tmp_path / "home"),
        "transport": model.transport(),
    }
    agent = Agent(model=MODEL, tools=[Probe()])
    async with open_session(agent, **options) as session:
        async with session.submit("Please look around") as run:
            await run.steer("and hurry up")
            await run.wait()
        async with session.submit("Say it once more") as run:
            await run.wait()
        async with session.submit("/cost") as run:
            await run.wait()
    async with open_session(agent, **options, resume=session.id, fork=True):
        pass
    return Recorded(tmp_path / "home", session.id, input=600, output=90, cache_write=16, cache_read=23)


async def finish(words: Sequence[str], environ: Mapping[str, str], limit: float) -> subprocess.CompletedProcess[bytes]:
    with trio.fail_after(limit):
        return await trio.run_process(
            words,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **environ},
        )


def proxies() -> dict[str, str]:
    """What reaching a registry may need."""
    wanted = ("proxy", "pip_", "npm_config", "ssl_cert", "requests_ca", "node_extra", "uv_")
    return {name: value for name, value in os.environ.items() if any(each in name.lower() for each in wanted)}


async def installed(tmp_path: Path, package: str) -> Path:
    """The programs of a virtual environment that holds the package."""
    venv = tmp_path / "venv"
    environ = {"HOME": os.environ.get("HOME", str(tmp_path)), **proxies()}
    made = await finish([sys.executable, "-m", "venv", str(venv)], environ, INSTALL_LIMIT)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
    if made.returncode or (await finish(pip, environ, INSTALL_LIMIT)).returncode:
        pytest.skip(f"{package} can't be installed here")
    return venv / "bin"


def flat(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for message in messages for one in (message, *flat(message.get("children", ())))]


async def test_claude_code_log_shows_the_session_and_its_tokens(tmp_path: Path) -> None:
    recorded = await record(tmp_path)
    programs = await installed(tmp_path, LOG_READER)
    # It keeps a cache beside what it reads.
    shutil.copytree(recorded.projects, tmp_path / "copy")
    (project,) = (path for path in (tmp_path / "copy").iterdir() if path.is_dir())
    out = tmp_path / "out.json"
    words = [str(programs / "claude-code-log"), str(project), "--no-individual-sessions", "-o", str(out)]
    done = await finish(words, {"HOME": str(tmp_path)}, READ_LIMIT)
    assert 0 == done.returncode, done.stderr.decode()
    log = json.loads(out.read_text())

    session = next(each for each in log["sessions"] if each["id"] == recorded.session_id)
    assert "Please look around" == session["first_user_message"]
    summary = "Input: 600 | Output: 90 | Cache Creation: 16 | Cache Read: 23"
    assert session["token_summary"].endswith(summary)
    assert 1 == sum(bool(each["token_summary"]) for each in log["sessions"])
    shown = [each for each in flat(log["messages"]) if each["session_id"] == recorded.session_id]
    said = [item["text"] for each in shown for item in each["content"].get("items") or () if item["type"] == "text"]
    for words_said in ("Please look around", "I look around.", "and hurry up", "All looked at.", "As you say."):
        assert 1 == said.count(words_said), words_said
    assert 2 == sum(each["type"] == "tool_use" for each in shown)
    assert 2 == sum(each["type"] == "tool_result" for each in shown)


async def test_ccusage_adds_the_tokens_up(tmp_path: Path) -> None:
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("there is no npx")
    recorded = await record(tmp_path)
    environ = {**proxies(), "HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(recorded.home)}
    if (await finish([npx, "--yes", USAGE_READER, "--version"], environ, INSTALL_LIMIT)).returncode:
        pytest.skip(f"{USAGE_READER} can't be installed here")
    done = await finish([npx, "--yes", USAGE_READER, "session", "--json", "--offline"], environ, READ_LIMIT)
    assert 0 == done.returncode, done.stderr.decode()
    report = json.loads(done.stdout)

    counts = ("inputTokens", "outputTokens", "cacheCreationTokens", "cacheReadTokens")
    expected = [recorded.input, recorded.output, recorded.cache_write, recorded.cache_read]
    assert expected == [report["totals"][name] for name in counts]
    (session,) = report["sessions"]
    assert sum(expected) == session["totalTokens"]
