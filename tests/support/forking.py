"""
Commands that need not import everything again: each is a fork of a process that has.

For tests of what a command does with its words and its files. Whatever is about signals and terminals, and a kill from
outside, takes a process of its own. Run as a program, this module is the process that is forked: a request a line on
stdin, an exit code a line on stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from tests.support.dying_journal import How, die_at

LIMIT: Final = 60.0
"""Seconds that one command may take."""

TOP: Final = Path(__file__).resolve().parents[2]


@attrs.frozen
class Ended:
    """Exit code, stdout and stderr of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What stdout holds, if that is JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


async def run(
    words: Sequence[str],
    *,
    stdin: bytes = b"",
    cwd: Path,
    env: Mapping[str, str],
    dies: tuple[int, How] | None = None,
) -> Ended:
    """How ``atrio WORDS`` ended; with ``dies``, it is killed at a write of its journal, see `die_at`."""
    with trio.fail_after(LIMIT):
        return await trio.to_thread.run_sync(_run, words, stdin, cwd, env, dies, abandon_on_cancel=True)


def _run(words: Sequence[str], stdin: bytes, cwd: Path, env: Mapping[str, str], dies: tuple[int, How] | None) -> Ended:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        files[0].write_bytes(stdin)
        request = {"words": words, "files": [*map(str, files)], "cwd": str(cwd), "env": dict(env), "dies": dies}
        try:
            template = _idle.pop()
        except IndexError:
            template = _start()
        code = _ask(template, json.dumps(request))
        _idle.append(template)
        return Ended(code, files[1].read_text(), files[2].read_text())


def _start() -> subprocess.Popen[str]:
    """A process to fork. Its input ends with this process, and it with its input."""
    words = [sys.executable, "-m", "tests.support.forking"]
    return subprocess.Popen(words, cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask(template: subprocess.Popen[str], request: str) -> int:
    assert template.stdin is not None
    assert template.stdout is not None
    template.stdin.write(request + "\n")
    template.stdin.flush()
    return int(template.stdout.readline())


_idle: Final[list[subprocess.Popen[str]]] = []


def main() -> None:
    """Answer requests until stdin ends."""
    # What a command imports in its course, too.
    import atrio.actors.app
    import atrio.actors.subagents
    import atrio.runtime.cli
    import atrio.runtime.headless  # noqa: F401

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _become(words: list[str], files: list[str], cwd: str, env: dict[str, str], dies: tuple[int, How] | None) -> None:
    code = 70
    try:
        flags = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)
        for number, (path, how) in enumerate(zip(files, flags, strict=True)):
            os.dup2(os.open(path, how, 0o600), number)
        os.closerange(3, 64)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        if dies is not None:
            die_at(*dies)
        from atrio.runtime.cli import main as command

        code = command(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
