"""
Performs a plan: opens the session, submits, strikes when it is time, and has everything checked.

It reaches into the session where a user can't: to kill actors, and to look at every event as it is published.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from atrio.actors.agent import Agent
from atrio.actors.dependencies import Dependencies
from atrio.actors.recorder import Append
from atrio.actors.run import Run
from atrio.actors.session import Session, open_session
from atrio.runtime.config import Config, Durability
from atrio.runtime.doors import single_error
from atrio.runtime.errors import PeerGone, SessionBusy
from atrio.runtime.events import ContextCompacted, Event
from atrio.runtime.history import check
from atrio.runtime.messages import Message

from .sim_checks import RunLog, findings_of
from .sim_plan import Plan, Strike, StrikeKind
from .sim_script import ANSWER, SCHEMA
from .sim_tools import CallLog, Hands, SimToolHook, approval, compaction, preparation, sim_tools, stop_hook
from .sim_world import SYSTEM, Ids, NotingModel, Steps, Wire, wall_clock
from .turns import Turn, text

__all__ = ["Director"]

PATIENCE = 40 * 86_400.0
"""Virtual seconds after which a run counts as hanging; no sum of deadlines comes near it."""

STEP_LIMIT = 400_000
"""Steps of one run after which it counts as going round without end."""

REST = 7 * 86_400.0
"""Virtual seconds before the last submission: what servers have asked for is over by then."""

NONSENSE: Any = None
"""A message that no actor understands: it kills whoever takes it."""

STEER_ROOM = 64


class _Sabotage(Exception):
    """Raised inside the block of a run by the plan."""


@attrs.define(eq=False)
class _Reader:
    """What the strikes want of whoever reads the run's events."""

    scope: trio.CancelScope
    leave: bool = False
    fail: bool = False


@attrs.define(eq=False)
class _Observer:
    """Gets each event at the moment of its publication, as a subscription would."""

    take: Callable[[Event], None]

    def put(self, event: Event) -> None:
        self.take(event)


class _DeadlyPulse:
    """A pulse that kills the watchdog that looks at it, once."""

    def __init__(self, board: Any) -> None:
        self._board = board

    def check(self, now: float) -> float:
        self._board._pulses.remove(self)
        raise LookupError("the watchdog was killed (by the plan)")


