"""
``atrio demo``: the whole loop without a key, in a few seconds.

A scripted model on loopback HTTP says what it has been told to say; the session, its journal, the tools, the files
and the tests that fail and then pass are real. It ends with a picture of what overlapped. One of the front doors:
it reaches up to the other rooms, inside functions.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import trio

from .config import Config
from .demo_script import FILES, PROMPT, check_command, replies
from .demo_view import BOLD, GREEN, RED, DemoView
from .doors import single_error
from .errors import AtrioError
from .events import ToolEnded
from .result import Result
from .timeline import TimelineBuilder, render_svg, render_text

if TYPE_CHECKING:
    from atrio.actors.testing import ScriptedModel

__all__ = ["main"]

MODEL: Final = "scripted-1"
CHUNK: Final = 10
"""Characters of one delta; with the pace below about as fast as a quick model writes."""

DELAY, PACE = 0.3, 0.03
"""Seconds before a response and between its events."""

FAST_DELAY, FAST_PACE = 0.02, 0.002

LIMIT: Final = 60.0
"""Seconds for all of it; it needs a fraction of that, and a demo that hangs shows nothing."""

WIDEST: Final = 120


@attrs.frozen(kw_only=True)
class Options:
    """What the command line says. ``svg``: where to write the picture too."""

    keep: bool = False
    fast: bool = False
    svg: Path | None = None


def main(argv: Sequence[str] = ()) -> int:
    """
    Play the demo and return the exit status.

    0: the run completed and the project's tests pass; 1: not so, and it says why; 2: usage; 130 and 143: SIGINT and
    SIGTERM. What it made is removed unless ``--keep`` was given.
    """
    try:
        options = _options(argv)
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else 2
    view = _view()
    try:
        root = Path(tempfile.mkdtemp(prefix="atrio-demo-")).resolve()
    except OSError as error:
        print(f"atrio demo: no folder can be made in {tempfile.gettempdir()}: {error.strerror}", file=sys.stderr)
        return 2
    try:
        return trio.run(_Demo(options, root, view).run)
    except AtrioError as error:
        print(f"atrio demo: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Nobody reads any more. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    finally:
        if not options.keep:
            shutil.rmtree(root, ignore_errors=True)


def _options(argv: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="atrio demo",
        description="Runs the whole loop against a scripted model on loopback HTTP, with real tools and real files in "
        "a temporary project. Needs no key. Ends with a picture of what overlapped.",
    )
    parser.add_argument("--keep", action="store_true", help="keep the project and the session's journal")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the picture as SVG, too")
    parser.add_argument("--fast", action="store_true", help="let the model speak ten times as fast")
    given = parser.parse_args(list(argv))
    if given.svg is not None and not given.svg.absolute().parent.is_dir():
        parser.error(f"--svg: there is no folder {given.svg.absolute().parent}; make it first")
    return Options(keep=given.keep, fast=given.fast, svg=given.svg)


def _view() -> DemoView:
    out = sys.stdout
    if hasattr(out, "reconfigure"):
        out.reconfigure(errors="replace")  # bars and dots are no reason to fail in an ASCII locale
    colour = out.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    def write(text: str) -> None:
        out.write(text)
        out.flush()

    return DemoView(write, width=min(WIDEST, shutil.get_terminal_size((100, 24)).columns), colour=colour)


@attrs.define
class _Demo:
    options: Options
    root: Path
    view: DemoView
    timeline: TimelineBuilder = attrs.field(factory=TimelineBuilder)
    results: list[ToolEnded] = attrs.field(factory=list)
    journal: Path | None = None

    @property
    def project(self) -> Path:
        return self.root / "project"

    async def run(self) -> int:
        """The exit status. Cancelled: the session is closed, and no process of it is left."""
        stopped = 0
        async with single_error(), trio.open_nursery() as nursery:

            async def watch(task_status: trio.TaskStatus[None]) -> None:
                nonlocal stopped
                with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    task_status.started()
                    async for number in signals:
                        stopped = number
                        nursery.cancel_scope.cancel(reason=f"signal {number}")

            await nursery.start(watch)
            status = await self._limited()
            nursery.cancel_scope.cancel(reason="the demo has ended")
        return 128 + stopped if stopped else status

    async def _limited(self) -> int:
        with trio.move_on_after(LIMIT):
            return await self._play()
        self.view.note(f"The demo did not end within {LIMIT:.0f} seconds.", RED)
        return 1

    async def _play(self) -> int:
        _write_project(self.project)
        model = _scripted_model(fast=self.options.fast)
        async with model.serve() as url:
            self.view.note("An agent repairs a small package: real files and tools, a scripted model over HTTP.", BOLD)
            self.view.note(f"project  {self.project}\nmodel    {url}\n")
            result = await self._session(url)
        problems = [*model.violations, *await self._problems(result)]
        self._sum_up()
        for problem in problems:
            self.view.note(f"not as it should be: {problem}", RED)
        if not problems:
            self.view.note("The run completed, and the project's tests pass.", GREEN)
        return 1 if problems else 0

    async def _session(self, url: str) -> Result:
        import httpx

        from atrio.actors.agent import Agent
        from atrio.actors.session import open_session
        from atrio.tools.permissions import PermissionMode
        from atrio.tools.registry import default_tools

        agent = Agent(
            model=MODEL,
            tools=default_tools(),
            permission_mode=PermissionMode.ACCEPT_EDITS,
            allowed_tools=["Bash"],
        )
        # A transport of its own: a proxy that the environment names is not for loopback.
        async with (
            httpx.AsyncHTTPTransport() as transport,
            open_session(agent, cwd=self.project, config=self._config(url), transport=transport) as session,
        ):
            self.journal = session.journal
            async with session.submit(PROMPT) as run:
                async for event in run:
                    at = trio.current_time()
                    self.timeline.take(event, at)
                    self.view.take(event, at)
                    if isinstance(event, ToolEnded):
                        self.results.append(event)
            return run.result

    def _config(self, url: str) -> Config:
        home = self.root / "home"
        if self.options.keep:
            home = Config.from_env(os.environ, cwd=self.project, sources=()).home
        return Config(home=home, base_url=url, environ=dict(os.environ))

    async def _problems(self, result: Result) -> list[str]:
        """What was not as the script has it. The tests are run once more, by us."""
        problems = []
        if not result.is_success:
            problems.append(f"the run ended as {result.terminal_reason}")
        names = [call.name for reply in replies(sys.executable) for call in reply.calls]
        if [event.name for event in self.results] != names:
            problems.append(f"the tools that ran are {', '.join(event.name for event in self.results) or 'none'}")
        first_test = names.index("Bash")
        for number, event in enumerate(self.results):
            if event.result.is_error != (number == first_test):
                problems.append(f"call {number + 1}, {event.name}, {'failed' if event.result.is_error else 'passed'}")
        if not await _tests_pass(self.project):
            problems.append("the project's tests fail")
        return problems

    def _sum_up(self) -> None:
        spans = self.timeline.spans()
        self.view.note()
        self.view.note(render_text(spans, width=self.view.width))
        self.view.note()
        if self.options.svg is not None:
            self.options.svg.write_text(render_svg(spans, title="atrio demo: what ran when"), encoding="utf-8")
            self.view.note(f"picture  {self.options.svg.absolute()}")
        if self.journal is not None:
            lines = len(self.journal.read_bytes().splitlines())
            fate = "kept, like the project" if self.options.keep else "removed now, like the project; --keep keeps both"
            self.view.note(f"journal  {self.journal}\n         {lines} lines, {fate}")


def _write_project(folder: Path) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _scripted_model(*, fast: bool) -> ScriptedModel:
    from atrio.actors.testing import ScriptedModel, Turn, text, tool

    delay, pace = (FAST_DELAY, FAST_PACE) if fast else (DELAY, PACE)
    turns = [
        Turn(
            text(reply.text, chunk=CHUNK),
            *(tool(call.name, call.input, chunk=CHUNK) for call in reply.calls),
            delay=delay,
            pace=pace,
        )
        for reply in replies(sys.executable)
    ]
    return ScriptedModel(turns, model=MODEL)


async def _tests_pass(project: Path) -> bool:
    from atrio.tools.process import run_command

    async def ignore(_chunk: bytes) -> None:
        pass

    command = check_command(sys.executable)
    ended = await run_command(command, cwd=project, env=dict(os.environ), on_output=ignore)
    return ended.status == 0
