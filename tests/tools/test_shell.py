"""The Bash tool: what the model is told of each end, what counts as a failure, and that nothing outlasts a call."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest
import trio

from atrio.runtime.errors import InvalidToolInput, ToolRejected
from atrio.runtime.tool import ToolContext, ToolOutput, Workspace
from atrio.tools.process import CommandNotStarted
from atrio.tools.reaper import TOKEN_VARIABLE
from atrio.tools.shell import Bash

BASH = Bash()
MARK = uuid.uuid4().hex


@pytest.fixture
def reports() -> list[tuple[str, object]]:
    return []


@pytest.fixture
def ctx(tmp_path: Path, reports: list[tuple[str, object]]) -> ToolContext:
    def progress(text: str, data: object = None) -> None:
        reports.append((text, data))

    return ToolContext(
        session_id="s",
        run_id="r",
        call_id="call_1",
        workspace=Workspace(cwd=tmp_path),
        results_dir=tmp_path / "results",
        progress=progress,
        environ={"PATH": os.environ["PATH"], TOKEN_VARIABLE: MARK, "GREETING": "hello"},
    )


async def bash(ctx: ToolContext, command: str, **more: Any) -> ToolOutput:
    input = BASH.parse({"command": command, **more})
    await BASH.check(input, ctx)
    return await BASH.run(input, ctx)


def text_of(output: ToolOutput) -> str:
    assert isinstance(output.content, str)
    return output.content


def left_over() -> list[str]:
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        try:
            if MARK in (entry / "environ").read_text(errors="replace"):
                found.append((entry / "cmdline").read_text(errors="replace"))
        except OSError:
            continue
    return found


async def test_output_and_errors_come_in_one_text(ctx: ToolContext) -> None:
    output = await bash(ctx, "echo $GREETING; echo oops >&2; pwd")
    assert f"hello\noops\n{ctx.cwd}\n" == output.content
    assert not output.is_error
    assert not output.cancel_siblings
    assert {
        "stdout": f"hello\noops\n{ctx.cwd}\n",
        "exitCode": 0,
        "signal": None,
        "interrupted": False,
        "timedOut": False,
        "stopped": [],
        "outputFile": None,
    } == output.details


async def test_a_failure_tells_its_status_and_cancels_the_siblings(ctx: ToolContext) -> None:
    output = await bash(ctx, "echo broken; exit 3")
    assert "broken\nExit code 3" == output.content
    assert output.is_error
    assert output.cancel_siblings
    assert 3 == output.details["exitCode"]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("grep x /dev/null", "Exit code 1 (no match; not an error)"),
        ("echo a | grep x", "Exit code 1 (no match; not an error)"),
        ("cd / && LC_ALL=C /bin/grep x /dev/null", "Exit code 1 (no match; not an error)"),
        ("echo a > a; diff a /dev/null >/dev/null", "Exit code 1 (the files differ; not an error)"),
        ("test -e none", "Exit code 1 (the condition is false; not an error)"),
        ("[ -e none ]", "Exit code 1 (the condition is false; not an error)"),
    ],
)
async def test_a_status_that_answers_a_question_is_no_failure(ctx: ToolContext, command: str, text: str) -> None:
    output = await bash(ctx, command)
    assert text == output.content
    assert not output.is_error
    assert not output.cancel_siblings


@pytest.mark.parametrize(
    ("command", "note"),
    [
        ("false", "Exit code 1"),
        ("grep x none", "grep: none: No such file or directory\nExit code 2"),
        ("grep x /dev/null; exit 1", "Exit code 1"),
        ("! grep -q x <<< x", "Exit code 1"),
        ("grep x /dev/null | false", "Exit code 1"),
        ("kill -SEGV $$", "Ended by signal 11 (SIGSEGV)"),
        ("exit 143", "Exit code 143 (ended by SIGTERM)"),
        ("exit 255", "Exit code 255"),
        ("--help", "--: --help: command not found\nExit code 127"),
    ],
)
async def test_other_failures_are_failures(ctx: ToolContext, command: str, note: str) -> None:
    output = await bash(ctx, command)
    assert text_of(output).endswith(note.removeprefix("--: "))
    assert output.is_error


async def test_no_output_is_an_empty_text(ctx: ToolContext) -> None:
    assert "" == (await bash(ctx, "true")).content


async def test_a_command_that_reads_gets_nothing(ctx: ToolContext) -> None:
    assert "got nothing\n" == (await bash(ctx, "cat; read x || echo got nothing")).content
    assert (await bash(ctx, "echo x > /dev/tty")).is_error


@pytest.mark.slow
async def test_a_background_process_is_stopped_and_the_text_says_so(ctx: ToolContext) -> None:
    output = await bash(ctx, "sleep 7601 & echo started")
    text = text_of(output)
    assert text.startswith("started\n[1 background process")
    assert "were stopped: " in text
    assert not output.is_error
    assert [] == left_over()


async def test_a_time_limit_stops_all_and_keeps_the_output(ctx: ToolContext) -> None:
    output = await bash(ctx, "(setsid sleep 7602 &); echo partial; sleep 7603", timeout=150)
    text = text_of(output)
    assert text.startswith("Bash timed out after 0.15 s and was stopped. Output until then:\npartial\n")
    assert "set timeout" in text
    assert output.is_error
    assert output.cancel_siblings
    assert output.details["timedOut"]
    assert [] == left_over()


async def test_an_interrupted_command_has_no_later_effect(ctx: ToolContext, reports: list[object]) -> None:
    with trio.move_on_after(0.1) as scope:
        await bash(ctx, "(sleep 5; touch late) & sleep 5; touch later")
    assert scope.cancelled_caught
    assert [] == left_over()
    assert [] == os.listdir(ctx.cwd)


async def test_long_output_is_cut_in_the_middle_and_whole_in_a_file(ctx: ToolContext) -> None:
    output = await bash(ctx, "seq 1 20000; exit 1")
    text = text_of(output)
    path = ctx.results_dir / "output-call_1.txt"
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("\n19999\n20000\nExit code 1")
    assert f"characters left out; full output in {path}]" in text
    assert len(text) < 30_300
    assert "".join(f"{number}\n" for number in range(1, 20_001)) == await trio.Path(path).read_text()
    assert str(path) == output.details["outputFile"]


@pytest.mark.slow
async def test_a_flood_is_stopped_in_time_and_bounded(ctx: ToolContext) -> None:
    start = trio.current_time()
    output = await bash(ctx, "yes", timeout=300)
    assert trio.current_time() - start < 1.5
    assert len(text_of(output)) < 30_500
    assert (await trio.Path(ctx.results_dir / "output-call_1.txt").stat()).st_size < 65 * 1024 * 1024


async def test_bytes_that_are_no_text_are_replaced(ctx: ToolContext) -> None:
    output = await bash(ctx, "printf 'a\\377b\\000c\\033[31mred\\033[0m'")
    assert "a\ufffdbcred" == output.content


@pytest.mark.slow
async def test_progress_shows_the_last_lines_now_and_then(ctx: ToolContext, reports: list[tuple[str, object]]) -> None:
    await bash(ctx, "for i in 1 2 3 4 5 6 7 8; do echo line $i; done; sleep 0.7; echo end")
    assert [("line 4\nline 5\nline 6\nline 7\nline 8", {"outputChars": 56})] == reports


async def test_a_missing_folder_is_told_as_one_plain_error(ctx: ToolContext, tmp_path: Path) -> None:
    gone = Workspace(cwd=tmp_path / "gone")
    moved = ToolContext(
        session_id="s", run_id="r", call_id="c", workspace=gone, results_dir=tmp_path, progress=ctx.progress
    )
    with pytest.raises(CommandNotStarted, match=r"can't start /bin/bash in .*gone: No such file or directory"):
        await bash(moved, "ls")


@pytest.mark.parametrize(("command", "problem"), [("  \n", "is empty"), ("a\0b", "NUL")])
async def test_a_senseless_command_is_rejected(ctx: ToolContext, command: str, problem: str) -> None:
    with pytest.raises(ToolRejected, match=problem):
        await bash(ctx, command)


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"command": "ls", "timeout": 0},
        {"command": "ls", "timeout": 600_001},
        {"command": "ls", "x": 1},
    ],
)
def test_input_that_does_not_fit_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(InvalidToolInput):
        BASH.parse(raw)


def test_only_readers_run_beside_others_and_the_specifier_is_the_command() -> None:
    reader, writer = BASH.parse({"command": "git status"}), BASH.parse({"command": "git push"})
    assert BASH.concurrency_safe(reader)
    assert not BASH.concurrency_safe(writer)
    assert "git push" == BASH.specifier(writer)


def test_the_definition_has_bounds_and_needs_only_the_command() -> None:
    schema = BASH.definition()["input_schema"]
    assert ["command"] == schema["required"]
    assert 600_000 == schema["properties"]["timeout"]["maximum"]
