"""Summaries and suggestions on the command line, as real processes against a scripted model on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from atrio.actors.testing import ScriptedModel, Turn, text, tool
from atrio.runtime.messages import JsonObject

pytestmark = pytest.mark.slow

SMALL = "claude-haiku-4-5"
LIMIT = 30.0


class Cast:
    """Two responses of the main model, the second a little later; and what the small one says to each question."""

    def __init__(self, guess: Turn) -> None:
        self.guess = guess

    def __call__(self, body: JsonObject) -> Turn:
        if body["model"] != SMALL:
            first = len(body["messages"]) == 1
            return Turn(tool("Glob", {"pattern": "*"})) if first else Turn(text("done"), delay=1.0)
        return Turn(text("Looked around")) if "<calls>" in str(body["messages"]) else self.guess


def command(home: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    known = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    environ = {**known, "HOME": str(home), "ATRIO_HOME": str(home / "atrio")}
    return [sys.executable, "-m", "atrio.runtime", "-p", "look", "--small-model", SMALL, *words], environ


async def atrio(tmp_path: Path, guess: Turn, *words: str) -> subprocess.CompletedProcess[bytes]:
    async with ScriptedModel(by=Cast(guess)).serve() as url:
        argv, environ = command(tmp_path, *words)
        environ["ANTHROPIC_BASE_URL"] = url
        with trio.fail_after(LIMIT):
            return await trio.run_process(
                argv, capture_stdout=True, capture_stderr=True, check=False, cwd=tmp_path, env=environ
            )


async def test_a_stream_has_summaries_and_behind_the_result_a_suggestion(tmp_path: Path) -> None:
    flags = ("--summaries", "--prompt-suggestions", "--output-format", "stream-json", "--verbose")
    ended = await atrio(tmp_path, Turn(text("run the tests")), *flags)
    lines: list[dict[str, Any]] = [json.loads(line) for line in ended.stdout.splitlines()]

    assert (0, b"") == (ended.returncode, ended.stderr)
    (summary,) = (line for line in lines if line["type"] == "tool_use_summary")
    (call,) = (b for line in lines if line["type"] == "assistant" for b in line["message"]["content"] if "id" in b)
    assert ("Looked around", [call["id"]]) == (summary["summary"], summary["preceding_tool_use_ids"])
    assert ["result", "prompt_suggestion"] == [line["type"] for line in lines[-2:]]
    assert "run the tests" == lines[-1]["suggestion"]
    assert len(lines) == len({line["uuid"] for line in lines})


async def test_without_the_flags_nothing_is_asked(tmp_path: Path) -> None:
    ended = await atrio(tmp_path, Turn(text("run the tests")), "--output-format", "stream-json", "--verbose")
    kinds = {json.loads(line)["type"] for line in ended.stdout.splitlines()}

    assert {"system", "assistant", "user", "result"} == kinds


async def test_a_suggestion_follows_the_answer(tmp_path: Path) -> None:
    ended = await atrio(tmp_path, Turn(text("run the tests")), "--prompt-suggestions")

    assert (0, b"done\n") == (ended.returncode, ended.stdout)
    assert b"to go on, perhaps: run the tests" in ended.stderr


async def test_whoever_does_not_want_to_wait_for_a_suggestion_interrupts(tmp_path: Path) -> None:
    async with ScriptedModel(by=Cast(Turn(text("run the tests"), delay=60))).serve() as url:
        argv, environ = command(tmp_path, "--prompt-suggestions")
        environ["ANTHROPIC_BASE_URL"] = url
        with trio.fail_after(LIMIT):
            process = await trio.lowlevel.open_process(argv, stdout=subprocess.PIPE, cwd=tmp_path, env=environ)
            assert process.stdout is not None
            assert b"done\n" == await process.stdout.receive_some()
            begin = trio.current_time()
            process.send_signal(signal.SIGINT)
            assert 0 == await process.wait()
            assert 5 > trio.current_time() - begin
            await process.stdout.aclose()
