"""
Who looks after an agent's subagents: starts them within limits, ends them, and tells of each end exactly once.

One `Subagents` for each session, a subagent's own session included; what they share is the `AgentTree`. Those in the
foreground live in the call that started them, those in the background in the actor that belongs to the run, so none
outlives its run. `stop` ends all at once, before anything else of the run has noticed: after it no request begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import trio

from atrio.actors.protocol import LoopInput, Steered
from atrio.actors.queue import MessageQueue
from atrio.actors.recorder import Append
from atrio.runtime.errors import PeerGone, ToolRejected
from atrio.runtime.events import (
    AssistantBlock,
    Event,
    Notice,
    PermissionDenied,
    SubagentEnded,
    SubagentProgress,
    SubagentStarted,
    ToolEnded,
    UserMessageAdded,
)
from atrio.runtime.ledger import Ledger
from atrio.runtime.mailbox import Address
from atrio.runtime.messages import TextBlock, ToolUseBlock, UserMessage
from atrio.runtime.prices import Catalogue
from atrio.runtime.records import SystemRecord
from atrio.runtime.rerecord import SUBAGENT_ENDED
from atrio.runtime.result import Denial
from atrio.runtime.state import derive_id
from atrio.tools.shapes import close_names

from .definitions import SubagentDefinition
from .values import BackgroundPolicy, Order, Report, notification, report_of, still_at_work

if TYPE_CHECKING:
    from atrio.actors.run import Run
    from atrio.actors.session import Session

__all__ = ["MAX_AT_ONCE", "MAX_DEPTH", "AgentTree", "Child", "OpenChild", "Subagents"]

MAX_AT_ONCE: Final = 20
"""In the whole tree. More are refused, not queued: a queue that nobody sees looks like a hang."""

MAX_DEPTH: Final = 3
"""The main agent is at depth 0."""

MAX_KEPT: Final = 100
"""Ended ones that can still be looked at; the oldest are forgotten first."""

WAIT_LIMIT: Final = 600.0
"""Seconds that a run which would end waits for the next end of a subagent in the background."""

OpenChild: TypeAlias = Callable[["Child"], AbstractAsyncContextManager["Session"]]
"""Opens the session of a subagent, as a block. An error that it raises is how the subagent ended."""


@attrs.define(eq=False, kw_only=True)
class AgentTree:
    """What all agents of one session's tree share. ``over_budget`` says why nothing may be spent any more."""

    at_once: int = MAX_AT_ONCE
    depth: int = MAX_DEPTH
    running: int = 0
    budget: float | None = None
    spent: Ledger | None = None
    """What the main agent's run in progress has used, all below it included."""

    def over_budget(self) -> str | None:
        if self.budget is None or self.spent is None:
            return None
        spent = self.spent.cost_usd
        if spent is None:
            return f"a price is unknown, so the budget of ${self.budget:g} can't be kept"
        if spent < self.budget:
            return None
        return f"the budget of ${self.budget:g} for all agents together is used up: ${spent:.4f} spent"


@attrs.define(eq=False, kw_only=True)
class Child:
    """One subagent. ``ended`` is set once ``report`` is there and its end was told."""

    order: Order
    ledger: Ledger
    journal: str = ""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    ended: trio.Event = attrs.field(factory=trio.Event)
    report: Report | None = None
    run: Run | None = None
    host: Subagents | None = None
    """Of its own subagents."""
    readers: int = 0
    """Calls that wait for its end: they get the result, so it isn't told again."""
    tool_uses: int = 0
    last_text: str = ""

    @property
    def id(self) -> str:
        return self.order.agent_id

    @property
    def status(self) -> str:
        """``running``, ``completed``, ``failed`` or ``stopped``."""
        return "running" if self.report is None else self.report.status

    def stop(self, reason: str) -> None:
        """End it and all below it, now."""
        if self.host is not None:
            self.host.stop(reason)
        self.scope.cancel(reason=reason)


