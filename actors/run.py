"""
A run: one input to one terminal, as a small supervised tree under one cancel scope.

    run (one_for_one)
    ├─ loop       first to start, last to stop: it hears everybody's last words
    ├─ watchdog
    ├─ subagents   those in the background, if the agent may have any
    ├─ executor
    ├─ compactor
    ├─ streamer
    └─ summarizer  only if it is wanted; a crash of it is nothing

Aborting a run is cancelling its scope: the children end in reverse order, each within its grace. The
mailboxes belong to the run, so a restarted actor finds what the crashed one had not taken yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio

from atrio.runtime.actor import FunctionActor
from atrio.runtime.errors import PeerGone, SessionClosed
from atrio.runtime.mailbox import Address, Inbox, open_mailbox
from atrio.runtime.messages import Block, TextBlock, UserMessage
from atrio.runtime.records import Priority
from atrio.runtime.result import Result
from atrio.runtime.supervisor import ChildExit, ChildSpec, Restart, Supervisor

from .broadcaster import Subscription
from .compactor import Compactor
from .executor import Executor
from .loop import History, Loop
from .protocol import ActorDown, ContextJob, LoopInput, ModelCall, RunCall, Steered
from .streamer import Streamer
from .subagents.host import Subagents
from .summarizer import Summarizer
from .watchdog import PulseBoard, Watchdog

__all__ = ["Run", "RunFactory", "RunTree"]

LOOP_INBOX = 64
"""Stream batches and progress reports that wait for the loop; when it is full, the stream waits."""

ANSWERS_OWED = 512
"""Room for answers to the loop: one for each call of a response (at most 256), the rest for actors that go down."""

EXECUTOR_INBOX = 64
STREAMER_INBOX = 1
COMPACTOR_INBOX = 1

LOOP_GRACE = 10.0
EXECUTOR_GRACE = 30.0
"""Above the longest grace of any tool; a tool's own grace cuts earlier."""
STREAMER_GRACE = 5.0
COMPACTOR_GRACE = 5.0
WATCHDOG_GRACE = 1.0
SUMMARIZER_GRACE = 2.0
SUBAGENTS_GRACE = 60.0
"""Above what a subagent's own run takes to end, tools with a grace included."""

MAX_RESTARTS = 5
RESTART_PERIOD = 60.0


@attrs.frozen(kw_only=True)
class RunFactory:
    """Makes a run's actors from the ends of their mailboxes. The session fills it; tests replace parts of it."""

    loop: Callable[
        [Inbox[LoopInput], Address[ModelCall], Address[RunCall], Address[ContextJob], Callable[[], bool]], Loop
    ]
    """From its inbox, the addresses of streamer, executor and compactor, and whether the run is being stopped."""
    executor: Callable[[Inbox[RunCall], Address[LoopInput]], Executor]
    streamer: Callable[[Inbox[ModelCall], Address[LoopInput], PulseBoard], Streamer]
    compactor: Callable[[Inbox[ContextJob], Address[LoopInput], PulseBoard], Compactor]
    watchdog: Callable[[PulseBoard], Watchdog] = lambda board: Watchdog(board=board)
    summarizer: Callable[[Address[LoopInput]], Summarizer] | None = None
    subagents: Subagents | None = None
    """Owns those in the background; gets the loop to tell of their ends."""


