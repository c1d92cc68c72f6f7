"""
One run without a person at hand: from the command line's options to an exit code.

Nobody is asked anything: a call that no rule allows is denied, and the result lists it. The first SIGINT or SIGTERM
aborts the run, whose result is still written; a second one cancels everything; from then on the system's own
handling holds. When nobody reads the output any more, the run is aborted: work that nobody hears of is not done.

This module and `cli` alone reach up into the tools and actors, inside functions.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final

import attrs
import orjson
import trio
from rich.console import Console

from .doors import single_error
from .errors import AtrioError, ConfigError, JournalError, JournalUnwritable
from .events import AssistantBlock, Event, Partial, RunEnded
from .groups import find_error
from .lines import EventLines, encode_line, result_line
from .live import DRAW_EVERY, LiveView
from .logs import Level, LogHandler, format_line, install, utc_now
from .model import FailureKind
from .narration import outcome_line, printable, progress_line, told
from .notify import Notifier
from .output import Output
from .result import Result, TerminalReason
from .wirejson import mend

if TYPE_CHECKING:
    from atrio.actors.run import Run
    from atrio.actors.session import Session

    from .job import Job

__all__ = ["ABORTED", "Outcome", "Runner", "run_job"]

ABORTED: Final = frozenset((TerminalReason.ABORTED_STREAMING, TerminalReason.ABORTED_TOOLS))

SETUP_FAULTS: Final = frozenset((FailureKind.UNREACHABLE, FailureKind.AUTHENTICATION, FailureKind.NOT_FOUND))
"""What the very first request can fail by when the address, the key or the model's name is wrong."""

SUGGESTION_PATIENCE: Final = 25.0
"""Seconds to wait, after all else is done, for the suggestion that was asked for."""


@attrs.frozen
class Outcome:
    """The exit code, and sentences for stderr."""

    code: int
    sentences: tuple[str, ...] = ()


async def run_job(job: Job, prompt: str | None, *, stdout: int = 1, stderr: int = 2) -> Outcome:
    """
    Open a session, run the prompt, write what was asked for. Without a prompt, what a resumed session was at goes on.

    Cancelled: the run is aborted and its journal complete; the result is not written.

    Raises:
        ConfigError: the session can't be opened with these settings. Nothing was written.
    """
    return await Runner(job, prompt, Output(stdout), Output(stderr)).run()