class Director:
    """One session from a plan. `perform` it once; then ``findings`` has everything that did not hold."""

    def __init__(self, plan: Plan, home: Path, *, keep_trace: bool = False) -> None:
        self.plan = plan
        self.findings: list[str] = []
        self.logs: list[RunLog] = []
        self.trace: list[str] = []
        self.digest = hashlib.sha256()
        self.steps = Steps()
        self._home = home
        self._keep_trace = keep_trace
        self._model = NotingModel(plan.script, plan.faults, model="claude-sonnet-4-5", home=str(home))
        self._wire = Wire(self._model)
        self._calls = CallLog()
        self._hands = Hands()
        self._compacted = False
        self._hints = 0
        self._ran: set[str] = set()
        self._checked: Sequence[Message] = ()
        self._unchecked: RunLog | None = None
        self._session: Session | None = None

    async def perform(self) -> None:
        """
        Play everything. Never raises for what the session does: that becomes a finding.
        """
        living, descriptors = _living(), _descriptors()
        try:
            async with self._open() as session:
                self._session = session
                session._parts.bus._subscriptions.append(_Observer(self._take))
                await self._play(session)
        except Exception as error:
            self._session_failed(error)
        if self._session is not None and self._unchecked is not None:
            self._check(self._session, self._unchecked, journal_lost=True)
        self.findings += [f"requests are valid: {problem}" for problem in self._model.violations[:5]]
        self.findings += [f"the simulator itself failed: {failure}" for failure in self.steps.failures]
        if _living() != living:
            self.findings.append(f"nothing left: {_living() - living} tasks")
        if _descriptors() != descriptors:
            self.findings.append(f"nothing left: {_descriptors() - descriptors} descriptors")

    def _open(self) -> Any:
        plan, hands = self.plan, self._hands
        agent = Agent(
            model="claude-sonnet-4-5",
            system_prompt=SYSTEM,
            tools=sim_tools(self._calls),
            max_turns=plan.max_turns,
            max_tokens=plan.max_tokens,
            fallback_models=plan.fallbacks,
            max_budget_usd=plan.max_budget_usd,
            max_seconds=plan.max_seconds,
            output_schema=SCHEMA if plan.schema else None,
            stop_hooks=tuple(stop_hook(kind, hands) for kind in plan.hooks),
            tool_hooks=tuple(SimToolHook(kind, hands) for kind in plan.tool_hooks),
            token_target=plan.token_target,
            task_budget=plan.task_budget,
            max_repeats=plan.max_repeats,
        )
        return open_session(
            agent,
            cwd=self._home,
            config=Config(
                home=self._home / "home",
                base_url="http://model.test",
                durability=Durability.OS,
                unattended=plan.unattended,
                tool_concurrency=plan.concurrency,
            ),
            can_use_tool=approval(plan.approval, hands),
            transport=self._wire,
            deps=Dependencies(
                prepare=None if plan.prepare == "own" else preparation(plan.prepare, hands),
                autocompact=compaction(plan.compact, hands),
                new_id=Ids(plan.ids),
                now=wall_clock,
                jitter=Ids(plan.jitter).fraction,
            ),
        )

    async def _play(self, session: Session) -> None:
        for number, submission in enumerate(self.plan.submissions, 1):
            await self._run(session, number, submission.strikes)
        await trio.sleep(REST)
        self._model.say_only(ANSWER if self.plan.schema else Turn(text("Well again.")))
        await self._run(session, 0, ())

    def _session_failed(self, error: Exception) -> None:
        if self._keep_trace:
            self.trace.append(f"the session failed: {error!r}")
        log = self._unchecked
        if log is not None:
            log.error = error
        if log is None or not log.hit("recorder"):
            self.findings.append(f"a session outlives what happens to its runs: {error!r}")
        elif isinstance(error, BaseExceptionGroup):
            self.findings.append(f"users see the one real error: {error!r}")

    # --- one run ----------------------------------------------------------------------------------

    async def _run(self, session: Session, number: int, strikes: Sequence[Strike]) -> None:
        log = RunLog(number=number, began=trio.current_time(), prompt=f"task {number}")
        self._begin(log)
        ledger = session._parts.ledger
        booked, first = set(ledger._responses), len(self._model.exchanges)
        run: Run | None = None
        reader = _Reader(scope=trio.CancelScope())
        try:
            with trio.move_on_after(PATIENCE) as patience, reader.scope:
                async with single_error(), trio.open_nursery() as nursery:
                    try:
                        async with session.submit(log.prompt) as run:
                            self._arm(session, run, log, reader, strikes, nursery)
                            await _read(run, log, reader)
                    finally:
                        nursery.cancel_scope.cancel(reason="the run is over")
            log.out_of_time = patience.cancelled_caught
        except _Sabotage:
            pass
        except Exception as error:
            log.error = error
            if not log.hit("loop", "watchdog", "recorder"):
                self.findings.append(f"a run doesn't raise: {error!r}")
        finally:
            log.ended = trio.current_time()
            log.exchanges = self._model.exchanges[first:]
            log.usage = {id: entry[1] for id, entry in ledger._responses.items() if id not in booked}
            log.result = run._history.result if run is not None else None
            self._wire.deadly = 0
            self.steps.begin({})
        if run is not None:
            # What was published while nobody read, since the block was left.
            async for event in run:
                log.read.append(event)
        self._check(session, log, journal_lost=False)

    def _begin(self, log: RunLog) -> None:
        self.logs.append(log)
        self._unchecked = log
        self._calls.started, self._calls.seconds = Counter(), 0.0
        for field in attrs.fields(Hands):
            setattr(self._hands, field.name, field.default)
        log.calls, log.hands = self._calls, self._hands

    def _check(self, session: Session, log: RunLog, *, journal_lost: bool) -> None:
        self._unchecked = None
        compacted = any(isinstance(event, ContextCompacted) for event in log.events)
        self._compacted = self._compacted or self._hands.compacted or compacted
        names = [info.name for info in session.tree()]
        if not journal_lost and names != ["session", "recorder"]:
            log.left = ", ".join(names)
        found = list(findings_of(self.plan, log, session, journal_lost=journal_lost, compacted=self._compacted))
        found += [f"no call is executed twice: {id}" for id in self._ran & set(self._calls.started)]
        self._ran |= set(self._calls.started)
        self.findings += [f"run {log.number}: {finding}" for finding in found]

    def _take(self, event: Event) -> None:
        log = self.logs[-1]
        log.events.append(event)
        self._look_at_history(log, event)
        line = f"{trio.current_time():.4f} {self.steps.count} {event!r}".replace(str(self._home), "~")
        self.digest.update(line.encode("utf-8", "backslashreplace"))
        if self._keep_trace:
            self.trace.append(line[:600])

    def _look_at_history(self, log: RunLog, event: Event) -> None:
        messages = self._session.messages if self._session is not None else ()
        if messages is not self._checked:
            self._checked = messages
            log.invalid += [f"{problem}, at {type(event).__name__}" for problem in check(messages)]

    # --- strikes ----------------------------------------------------------------------------------

    def _arm(
        self,
        session: Session,
        run: Run,
        log: RunLog,
        reader: _Reader,
        strikes: Sequence[Strike],
        nursery: trio.Nursery,
    ) -> None:
        to_say, said = trio.open_memory_channel[str](STEER_ROOM)
        nursery.start_soon(_steer, run, log, said)
        acts: dict[int, list[Callable[[], object]]] = {}

        def act(kind: StrikeKind) -> None:
            if session._tree is None or run.ended:
                return
            log.hits.append((kind, trio.current_time()))
            self.digest.update(f"{kind} {self.steps.count}".encode())
            if self._keep_trace:
                self.trace.append(f"{trio.current_time():.4f} {self.steps.count} STRIKE {kind}")
            self._strike(kind, session, run, reader, to_say)

        for strike in strikes:
            if strike.step is not None:
                acts.setdefault(strike.step, []).append(lambda kind=strike.kind: act(kind))  # type: ignore[misc]
            else:
                nursery.start_soon(_later, strike.time or 0.0, act, strike.kind)
        acts.setdefault(STEP_LIMIT, []).append(lambda: self._give_up(reader))
        self.steps.begin(acts)

    def _give_up(self, reader: _Reader) -> None:
        self.findings.append("a run comes to its end: it went round and round")
        reader.scope.cancel(reason="it goes round and round")

    def _strike(
        self, kind: StrikeKind, session: Session, run: Run, reader: _Reader, to_say: trio.MemorySendChannel[str]
    ) -> None:
        tree = session._tree
        assert tree is not None
        match kind:
            case "interrupt":
                run.interrupt("by the plan")
            case "cancel":
                reader.scope.cancel(reason="by the plan")
            case "leave":
                reader.leave = True
            case "raise":
                reader.fail = True
            case "steer":
                self._hints += 1
                to_say.send_nowait(f"hint {self._hints}")
            case "submit":
                self._submit_too_much(session)
            case "executor":
                tree._calls.offer(NONSENSE)
            case "streamer":
                self._wire.deadly += 1
            case "streamer_inbox":
                tree._requests.offer(NONSENSE)
            case "watchdog":
                tree._board._pulses.insert(0, _DeadlyPulse(tree._board))  # type: ignore[arg-type]
                tree._board.touch()
            case "loop":
                tree.loop.offer(NONSENSE)
            case "recorder":
                session._parts.recorder.offer(Append((NONSENSE,)))

    def _submit_too_much(self, session: Session) -> None:
        entering: Any = session.submit("one too many").__aenter__()
        try:
            entering.send(None)
        except SessionBusy:
            return
        self.findings.append("a session has one run at a time: it took another")


async def _read(run: Run, log: RunLog, reader: _Reader) -> None:
    async for event in run:
        log.read.append(event)
        if reader.leave:
            return
        if reader.fail:
            raise _Sabotage


async def _later(delay: float, act: Callable[[StrikeKind], None], kind: StrikeKind) -> None:
    await trio.sleep(delay)
    act(kind)


async def _steer(run: Run, log: RunLog, said: trio.MemoryReceiveChannel[str]) -> None:
    async for message in said:
        log.tried.append(message)
        try:
            await run.steer(message)
        except PeerGone:
            continue
        log.steered.append(message)


def _living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