class RunTree:
    """The actors of one run and the mailboxes between them."""

    def __init__(self, factory: RunFactory, history: History) -> None:
        self._history = history
        self._failure: BaseException | None = None
        self._failed = ""
        self._loop: Loop | None = None
        self.loop: Address[LoopInput]
        self.loop, self._loop_inbox = open_mailbox(LOOP_INBOX, reserve=ANSWERS_OWED, name="loop")
        self._calls: Address[RunCall]
        self._calls, self._calls_inbox = open_mailbox(EXECUTOR_INBOX, name="executor")
        self._requests: Address[ModelCall]
        self._requests, self._requests_inbox = open_mailbox(STREAMER_INBOX, name="streamer")
        self._jobs: Address[ContextJob]
        self._jobs, self._jobs_inbox = open_mailbox(COMPACTOR_INBOX, name="compactor")
        self._board = board = PulseBoard()
        self.supervisor = Supervisor(
            "run",
            [
                ChildSpec(
                    "loop",
                    lambda: self._make_loop(factory),
                    restart=Restart.TEMPORARY,
                    shutdown=LOOP_GRACE,
                    significant=True,
                    inbox=self._loop_inbox,
                ),
                ChildSpec("watchdog", lambda: factory.watchdog(board), shutdown=WATCHDOG_GRACE),
                *self._subagents(factory),
                ChildSpec(
                    "executor",
                    lambda: factory.executor(self._calls_inbox, self.loop),
                    shutdown=EXECUTOR_GRACE,
                    inbox=self._calls_inbox,
                ),
                ChildSpec(
                    "compactor",
                    lambda: factory.compactor(self._jobs_inbox, self.loop, board),
                    shutdown=COMPACTOR_GRACE,
                    inbox=self._jobs_inbox,
                ),
                ChildSpec(
                    "streamer",
                    lambda: factory.streamer(self._requests_inbox, self.loop, board),
                    shutdown=STREAMER_GRACE,
                    inbox=self._requests_inbox,
                ),
                *self._summarizer(factory),
            ],
            max_restarts=MAX_RESTARTS,
            period=RESTART_PERIOD,
            on_exit=self._child_ended,
        )

    def _subagents(self, factory: RunFactory) -> tuple[ChildSpec, ...]:
        host = factory.subagents
        if host is None:
            return ()
        return (ChildSpec("subagents", lambda: FunctionActor(host.connect(self.loop).run), shutdown=SUBAGENTS_GRACE),)

    def _summarizer(self, factory: RunFactory) -> tuple[ChildSpec, ...]:
        make = factory.summarizer
        if make is None:
            return ()
        spec = ChildSpec(Summarizer.name, lambda: make(self.loop), restart=Restart.TEMPORARY, shutdown=SUMMARIZER_GRACE)
        return (spec,)

    def _make_loop(self, factory: RunFactory) -> Loop:
        self._loop = factory.loop(self._loop_inbox, self._requests, self._calls, self._jobs, self._is_stopping)
        return self._loop

    def _is_stopping(self) -> bool:
        return self.supervisor.stopping

    def _child_ended(self, exit: ChildExit) -> None:
        if exit.error is None or exit.name == Summarizer.name:
            # The run has no less without summaries; the supervisor has logged the crash.
            return
        if not exit.will_restart:
            self._failure, self._failed = exit.error, exit.name
        if exit.name != Loop.name:
            error = f"{type(exit.error).__name__}: {exit.error}"
            self.loop.reply(ActorDown(name=exit.name, error=error, final=not exit.will_restart))

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """
        Run to the end. Cancelled: the run ends as aborted, with its result.

        Raises:
            Exception: the loop failed (a bug), the journal is gone, or the watchdog failed for good, so that the
                session would run unguarded. A streamer or executor that fails for good ends the run with
                `model_error` instead.
        """
        try:
            with self._loop_inbox, self._calls_inbox, self._requests_inbox, self._jobs_inbox:
                try:
                    await self.supervisor.run(task_status=task_status)
                finally:
                    if self._loop is not None:
                        await self._loop.end_after_defect()  # noqa: ASYNC102  # shielded and bounded there
        except Exception:
            if self._failed in (Executor.name, Compactor.name, Streamer.name) and self._history.result is not None:
                return
            raise
        if self._failed == Loop.name and self._failure is not None:
            raise self._failure


class Run:
    """
    One submission in progress.

    Iterate it for its events (in one task); the last is `RunEnded`. `wait` passes them over and gives the
    result.
    """

    def __init__(
        self,
        *,
        id: str,
        tree: RunTree | None,
        subscription: Subscription,
        history: History,
        new_message: Callable[[tuple[Block, ...]], UserMessage],
    ) -> None:
        self.id = id
        self._tree = tree
        self.events = subscription
        self._history = history
        self._new_message = new_message
        self.scope = trio.CancelScope()

    def __aiter__(self) -> Subscription:
        return self.events

    @property
    def ended(self) -> bool:
        return self._history.result is not None

    @property
    def result(self) -> Result:
        """
        How the run ended.

        Raises:
            SessionClosed: it has not ended (read its events to the end, or await `wait`), or its session failed.
        """
        result = self._history.result
        if result is None:
            raise SessionClosed(f"run {self.id} has no result yet; read its events to the end, or await run.wait()")
        return result

    async def wait(self) -> Result:
        """Pass over the events that are left. Cancelled: the run goes on."""
        async for _event in self.events:
            pass
        return self.result

    async def steer(self, text: str | Sequence[Block], priority: Priority = "next") -> None:
        """
        Give the model another message. When this returns, it is in the journal: it reaches the model exactly once, be
        it after a crash and a resume. Cancelled: it was not given.

        Args:
            priority: ``next``: after the tool calls of this turn, or in place of the end. ``now``: the response that
                is coming is broken off, what is complete of it is kept; calls that have begun still come to their
                end. ``later``: in place of the run's end.

        Raises:
            PeerGone: the run has ended; submit the text instead.
        """
        message = self._new_message((TextBlock(text),) if isinstance(text, str) else tuple(text))
        queue = self._history.queue
        if not await queue.put(message, priority):
            raise PeerGone(f"run {self.id} has ended and takes no more messages; submit the text instead")
        if self._tree is not None and not queue.closed:
            # With a full inbox the loop is about to look by itself.
            self._tree.loop.offer(Steered())

    def interrupt(self, reason: str = "interrupted") -> None:
        """End the run now; it still has its result, with an ``aborted_...`` reason."""
        self.scope.cancel(reason=reason)
