"""
A conversation over stdin and stdout: each user line is a turn, in one session and one process, until stdin ends.

A line waits for a run of its own, unless it names a priority: then it goes into the run in progress. Requests of the
host are answered at once. SIGHUP has the settings files read again before the next run; SIGINT and SIGTERM end the run
in progress and the conversation with it.

This module, like `headless`, reaches up into the actors, inside functions.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import trio

from .doors import single_error
from .errors import AtrioError, ConfigError, PeerGone, PromptBlocked
from .events import Event, RunStarted
from .flags import PERMISSION_MODES
from .headless import Outcome, Runner
from .input_lines import Control, LineSplitter, Prompt, control_done, control_failed, read_line, replay_line
from .job import Job, prepare_job
from .lines import encode_line
from .messages import JsonObject, TextBlock
from .output import Output
from .result import Result, TerminalReason

if TYPE_CHECKING:
    from atrio.actors.session import Session

__all__ = ["Conversation", "run_conversation"]

READ_BYTES: Final = 1 << 16

WAITING_LIMIT: Final = 1_000
"""Prompts that may wait. A host that writes more than this ahead of the answers has lost its way."""


async def run_conversation(
    job: Job, prompt: str | None, *, stdin: int = 0, stdout: int = 1, stderr: int = 2
) -> Outcome:
    """
    Open a session and serve lines until there are no more. ``prompt`` comes before the first.

    Cancelled: the run in progress is aborted and its journal complete.

    Raises:
        ConfigError: the session can't be opened with these settings. Nothing was written.
    """
    return await Conversation(job, prompt, Output(stdout), Output(stderr), stdin).run()


class Conversation(Runner):
    """What the conversation knows of itself, beside what it has in common with a single run."""

    def __init__(self, job: Job, prompt: str | None, out: Output, err: Output, stdin: int) -> None:
        super().__init__(job, prompt, out, err)
        self._stdin = stdin
        self._waiting: deque[Prompt] = deque()
        if prompt is not None:
            message = {"role": "user", "content": prompt}
            self._waiting.append(Prompt(blocks=(TextBlock(prompt),), message=message))
        self._current: Prompt | None = None
        self._is_open = False
        self._over = False
        self._turns = 0
        self._bad_lines = 0
        self._line_number = 0
        self._settings_changed = False
        self._changed = trio.Event()

    # --- turns ------------------------------------------------------------------------------------

    async def _session(self) -> None:
        with self._hangups():
            await self._turns_of_one_session()

    @contextmanager
    def _hangups(self) -> Iterator[None]:
        """
        SIGHUP marks the settings as changed.

        A plain handler, since Trio's receiver hands a signal over some ticks after it came, and a prompt that was
        written after the signal must find its settings.
        """

        def mark(number: int, frame: object) -> None:
            self._settings_changed = True

        before = signal.signal(signal.SIGHUP, mark)
        try:
            yield
        finally:
            signal.signal(signal.SIGHUP, before)

    async def _turns_of_one_session(self) -> None:
        async with self._open() as session, single_error(), trio.open_nursery() as nursery:
            self._is_open = True
            nursery.start_soon(self._read, session)
            self._notifier.ready(f"session {session.id}")
            while (prompt := await self._next()) is not None:
                if self._settings_changed:
                    self._read_settings(session)
                await self._turn(session, prompt)
            nursery.cancel_scope.cancel(reason="the conversation is over")

    async def _next(self) -> Prompt | None:
        while True:
            if self._signal is not None or self._output_error is not None:
                return None
            if self._waiting:
                return self._waiting.popleft()
            if self._over:
                return None
            self._changed = trio.Event()
            await self._changed.wait()

    async def _turn(self, session: Session, prompt: Prompt) -> None:
        self._turns += 1
        self._result = None
        try:
            if not prompt.query:
                await session.add(prompt.blocks)
                return
            async with session.submit(prompt.blocks) as run:
                self._begin(session, run)
                self._current = prompt
                if self._signal is not None:
                    run.interrupt(self._signal.name)
                async for event in run:
                    await self._take(event)
        except (PromptBlocked, ConfigError) as error:
            if self._result is None:
                await self._refuse(session, str(error))
        self._run = None

    async def _take(self, event: Event) -> None:
        await super()._take(event)
        if isinstance(event, RunStarted) and self._current is not None:
            await self._replay(self._current, event.session_id, event.prompt.uuid)
            self._current = None

    async def _replay(self, prompt: Prompt, session_id: str, uuid: str) -> None:
        if self._job.options.replay_user_messages:
            await self._tell(replay_line(prompt, session_id=session_id, uuid=uuid))

    async def _refuse(self, session: Session, reason: str) -> None:
        """A prompt that never became a run has its result all the same: hosts wait for one."""
        await self._end(
            Result(
                subtype="error_during_execution",
                terminal_reason=TerminalReason.TURN_SETUP_FAILED,
                session_id=session.id,
                run_id=str(uuid4()),
                errors=(reason,),
            )
        )

    def _read_settings(self, session: Session) -> None:
        """What is wrong with the settings leaves those that hold as they are."""
        self._settings_changed = False
        options = self._job.options
        try:
            job = prepare_job(options.without_session(), self._job.environ)
            session.reconfigure(job.agent, job.config)
        except AtrioError as error:
            self._say(f"the settings stay as they were: {error}", "error", "settings")
        else:
            self._say("the settings were read again", "info", "settings")

    # --- lines ------------------------------------------------------------------------------------

    async def _read(self, session: Session) -> None:
        """Until stdin ends."""
        splitter = LineSplitter()
        try:
            while data := await _read_some(self._stdin):
                for line in splitter.feed(data):
                    await self._hear(session, line)
            for line in splitter.end():
                await self._hear(session, line)
        except OSError as error:
            self._say(f"stdin can't be read: {error.strerror or error}", "error", "stdin")
        self._over = True
        self._changed.set()

    async def _hear(self, session: Session, line: bytes | None) -> None:
        self._line_number += 1
        try:
            if line is None:
                raise ValueError("it is too long")
            heard = read_line(line)
            if isinstance(heard, Prompt) and len(self._waiting) >= WAITING_LIMIT:
                raise ValueError(f"{WAITING_LIMIT} prompts wait already")
        except ValueError as error:
            await self._complain(session, f"line {self._line_number} of stdin was passed over: {error}")
            return
        match heard:
            case Prompt():
                await self._accept(heard)
            case Control():
                await self._tell(self._control(session, heard))

    async def _complain(self, session: Session, text: str) -> None:
        self._bad_lines += 1
        self._say(text, "error", "stdin")
        common = {"session_id": session.id, "uuid": str(uuid4())}
        await self._tell({"type": "system", "subtype": "informational", "level": "error", "content": text, **common})

    async def _accept(self, prompt: Prompt) -> None:
        if prompt.priority is not None and prompt.query and self._run is not None:
            try:
                await self._run.steer(prompt.blocks, prompt.priority)
            except PeerGone:
                # It ended at this very moment, or takes no messages: the prompt gets a run of its own.
                self._waiting.append(prompt)
        else:
            self._waiting.append(prompt)
        self._changed.set()

    async def _tell(self, line: JsonObject) -> None:
        await self._write(encode_line(line, self._redactor))

    # --- requests of the host ---------------------------------------------------------------------

    def _control(self, session: Session, control: Control) -> JsonObject:
        id, request = control.request_id, control.request
        try:
            match control.subtype:
                case "initialize":
                    return control_done(id, self._introduce(session, request))
                case "interrupt":
                    if self._run is not None:
                        self._run.interrupt("interrupted by the host")
                case "set_model":
                    model = request.get("model")
                    session.set_model(model if isinstance(model, str) and model.strip() else self._job.agent.model)
                case "set_permission_mode":
                    self._set_permission_mode(session, request.get("mode"))
                case other:
                    known = "initialize, interrupt, set_model, set_permission_mode"
                    return control_failed(id, f"{other!r} is not available in this version; there are {known}")
        except AtrioError as error:
            return control_failed(id, str(error))
        return control_done(id)

    def _introduce(self, session: Session, request: JsonObject) -> JsonObject:
        for name in ("hooks", "sdkMcpServers", "jsonSchema"):
            if request.get(name):
                raise ConfigError(name, "hosts can't bring their own in this version", "set them on the command line")
        commands = [
            {"name": each.name, "description": each.description, "argumentHint": each.argument_hint}
            for each in session.commands()
        ]
        return {
            "commands": commands,
            "models": [],
            "account": {},
            "output_style": "default",
            "available_output_styles": ["default"],
            "pid": os.getpid(),
        }

    @staticmethod
    def _set_permission_mode(session: Session, mode: object) -> None:
        from atrio.tools.permissions import PermissionMode

        if mode not in PERMISSION_MODES:
            raise ConfigError("mode", f"{mode!r} is not known", f"choose from {', '.join(PERMISSION_MODES)}")
        session.set_permission_mode(PermissionMode(str(mode)))

    # --- signals and the outcome ------------------------------------------------------------------

    async def listen(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        """Act on signals until cancelled."""
        async for number in signals:
            first = self._signal is None
            self._signal = self._signal or signal.Signals(number)
            if first and self._is_open:
                self._changed.set()
                if self._run is not None:
                    self._run.interrupt(self._signal.name)
                continue
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_DFL)
            scope.cancel(reason=self._signal.name)

    def outcome(self) -> Outcome:
        """That of the last turn; of none, if nothing that was read could be understood."""
        if self._output_error is None and self._failure is None:
            if self._signal is not None:
                return self._outcome(128 + self._signal, f"stopped by {self._signal.name}")
            if self._turns == 0:
                hint = "write one user line a turn" if self._bad_lines else "it ended before there was a user line"
                return self._outcome(2 if self._bad_lines else 0, f"stdin held no prompt; {hint}")
            if self._result is None:
                return self._outcome(0)
        return super().outcome()


async def _read_some(fd: int) -> bytes:
    """What has come; empty at the end. Cancelled: nothing was read."""
    try:
        await trio.lowlevel.wait_readable(fd)
    except PermissionError:
        # A regular file is always readable, and can't be waited for.
        await trio.lowlevel.checkpoint()
    return os.read(fd, READ_BYTES)
