"""The demo as a user starts it: a process of its own, its output, its exit status, and what it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from atrio.runtime.demo import main
from atrio.runtime.demo_script import FILES, check_command, replies
from atrio.runtime.demo_view import DemoView
from atrio.runtime.events import ToolStarted

START: Final = "import sys; from atrio.runtime.demo import main; sys.exit(main(sys.argv[1:]))"
LIMIT: Final = 45.0


def environment(folder: Path, **more: str) -> dict[str, str]:
    # A proxy and a foreign key must not matter.
    base = {key: value for key, value in os.environ.items() if not key.startswith(("ANTHROPIC_", "ATRIO_"))}
    proxy = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    return {**base, **proxy, "TMPDIR": str(folder), "HOME": str(folder), **more}


def play(folder: Path, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START, *argv],
        env=environment(folder, **more),
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT,
        check=False,
    )


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_the_demo_shows_the_whole_loop_and_leaves_nothing(tmp_path: Path) -> None:
    done = play(tmp_path, "--fast")
    assert (0, "") == (done.returncode, done.stderr)
    lines = done.stdout.splitlines()
    steps = [" ".join(line.split()[1:3]) for line in lines if line.split()[1:2] in (["start"], ["done"], ["failed"])]
    assert [
        "start Grep",
        "done Grep:",
        "start Read",
        "start Read",
        "start Edit",
        "done Edit:",
        "start Bash",
        "failed Bash:",
        "start Edit",
        "done Edit:",
        "start Bash",
        "done Bash:",
        "start Grep",
        "done Grep:",
    ] == [step for step in steps if step != "done Read:"]
    assert "The run completed, and the project's tests pass." == lines[-1]
    assert any(line.startswith("model ") and "█" in line for line in lines)
    assert "Both at once:" in " ".join(lines)
    assert "\x1b" not in done.stdout
    assert [] == left_in(tmp_path)


@pytest.mark.slow
def test_kept_the_project_passes_its_tests_and_the_journal_is_where_sessions_are(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = play(tmp_path, "--fast", "--keep", "--svg", str(tmp_path / "demo.svg"), ATRIO_HOME=str(home))
    assert 0 == done.returncode, done.stdout + done.stderr
    (project,) = tmp_path.glob("atrio-demo-*/project")
    subprocess.run(check_command(sys.executable), cwd=project, check=True, capture_output=True, timeout=LIMIT)
    (journal,) = home.glob("projects/*/*.jsonl")
    assert str(journal) in done.stdout
    ET.parse(tmp_path / "demo.svg")


@pytest.mark.slow
def test_a_terminal_without_unicode_gets_the_demo_too(tmp_path: Path) -> None:
    done = play(tmp_path, "--fast", PYTHONIOENCODING="ascii", COLUMNS="50")
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "prompt" in line:
                break
        process.send_signal(number)
        _, complaint = process.communicate(timeout=LIMIT)
    assert (128 + number, "") == (process.returncode, complaint)
    assert [] == left_in(tmp_path)


@pytest.mark.slow
def test_a_reader_that_leaves_ends_it_without_a_traceback(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START, "--fast"],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        complaint = process.stderr.read()
        assert (1, b"") == (process.wait(LIMIT), complaint)
    assert [] == left_in(tmp_path)


def run_tests(folder: Path, files: Mapping[str, str]) -> int:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    done = subprocess.run(check_command(sys.executable), cwd=folder, capture_output=True, timeout=LIMIT, check=False)
    return done.returncode


@pytest.mark.slow
def test_the_project_fails_until_the_last_edit_of_the_script(tmp_path: Path) -> None:
    files = dict(FILES)
    outcomes = [run_tests(tmp_path, files)]
    edits = [call.input for reply in replies("python") for call in reply.calls if call.name == "Edit"]
    for edit in edits:
        name = edit["file_path"]
        assert 1 == files[name].count(edit["old_string"])
        files[name] = files[name].replace(edit["old_string"], edit["new_string"])
        outcomes.append(run_tests(tmp_path, files))
    assert [1, 1, 0] == outcomes


@pytest.mark.parametrize(
    ("argv", "complaint"), [(["--no"], "--no"), (["x"], "x"), (["--svg", "/no/such/folder/a.svg"], "/no/such/folder")]
)
def test_wrong_arguments_are_one_sentence_and_status_2(
    argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(argv)
    said = capsys.readouterr()
    assert "" == said.out
    assert complaint in said.err.splitlines()[-1]


def test_help_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["--help"])
    assert "--keep" in capsys.readouterr().out


def test_a_line_is_coloured_on_a_terminal_only_and_never_wider_than_it() -> None:
    event = ToolStarted(call_id="1", name="Bash", input={"command": "echo \x1b[2J" + "x" * 500})
    lines: list[str] = []
    DemoView(lines.append, width=60).take(event, 0.0)
    DemoView(lines.append, width=60, colour=True).take(event, 0.0)
    assert len(lines[0].rstrip("\n")) <= 60
    assert "\x1b" not in lines[0]
    assert "\x1b[2m" in lines[1]
    assert "\x1b[2J" not in lines[1]