class Runner:
    """What one run of the command line knows of itself."""

    signals: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
    """Those that it listens to."""

    def __init__(self, job: Job, prompt: str | None, out: Output, err: Output) -> None:
        self._job = job
        self._prompt = prompt
        self._out = out
        self._err = err
        self._redactor = job.config.redactor()
        self._run: Run | None = None
        self._lines: EventLines | None = None
        self._result: Result | None = None
        self._answered = False
        self._signal: signal.Signals | None = None
        self._output_error: OSError | None = None
        self._failure: str | None = None
        self._suggestion: str | None = None
        self._notifier = Notifier.from_environ(job.config.environ)
        self.view = self._new_view() if job.live else None

    async def run(self) -> Outcome:
        """See `run_job`."""
        options = self._job.options
        # A person is told each failure in one sentence, at the end; a log has its story.
        logs = options.debug or options.log_format == "json"
        undo = install(LogHandler(self._say), debug=options.debug) if logs else None
        try:
            # The receiver is outermost: whoever listens to it ends before it does.
            with trio.open_signal_receiver(*self.signals) as signals:
                async with single_error(), trio.open_nursery() as nursery:
                    nursery.start_soon(self.listen, signals, nursery.cancel_scope)
                    nursery.start_soon(self._show_life)
                    if self.view is not None:
                        nursery.start_soon(self.draw, self.view)
                    await self.perform()
                    nursery.cancel_scope.cancel(reason="the run is over")
        finally:
            self._notifier.stopping()
            if undo is not None:
                undo()
        return self.outcome()

    def _new_view(self) -> LiveView:
        return LiveView(Console(stderr=True), clean=self._clean, clock=trio.current_time)

    def _clean(self, text: str) -> str:
        return self._redactor.clean(mend(text).encode()).decode("utf-8", "replace")

    # --- the run ----------------------------------------------------------------------------------

    async def perform(self) -> None:
        """
        The session, from its opening to its close. Cancelled: see `run_job`.

        Raises:
            ConfigError: it can't be opened.
        """
        try:
            await self._session()
        except ConfigError:
            raise
        except JournalError as error:
            if self._run is None:
                raise ConfigError("the session's journal", str(error)) from error
            await self._broke_off(str(error))
        except AtrioError as error:
            await self._broke_off(told(error))
        except Exception as error:
            # The outermost border: whoever reads the output is still owed its last line.
            lost = find_error(error, JournalUnwritable)
            await self._broke_off(f"internal error, please report it: {told(error)}" if lost is None else str(lost))
        finally:
            if self.view is not None:
                self.view.close()

    def _open(self) -> AbstractAsyncContextManager[Session]:
        from atrio.actors.session import open_session

        job = self._job
        return open_session(
            job.agent,
            cwd=job.cwd,
            add_dirs=job.add_dirs,
            session_id=job.session_id,
            resume=job.resume,
            fork=job.options.fork,
            resume_at=job.options.resume_at,
            config=job.config,
            project=job.project,
            mcp=job.mcp,
        )

    def _begin(self, session: Session, run: Run) -> None:
        job = self._job
        self._run = run
        self._lines = EventLines(
            session_id=session.id,
            run_id=run.id,
            version=job.version,
            api_key_source=job.api_key_source,
            verbose=job.options.verbose,
            partial_messages=job.options.partial_messages,
            subagent_text=job.options.forward_subagent_text,
            replay=job.options.replay_user_messages,
        )

    async def _session(self) -> None:
        job = self._job
        async with (
            self._open() as session,
            session.resume() if self._prompt is None else session.submit(self._prompt) as run,
        ):
            self._begin(session, run)
            self._notifier.ready(f"session {session.id}")
            async for event in run:
                await self._take(event)
            if job.options.prompt_suggestions and job.options.output_format != "json":
                await self._wait_for_suggestion(session)

    async def _wait_for_suggestion(self, session: Session) -> None:
        """What was asked for is there already; whoever doesn't want to wait interrupts."""
        with trio.move_on_after(SUGGESTION_PATIENCE):
            await session.settle()
        if (found := session.suggestion) is None or self._lines is None:
            return
        self._suggestion = found.text
        if self._job.options.output_format == "stream-json":
            for line in self._lines.line_of(found):
                await self._write(encode_line(line, self._redactor))

    async def _broke_off(self, reason: str) -> None:
        """The session failed under the run: what it still said, and a result in any case."""
        self._failure = reason
        run = self._run
        if run is None:
            return
        # The submit block has been left, so this comes to an end.
        async for event in run.events:
            await self._take(event)
        if self._result is None:
            lines = self._lines
            await self._end(
                Result(
                    subtype="error_during_execution",
                    terminal_reason=TerminalReason.MODEL_ERROR,
                    session_id=lines.session_id if lines is not None else "",
                    run_id=run.id,
                    errors=(reason,),
                )
            )

    # --- events -----------------------------------------------------------------------------------

    async def _take(self, event: Event) -> None:
        if self.view is not None:
            self.view.take(event)
        elif self._job.plain and (text := progress_line(event)) is not None:
            self._say(text, "info", "run")
        if self._job.options.debug:
            self._debug(event)
        if isinstance(event, AssistantBlock):
            self._answered = True
        if isinstance(event, RunEnded):
            await self._end(event.result)
        elif self._job.options.output_format == "stream-json" and self._lines is not None:
            for line in self._lines.line_of(event):
                await self._write(encode_line(line, self._redactor))

    async def _end(self, result: Result) -> None:
        """The one result of the run, in the format that was asked for."""
        self._result = result
        if self._job.options.output_format != "text":
            await self._write(encode_line(result_line(result), self._redactor))
        elif result.is_success:
            if self.view is not None:
                self.view.close()
            text = result.text
            if result.structured_output is not None:
                text = orjson.dumps(result.structured_output, option=orjson.OPT_INDENT_2).decode()
            text = printable(text) if os.isatty(self._out.fd) else text
            await self._write(self._clean(f"{text.rstrip()}\n").encode())

    async def _write(self, data: bytes) -> None:
        if self._output_error is not None:
            return
        try:
            await self._out.write(data)
        except OSError as error:
            self._output_error = error
            if self._run is not None:
                self._run.interrupt("the output can't be written")

    def _say(self, text: str, level: Level, source: str) -> None:
        """One line on stderr, if somebody takes it now."""
        format = self._job.options.log_format
        self._err.offer(format_line(self._clean(text), format=format, level=level, source=source, now=utc_now()))

    def _debug(self, event: Event) -> None:
        if not isinstance(event, Partial):
            self._say(f"event {event.seq}: {type(event).__name__}", "debug", "run")

    # --- beside it --------------------------------------------------------------------------------

    async def listen(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        """Act on signals until cancelled."""
        async for number in signals:
            first = self._signal is None
            self._signal = self._signal or signal.Signals(number)
            if first and self._run is not None and self._result is None:
                self._run.interrupt(self._signal.name)
                continue
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_DFL)
            scope.cancel(reason=self._signal.name)

    async def _show_life(self) -> None:
        """Tell the service manager that the event loop still turns, until cancelled."""
        if (limit := self._notifier.watchdog) is None:
            return
        while True:
            self._notifier.alive()
            await trio.sleep(limit / 2)

    async def draw(self, view: LiveView) -> None:
        """Draw until cancelled or until the run has its result."""
        while self._result is None:
            await trio.to_thread.run_sync(view.draw, view.frame(), abandon_on_cancel=True)
            await trio.sleep(DRAW_EVERY)

    # --- the outcome ------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        """How it went, for the shell and for a person."""
        result, number = self._result, self._signal
        sentences: list[str] = []
        if self._output_error is not None:
            reason = self._output_error.strerror or str(self._output_error)
            return self._outcome(1, f"the output can't be written ({reason}); the run was ended")
        if number is not None and (result is None or result.terminal_reason in ABORTED):
            return self._outcome(128 + number, f"stopped by {number.name}")
        if result is None:
            return self._outcome(1, self._failure or "the run ended without a result")
        if denied := sorted({denial.tool_name for denial in result.permission_denials}):
            sentences.append(
                f"calls of {', '.join(denied)} were denied; --allowedTools or --permission-mode allow them"
            )
        if result.is_success and self._failure is None:
            if self._job.live:
                sentences.append(outcome_line(result))
            if self._suggestion is not None and self._job.options.output_format == "text":
                sentences.append(f"to go on, perhaps: {self._suggestion}")
            return self._outcome(0, *sentences)
        if (setup := self._setup_fault(result)) is not None:
            return self._outcome(2, setup)
        reasons = "; ".join(dict.fromkeys((*result.errors, *((self._failure,) if self._failure else ()))))
        return self._outcome(1, *sentences, f"the run ended without success ({result.terminal_reason}): {reasons}")

    def _outcome(self, code: int, *sentences: str) -> Outcome:
        return Outcome(code, tuple(self._clean(" ".join(text.split())) for text in sentences))

    def _setup_fault(self, result: Result) -> str | None:
        """The sentence for a first request that failed by what was configured."""
        if self._answered or result.error_kind not in SETUP_FAULTS:
            return None
        config, reason = self._job.config, "; ".join(result.errors)
        server = config.base_url or "the public API"
        match result.error_kind:
            case FailureKind.UNREACHABLE:
                return f"ANTHROPIC_BASE_URL: {server} can't be reached: {reason}; check the address and the network"
            case FailureKind.AUTHENTICATION:
                return f"{self._job.api_key_source}: {server} refused it: {reason}; set a key that is valid there"
            case _:
                model = self._job.agent.model
                return f"model {model!r}: {server} doesn't have it: {reason}; choose another with --model"
