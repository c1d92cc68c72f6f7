"""
Bash itself as the judge: no command that rules allow runs anything but what they name, and none writes a file.

bash tells of each command that it runs (``set -x``), in a folder where all programs are stubs that do nothing.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from atrio.tools.rule_matching import allows_command
from atrio.tools.shell_syntax import is_read_only, simple_commands

BASH: Final = Path("/bin/bash")
pytestmark = pytest.mark.skipif(not BASH.exists(), reason="there is no bash")

PATTERNS: Final = ("git status *", "ls *")
WANTED: Final = re.compile(r"Q+ (?:git status|ls)(?: .*)?")

PIECES: Final = (
    *(
        "git status",
        "git status ",
        "ls",
        "ls ",
        "evil",
        "rm",
        " ",
        "  ",
        "\t",
        "\n",
        "\r",
        "\\\n",
        "\v",
        "\f",
        "\u00a0",
    ),
    *(
        ";",
        ";;",
        "&",
        "&&",
        "|",
        "||",
        "|&",
        "!",
        "(",
        ")",
        "{",
        "}",
        "{ ",
        "; }",
        "((",
        "))",
        "[",
        "]",
        "[[",
        "]]",
        "#",
    ),
    *("'", '"', "\\", "$'", '$"', "`", "$(", "$((", "$[", "${", "$", "$x", "${x}", "${x:-", "$1", "$@", "$?", "$!"),
    *("<", ">", ">>", "2>", "2>&1", "&>", ">&", ">|", "<>", "<(", ">(", "<<", "<<<", "<<-E", "E\n", "f", ">/dev/null"),
    *(
        "a",
        "a=",
        "a=b ",
        "a+=",
        "a[0]=",
        "=",
        "-",
        "--",
        "-x",
        "1",
        "*",
        "?",
        "~",
        "^",
        "%",
        ",",
        "..",
        "{a,b}",
        "@(",
        "+(",
    ),
    *("if ", "then ", "fi", "for ", "in ", "do ", "done", "case ", "esac", "function ", "time ", "coproc ", "select "),
    *(
        "eval ",
        "exec ",
        "command ",
        ". ",
        "alias ",
        "trap ",
        "é",
        "\x7f",
        "\x01",
        "'ls'",
        '"git" status',
        "l\\s",
        "g''it",
    ),
)


def candidate(rng: random.Random) -> str:
    start = rng.choice(("git status ", "ls ", "ls", "", "git status", "(ls", "! ls ", "ls $(", 'ls "', "ls `", "ls 'a"))
    text = start + "".join(rng.choices(PIECES, k=rng.randint(1, 8)))
    return text + rng.choice(("", "", ")", '"', "`", "'", "\n", " ls", "; ls", "| ls", "\\", " #"))


def allowed_commands(seed: int, tries: int) -> list[str]:
    rng = random.Random(seed)
    found = dict.fromkeys(text for _ in range(tries) if allows_command(PATTERNS, text := candidate(rng)))
    return list(found)


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("git", "ls", "evil", "rm", "a", "f", "E", "1", "-x"):
        (folder / name).symlink_to("/bin/true")
    return folder


def trace(command: str, stubs: Path) -> tuple[list[str], list[str]]:
    """What bash runs for this command, and the files that it leaves."""
    cwd = stubs.parent / "cwd"
    cwd.mkdir(exist_ok=True)
    start = stubs.parent / "start"
    start.write_text("PS4='Q '; set -x")  # for root, bash takes no PS4 from the environment
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader:
        env = {
            "PATH": str(stubs),
            "BASH_XTRACEFD": str(write),
            "BASH_ENV": str(start),
            "HOME": str(cwd),
            "LC_ALL": "C.UTF-8",
        }
        subprocess.run(
            [str(BASH), "-c", "--", command],
            cwd=cwd,
            env=env,
            pass_fds=(write,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=10,
            check=False,
        )
        os.close(write)
        lines = [line.decode("utf-8", "replace") for line in reader.read().splitlines()]
    return [line for line in lines if line.startswith("Q")], os.listdir(cwd)


def test_the_trace_tells_of_what_runs_and_of_files(stubs: Path) -> None:
    ran, files = trace("ls -l; evil $(rm x) > f", stubs)
    assert ["Q ls -l", "QQ rm x", "Q evil"] == ran
    assert ["f"] == files


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_what_is_allowed_runs_nothing_else(stubs: Path, seed: int) -> None:
    commands = allowed_commands(seed, tries=6_000)[:120]
    assert len(commands) > 60
    for command in commands:
        ran, files = trace(command, stubs)
        assert [] == [line for line in ran if not WANTED.fullmatch(line)], (command, simple_commands(command))
        assert [] == files, command


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_only_runs_no_unknown_program_and_writes_nothing(stubs: Path, seed: int) -> None:
    rng = random.Random(1_000 + seed)
    harmless = re.compile(r"Q+ (?:git status|ls|\[|a(?:\[0\])?\+?=)(?:.*)?")
    commands = [text for _ in range(6_000) if is_read_only(text := candidate(rng))][:120]
    for command in commands:
        ran, files = trace(command, stubs)
        assert [] == [line for line in ran if not harmless.fullmatch(line)], command
        assert [] == files, command