@attrs.define(eq=False, kw_only=True)
class Subagents:
    """
    A session's subagents. As an actor (`run`) it owns those of one run that are in the background.

    Args:
        definitions: the kinds there are, by name.
        depth: of this session's agent; 0 is the main one.
        agent_id: which subagent this session is; None: the main agent.
        journal_of: where a subagent of this id keeps its record.
        ledger: the session's; what subagents use counts there at once.
        recorder: of the session's journal, which gets one line for each end.
        policy: what becomes of those in the background when the run would end.
        fork: this session is itself a fork, which makes no further ones.
    """

    definitions: Mapping[str, SubagentDefinition]
    tree: AgentTree
    publish: Callable[[Event], None]
    new_id: Callable[[], str]
    journal_of: Callable[[str], str]
    ledger: Ledger
    recorder: Address[Append]
    depth: int = 0
    agent_id: str | None = None
    policy: BackgroundPolicy = "wait"
    fork: bool = False
    open_child: OpenChild | None = None
    """Set by the session."""
    _children: dict[str, Child] = attrs.field(factory=dict)
    _nursery: trio.Nursery | None = None
    _loop: Address[LoopInput] | None = None
    _spent: Ledger | None = None
    _stopped: str | None = None
    _queue: MessageQueue | None = None
    _denials: list[Denial] = attrs.field(factory=list)
    _beside: list[Child] = attrs.field(factory=list)
    """In the background, until their end was told."""
    _patience: float | None = None
    """Until when the run's end waits for those (Trio time)."""
    _warned: bool = False

    # --- the run ----------------------------------------------------------------------------------

    def begin_run(self, spent: Ledger, queue: MessageQueue, denials: list[Denial]) -> None:
        """
        A run begins. ``spent`` counts what it uses, and what those below it use; ``queue`` takes what they have to say,
        and ``denials`` the calls that were refused to them.
        """
        self._spent, self._queue, self._denials = spent, queue, denials
        self._stopped = self._patience = None
        self._warned = False
        if self.depth == 0:
            self.tree.spent = spent

    def connect(self, loop: Address[LoopInput]) -> Subagents:
        """The same, with the run's loop to tell of ends."""
        self._loop = loop
        return self

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Own the run's background. Cancelled: all of it has ended, and was told."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None
                self.stop("the run is over")

    def stop(self, reason: str) -> None:
        """End all that are at work, and start none any more. At once; they may take a moment to be gone."""
        self._stopped = reason
        for child in self.live:
            child.stop(reason)

    async def stop_with(self) -> None:
        """Wait for ever. Cancelled: all are stopped, at once; to be started where the run's own end is felt first."""
        try:
            await trio.sleep_forever()
        finally:
            self.stop("the run is over")

    @property
    def live(self) -> list[Child]:
        """Those at work, in the order of their start."""
        return [child for child in self._children.values() if not child.ended.is_set()]

    # --- the run's end ------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether something is at work beside the run, or its end isn't told yet."""
        return bool(self._beside)

    async def before_end(self) -> float | None:
        """
        The run would end by itself: None if it may, else until when (Trio time) it has to wait. Whatever comes of
        those at work is put into the run's queue before `pending` is over.

        Cancelled: nothing has changed.
        """
        if not self._beside:
            return None
        now = trio.current_time()
        if self.policy == "wait":
            if self._patience is None:
                self._patience = now + WAIT_LIMIT
            if now < self._patience:
                return self._patience
            names = ", ".join(child.id for child in self._beside)
            text = f"agents in the background took longer than {WAIT_LIMIT:g} s and are stopped: {names}"
            self.publish(Notice(level="warning", source="subagents", text=text))
        elif self.policy == "tell" and not self._warned:
            self._warned = True
            await self._say(still_at_work([child.order for child in self._beside]))
            return None
        await self.stop_background("the run ends")
        return None

    async def stop_background(self, reason: str) -> None:
        """End those in the background, and wait until they are gone. Cancelled: they end all the same."""
        children = list(self._beside)
        for child in children:
            child.readers += 1  # nobody is to hear of it: the run ends
            child.stop(reason)
        for child in children:
            await child.ended.wait()

    async def _say(self, text: str) -> None:
        """Put a message into the run's queue, and wake a loop that waits. Cancelled: it isn't there."""
        message = UserMessage(uuid=self.new_id(), content=(TextBlock(text),), origin="hook", hidden=True)
        with suppress(PeerGone):  # the journal is gone, which ends the session
            if self._queue is not None:
                await self._queue.put(message)

    # --- one subagent -------------------------------------------------------------------------------

    def find(self, id: str) -> Child:
        """The subagent of this id. Raises `ToolRejected`, which names those that there are."""
        name = re.sub(r"^agent-", "", id.strip())
        if (child := self._children.get(name)) is not None:
            return child
        known = list(self._children)
        close = close_names(name, known)
        if not known:
            hint = "No agent was started here."
        elif close:
            hint = f"Did you mean {' or '.join(close)}?"
        else:
            hint = f"There are: {', '.join(f'{child.id} ({child.status})' for child in self._children.values())}."
        raise ToolRejected(f"There is no agent {id[:80]!r}. {hint}")

    def refusal(self, *, fork: bool = False, background: bool = False) -> str | None:
        """Why none may be started now."""
        if self._stopped is not None or self.open_child is None or (background and self._nursery is None):
            return "No agent can be started now, as the run ends."
        if (too_deep := self.refusal_of_depth()) is not None:
            return too_deep
        if fork and self.fork:
            return "A fork can't fork again: start a fresh agent, with all it has to know in the prompt."
        if self.tree.running >= self.tree.at_once:
            return (
                f"{self.tree.running} agents are at work, which is the limit: wait for one to end "
                "(AgentOutput), stop one (AgentStop), or do this yourself."
            )
        return self.tree.over_budget()

    def refusal_of_depth(self) -> str | None:
        """Why there may be none below this agent at all."""
        if self.depth < self.tree.depth:
            return None
        return f"Agents may be nested {self.tree.depth} deep, and this is the last level: do the work yourself."

    def admit(self, order: Order, catalogue: Catalogue) -> Child:
        """
        A place for one more. Whoever gets it goes on with `live_here` or `live_beside`, without any wait between.

        Raises:
            ToolRejected: there is none.
        """
        refusal = self.refusal(fork=order.fork, background=order.background)
        if refusal is not None:
            raise ToolRejected(refusal)
        child = Child(order=order, ledger=Ledger(catalogue), journal=self.journal_of(order.agent_id))
        self.tree.running += 1
        self._children[child.id] = child
        for ledger in self._counting():
            ledger.attach(child.ledger)
        self._forget()
        return child

    def live_beside(self, child: Child) -> None:
        """It lives in the background, and its end is told to the loop."""
        assert self._nursery is not None
        self._beside.append(child)
        self._nursery.start_soon(self._live_and_tell, child, self._loop, name=f"subagent {child.id}")

    async def live_here(self, child: Child) -> Report:
        """
        It lives in the calling task. Cancelled: it has ended, and its end was told.
        """
        order, started = child.order, trio.current_time()
        counting = self._counting()
        self.publish(
            SubagentStarted(
                agent_id=order.agent_id,
                agent_type=order.definition.name,
                call_id=order.call_id,
                description=order.description,
                background=order.background,
                depth=order.depth,
                parent_id=self.agent_id,
                journal=child.journal,
            )
        )
        error = ""
        try:
            with child.scope:
                await self._perform(child)
        except Exception as problem:
            # As at a supervisor: whatever it died of must not be felt by the parent.
            error = f"{type(problem).__name__}: {problem}"
        finally:
            report = self._settle(child, error, trio.current_time() - started, counting)
        return report

    async def _perform(self, child: Child) -> None:
        assert self.open_child is not None
        async with self.open_child(child) as session, session.submit(child.order.prompt) as run:
            child.run = run
            async for event in run:
                self._pass_on(child, event)

    async def _live_and_tell(self, child: Child, loop: Address[LoopInput] | None) -> None:
        try:
            report = await self.live_here(child)
            if not child.readers and self._stopped is None:
                await self._say(notification(child.order, report))
                # With what has come of it, the run may wait as long again.
                self._patience = None
        finally:
            self._beside.remove(child)
            if loop is not None:
                loop.offer(Steered())

    def _settle(self, child: Child, error: str, duration: float, counting: Iterable[Ledger]) -> Report:
        """It has ended, in whichever way: the one place where that is told."""
        order, run = child.order, child.run
        # Who is stopped stops reading, but not all below it had ended by then.
        for event in run.events.drain() if run is not None else ():
            self._pass_on(child, event)
        if error:
            report = Report(status="failed", text=child.last_text, error=error)
        elif run is not None and run.ended:
            report = report_of(run.result)
        else:
            report = Report(status="stopped", text=child.last_text, error="it was stopped")
        for ledger in counting:
            ledger.absorb(child.ledger)
        self._record(child)
        report = attrs.evolve(
            report,
            text=report.text or child.last_text,
            usage=child.ledger.usage,
            cost_usd=child.ledger.cost_usd,
            duration=duration,
            tool_uses=child.tool_uses,
        )
        child.report = report
        child.run = None
        child.host = None
        self.tree.running -= 1
        self.publish(
            SubagentEnded(
                agent_id=order.agent_id,
                agent_type=order.definition.name,
                call_id=order.call_id,
                description=order.description,
                status=report.status,
                journal=child.journal,
                text=report.text,
                error=report.error,
                usage=report.usage,
                cost_usd=report.cost_usd,
                duration=report.duration,
                turns=report.turns,
                tool_uses=report.tool_uses,
            )
        )
        child.ended.set()
        return report

    def _record(self, child: Child) -> None:
        """What it used counts after a resume as well. At once, so that no compaction's totals come in between."""
        data = {"agentId": child.id, "toolUseId": child.order.call_id, "totals": child.ledger.totals()}
        record = SystemRecord(uuid=derive_id(self.new_id(), child.id), subtype=SUBAGENT_ENDED, data=data)
        self.recorder.offer(Append((record,)))

    def _counting(self) -> tuple[Ledger, ...]:
        return (self.ledger,) if self._spent is None else (self.ledger, self._spent)

    def _pass_on(self, child: Child, event: Event) -> None:
        """What the parent's subscribers hear of a subagent; of one below it, just as it came."""
        self._note_denial(event.event if isinstance(event, SubagentProgress) else event)
        match event:
            case SubagentProgress() | SubagentStarted() | SubagentEnded():
                self.publish(attrs.evolve(event))
                return
            case AssistantBlock(block=TextBlock(text=text)) if text:
                child.last_text = text
            case AssistantBlock(block=ToolUseBlock()):
                child.tool_uses += 1
            case AssistantBlock() | ToolEnded() | PermissionDenied():
                pass
            case UserMessageAdded() if event.message.origin != "tool_results":
                pass
            case _:
                return
        self.publish(SubagentProgress(agent_id=child.id, call_id=child.order.call_id, event=event))

    def _note_denial(self, event: Event) -> None:
        if isinstance(event, PermissionDenied):
            self._denials.append(
                Denial(tool_name=event.name, tool_use_id=event.call_id, tool_input=event.input, reason=event.reason)
            )

    def _forget(self) -> None:
        ended = [child.id for child in self._children.values() if child.ended.is_set()]
        for id in ended[: max(0, len(ended) - MAX_KEPT)]:
            del self._children[id]
