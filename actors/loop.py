"""
The loop: the shell of `decide`. It turns what the actors say into observations and performs what is decided.

It is the only publisher of a run's events, so they have one order, and the only one that holds the run's
state. It starts first and stops last: when a run is aborted, the streamer and the executor end before it, and
it finds their last words in its inbox.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import assert_never

import attrs
import trio

from atrio.runtime.actions import (
    Action,
    CallModel,
    Compact,
    Finish,
    Prepare,
    Publish,
    RunStopHooks,
    StartCall,
    StopModel,
    Write,
)
from atrio.runtime.actor import Status
from atrio.runtime.border import admit_block
from atrio.runtime.decide import decide
from atrio.runtime.errors import InvariantError, JournalError, PeerGone, ReplyDropped
from atrio.runtime.events import (
    ActivitySummary,
    CacheBroken,
    Event,
    Heartbeat,
    Notice,
    PermissionDenied,
    ResponseEnded,
    RetryScheduled,
    RunEnded,
    RunStarted,
    StallWarning,
    StreamEvent,
    ToolProgress,
    ToolStarted,
    ToolUseSummary,
)
from atrio.runtime.history import check
from atrio.runtime.mailbox import Address, Inbox
from atrio.runtime.messages import Message, Usage, UserMessage
from atrio.runtime.model import (
    BlockCompleted,
    FailureKind,
    MessageEnded,
    MessageStarted,
    ModelFailure,
    ModelRequest,
    StreamFailed,
    StreamItem,
)
from atrio.runtime.observations import (
    BlockArrived,
    CallEnded,
    Compacted,
    CompactFailed,
    CompactLevel,
    ContextReady,
    InputAccepted,
    Interrupted,
    MessageQueued,
    Observation,
    PartFailed,
    ResponseFailed,
    ResponseFinished,
    ResponseOpened,
    ResponseRestarted,
    SetupFailed,
    StopHooksEnded,
    TimeExpired,
)
from atrio.runtime.records import Record, RunEndRecord
from atrio.runtime.result import Result, TerminalReason
from atrio.runtime.state import LoopState, Phase, assistant_message, derive_id
from atrio.runtime.steps import join_queued

from .account import Account, with_totals
from .broadcaster import Broadcaster
from .context.cache_break import CacheWatch
from .dependencies import Prepared
from .hooks import StopContext, StopHook, run_stop_hooks
from .protocol import (
    ActivityNoted,
    ActorDown,
    CallDone,
    CallReported,
    CallsSummarized,
    CallStarted,
    ContextJob,
    ContextPrepared,
    ContextRefused,
    LoopInput,
    MakeRoom,
    ModelCall,
    ModelCallFailed,
    ModelCallRestarted,
    NoRoom,
    PrepareContext,
    RoomMade,
    RunCall,
    SideUsage,
    Stalled,
    Steered,
    StreamBatch,
    Waiting,
)
from .queue import MessageQueue
from .recorder import Append, ask_to_write
from .requests import RequestBuilder
from .subagents.host import Subagents

__all__ = ["History", "Loop"]

LAST_WORDS_LIMIT = 5.0
"""Seconds for the journal to take a run's last records, when the run is cancelled."""


@attrs.define(eq=False)
class History:
    """A session's conversation. Written by the loop of the run in progress, read by anybody."""

    messages: tuple[Message, ...] = ()
    call_ids: set[str] = attrs.field(factory=set)
    queue: MessageQueue = attrs.field(factory=MessageQueue)
    """Messages for the run in progress."""
    result: Result | None = None


@attrs.frozen
class _Announce:
    """The very last thing to do: the result is there for everybody to see."""

    result: Result


class Loop:
    """The actor. Its normal end is the end of the run."""

    name = "loop"

    def __init__(
        self,
        *,
        state: LoopState,
        prompt: UserMessage,
        opening: RunStarted,
        inbox: Inbox[LoopInput],
        streamer: Address[ModelCall],
        executor: Address[RunCall],
        compactor: Address[ContextJob],
        stopping: Callable[[], bool],
        recorder: Address[Append],
        bus: Broadcaster,
        requests: RequestBuilder,
        account: Account,
        history: History,
        cache: CacheWatch,
        stop_hooks: Sequence[StopHook] = (),
        max_seconds: float | None = None,
        notices: Sequence[Notice] = (),
        subagents: Subagents | None = None,
    ) -> None:
        self._subagents = subagents
        self._parked: tuple[RunStopHooks, float] | None = None
        self._notices = notices
        self._cache = cache
        self._request: ModelRequest | None = None
        self._model_call: ModelCall | None = None
        self._stop_hooks = stop_hooks
        self._max_seconds = max_seconds
        self._state = state
        self._prompt = prompt
        self._opening = opening
        self._inbox = inbox
        self._streamer = streamer
        self._executor = executor
        self._compactor = compactor
        self._job = 0
        self._level: CompactLevel | None = None
        self._recorder = recorder
        self._bus = bus
        self._requests = requests
        self._account = account
        self._history = history
        self.status = Status()
        self._is_stopping = stopping
        self._stopping = False
        self._stopped_during: Phase | None = None
        # What was taken or decided, but not yet done: an abort may come at any await and must lose none of it.
        self._backlog: deque[LoopInput] = deque()
        self._to_do: deque[Action | _Announce] = deque()
        self._summaries: list[ToolUseSummary] = []
        self._journal_lost = False
        self._defect: str | None = None
        self._lost: ActorDown | None = None
        """An actor that failed for good."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """
        Go round until the run has its end. Cancelled: open calls are answered, the journal gets the run's last
        records and the subscribers their `RunEnded`, within a few seconds.
        """
        task_status.started()
        try:
            self._publish(self._opening)
            for notice in self._notices:
                self._publish(notice)
            await self._observe(InputAccepted(message=self._prompt))
            await self._take_what_is_there()
            while self._state.phase is not Phase.TERMINAL:
                with self.status.waiting(self._what_for()), self._patience():
                    await self._take(await self._inbox.receive())
                await self._take_what_is_there()
                await self._look_at_background()
        except Exception as error:
            self._defect = f"{type(error).__name__}: {error}"
            raise
        finally:
            # After a defect the others still work: their last words are awaited first (`end_after_defect`).
            if self._defect is None:
                await self._say_last_words()  # noqa: ASYNC102  # shielded and bounded there

    async def end_after_defect(self) -> None:
        """
        The run's end, where the loop itself has failed: answers, records and tells what the other actors, which have
        ended by now, had to say. Does nothing for a run that has its end.
        """
        await self._say_last_words()

    async def _say_last_words(self) -> None:
        if self._history.result is None:
            with trio.move_on_after(LAST_WORDS_LIMIT, shield=True):
                await self._break_off()

    async def _take_what_is_there(self) -> None:
        self._backlog.extend(self._inbox.drain())
        while self._backlog and self._state.phase is not Phase.TERMINAL:
            await self._take(self._backlog.popleft())
        # Whoever found the inbox full could not say that there is one.
        await self._take_messages()

    async def _take_messages(self) -> None:
        """What people say. A run that is being stopped takes it in at its very end."""
        queue = self._history.queue
        while not self._stopping and self._state.phase is not Phase.TERMINAL and (queued := queue.take()) is not None:
            if queued.priority == "now" and self._state.phase is Phase.STREAM:
                self._book_unfinished()
            await self._observe(MessageQueued(message=queued.message, priority=queued.priority))

    def _what_for(self) -> str:
        """For inspection: what the run waits for now."""
        if self._state.phase in (Phase.PREPARE, Phase.RECOVER):
            return "the context"
        if self._state.phase is Phase.HOOKS:
            return "agents in the background"
        if self._state.phase is not Phase.TOOLS:
            return "the model"
        return ", ".join(call.block.name for call in self._state.turn.open_calls)

    async def _break_off(self) -> None:
        """End the run where it stands. What the actors said last still counts; nothing new is begun."""
        self._stop_here()
        during = self._stopped_during or self._state.phase
        if self._state.phase is Phase.STREAM:
            self._book_unfinished()
        try:
            await self._work_off()
            await self._take_what_is_there()
        except Exception as error:
            self._defect = f"{type(error).__name__}: {error}"
            raise
        finally:
            # Whatever their last words were, the run has an end that everybody hears of.
            if self._state.phase is not Phase.TERMINAL:
                await self._observe(self._why_broken_off(during))  # noqa: ASYNC102  # by the caller, too
            else:
                await self._work_off()  # noqa: ASYNC102

    def _why_broken_off(self, during: Phase) -> Observation:
        if self._defect is not None:
            if self._journal_lost:
                return PartFailed(name="journal", error="it takes no more records, and nothing may run unrecorded")
            return PartFailed(name=self.name, error=self._defect)
        if self._lost is not None:
            return PartFailed(name=self._lost.name, error=self._lost.error)
        if self._max_seconds is not None and trio.current_time() >= self._account.started + self._max_seconds:
            return TimeExpired(limit=self._max_seconds, during=during)
        return Interrupted(reason="the run was cancelled", during=during)

    # --- in ---------------------------------------------------------------------------------------

    @property
    def _ends(self) -> bool:
        """Nothing new begins: this run is being stopped, whether or not the loop has come to that."""
        return self._stopping or self._is_stopping()

    def _stop_here(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._stopped_during = self._state.phase

    async def _take(self, item: LoopInput) -> None:
        if self._is_stopping():
            # The others are ending, tools with a grace of theirs: what they still say counts, nothing new begins.
            self._stop_here()
        match item:
            case StreamBatch():
                await self._take_batch(item)
            case CallDone():
                await self._call_done(item)
            case CallReported():
                self._publish(ToolProgress(item.call_id, item.name, item.text, item.data, item.elapsed))
            case CallStarted():
                block = item.block
                self._publish(ToolStarted(call_id=block.id, name=block.name, input=block.input))
            case ModelCallRestarted():
                await self._restarted(item)
            case ModelCallFailed() if self._awaits(item.number):
                self._book_unfinished()
                await self._observe(ResponseFailed(request=item.number, failure=item.failure))
            case Stalled():
                self._publish(StallWarning(level=item.level, idle=item.idle, limit=item.limit))
            case Waiting():
                self._publish(Heartbeat(reason=item.reason, until=item.until))
            case ContextPrepared() if item.number == self._job:
                await self._context_ready(item.ready)
            case ContextRefused() if item.number == self._job:
                self._book(item.paid)
                await self._observe(SetupFailed(error=item.error, reason=item.reason))
            case RoomMade() if item.number == self._job:
                await self._room_made(item)
            case NoRoom() if item.number == self._job:
                self._book(item.paid)
                await self._observe(CompactFailed(level=item.level, error=item.error))
            case ContextPrepared() | ContextRefused() | RoomMade() | NoRoom() | ModelCallFailed():
                return  # of a job that a crash had made void, or of a request that was broken off
            case Steered():
                await self._take_messages()
            case ActivityNoted():
                self._publish(ActivitySummary(text=item.text))
            case CallsSummarized():
                self._calls_summarized(item)
            case ActorDown():
                await self._actor_down(item)
            case _:
                assert_never(item)

    async def _take_batch(self, batch: StreamBatch) -> None:
        items, publish = batch.take(), self._publish
        live = self._awaits(batch.number)
        for item in items:
            if not live:
                # Of an older request, or behind a message's end: nothing to anybody.
                return
            if isinstance(item, StreamEvent):
                publish(item)
            else:
                await self._take_stream_item(batch.number, item)
                live = self._awaits(batch.number)
        self._account.token_came()

    def _awaits(self, number: int) -> bool:
        return number == self._state.turn.request and self._state.phase is Phase.STREAM

    async def _take_stream_item(self, number: int, item: StreamItem) -> None:
        raw = getattr(item, "raw", None)
        if raw is not None:
            self._publish(StreamEvent(raw))
        match item:
            case MessageStarted():
                await self._observe(
                    ResponseOpened(request=number, message_id=item.message_id, model=item.model, usage=item.usage)
                )
            case BlockCompleted():
                block = admit_block(item.block, self._history.call_ids)
                await self._observe(BlockArrived(request=number, index=item.index, block=block))
            case MessageEnded():
                await self._response_ended(number, item)
            case StreamFailed() | StreamEvent():
                raise InvariantError("the streamer handed on what it should not have")

    async def _response_ended(self, number: int, item: MessageEnded) -> None:
        self._account.request_ended()
        turn = self._state.turn
        model = turn.model or self._state.model
        cost = self._account.response(turn.message_id, model, item.usage)
        message = attrs.evolve(
            assistant_message(self._state, turn.blocks), stop_reason=item.stop_reason, usage=item.usage
        )
        for note in item.notes:
            self._publish(Notice(level="warning", source="model", text=note))
        self._watch_cache(item.usage)
        self._publish(ResponseEnded(message=message, cost_usd=cost))
        self._tell_summaries()
        await self._observe(
            ResponseFinished(request=number, stop_reason=item.stop_reason, usage=item.usage, incomplete=item.incomplete)
        )

    def _calls_summarized(self, item: CallsSummarized) -> None:
        """Told with the response that follows those calls; at once where that has come already."""
        self._summaries.append(ToolUseSummary(call_ids=item.call_ids, text=item.text))
        if self._state.phase not in (Phase.PREPARE, Phase.STREAM, Phase.RECOVER):
            self._tell_summaries()

    def _tell_summaries(self) -> None:
        told, self._summaries = self._summaries, []
        for event in told:
            self._publish(event)

    def _watch_cache(self, usage: Usage) -> None:
        if self._request is None:
            return
        broken = self._cache.observe(self._request, usage, trio.current_time())
        if broken is not None:
            event = CacheBroken(
                tokens_before=broken.tokens_before,
                tokens_now=broken.tokens_now,
                changes=broken.changes,
                text=str(broken),
            )
            self._publish(event)

    def _book_unfinished(self) -> None:
        """A response that never ends was paid for all the same, as far as its usage is known."""
        self._account.request_ended()
        turn = self._state.turn
        if turn.message_id and turn.usage.reported:
            self._account.response(turn.message_id, turn.model or self._state.model, turn.usage)

    async def _call_done(self, item: CallDone) -> None:
        if item.deferred is not None:
            self._account.deferred.append(item.deferred)
        if item.denial is not None:
            self._account.denials.append(item.denial)
            self._publish(
                PermissionDenied(
                    call_id=item.call_id,
                    name=item.denial.tool_name,
                    input=item.denial.tool_input,
                    reason=item.denial.reason,
                )
            )
        await self._observe(
            CallEnded(
                call_id=item.call_id,
                result=item.result,
                details=item.details,
                duration=item.duration,
                stop_loop=item.stop_loop,
                deferred=item.deferred is not None,
            )
        )

    async def _restarted(self, item: ModelCallRestarted) -> None:
        if not self._awaits(item.number):
            return
        failure, retry = item.failure, item.retry
        self._book_unfinished()
        self._account.request_started()
        if item.void:
            await self._observe(ResponseRestarted(request=item.number, reason=failure.message))
        self._publish(
            RetryScheduled(
                attempt=retry.number,
                max_attempts=retry.limit,
                delay=retry.delay,
                until=item.until,
                status=failure.status,
                kind=failure.kind.value,
                message=failure.message,
            )
        )

    async def _actor_down(self, item: ActorDown) -> None:
        if self._stopping and not item.final:
            return
        self._publish(Notice(level="error", source=item.name, text=f"the {item.name} failed: {item.error}"))
        if item.final:
            # Everybody is being stopped, this actor last: what the others still say counts, then it is the end.
            self._lost = item
            self._stop_here()
        elif item.name == "compactor":
            self._job += 1
            await self._context_lost(item.error)
        elif item.name == "streamer" and self._state.phase is Phase.STREAM:
            failure = ModelFailure(
                kind=FailureKind.ACTOR_CRASHED, message=f"the streamer failed: {item.error}", retryable=True
            )
            await self._observe(ResponseFailed(request=self._state.turn.request, failure=failure, crashed=True))

    # --- out --------------------------------------------------------------------------------------

    async def _observe(self, observation: Observation) -> None:
        transition = decide(self._state, observation)
        self._state = transition.state
        self._history.messages = transition.state.messages
        self._to_do.extend(transition.actions)
        await self._work_off()

    async def _work_off(self) -> None:
        """Perform what is to be done, in order. Cancelled: the rest, and what was not recorded, stays to be done."""
        while self._to_do:
            await self._perform(self._to_do.popleft())

    async def _perform(self, action: Action | _Announce) -> None:
        match action:
            case Write():
                records = self._history.queue.with_waiting(action.records)
                await self._write(with_totals(records, self._account.session_ledger), sync=action.sync)
            case Publish():
                self._publish(action.event)
            case Prepare() | CallModel() | StartCall() | Compact() | RunStopHooks() if self._stopping:
                return
            case Compact():
                await self._compact(action)
            case RunStopHooks():
                await self._would_end(action)
            case Finish() if action.reason is TerminalReason.COMPLETED and self._has_more_to_do():
                await self._go_on_after_all()
            case Finish():
                await self._stop_background(action)
                self._finish(action)
            case _Announce():
                self._history.result = action.result
                self._publish(RunEnded(result=action.result))
            case Prepare():
                await self._prepare()
            case CallModel():
                await self._call_model(action)
            case StopModel():
                if self._model_call is not None and self._model_call.number == action.request:
                    self._model_call.scope.cancel(reason="nobody waits for the answer any more")
            case StartCall():
                await self._executor.send(RunCall(action.block))
            case _:
                assert_never(action)

    def _publish(self, event: Event) -> None:
        self._bus.publish(event)

    async def _write(self, records: Sequence[Record], *, sync: bool) -> None:
        """Journal. Without a journal nothing may go on, except that an ending run still comes to its end."""
        if self._journal_lost:
            return
        sent = False
        try:
            if sync:
                pending = await ask_to_write(self._recorder, records)
                sent = True
                await pending.get()
            else:
                await self._recorder.send(Append(records))
                sent = True
        except (PeerGone, ReplyDropped) as error:
            self._journal_lost = sent = True
            if not self._stopping:
                raise JournalError("the journal is gone; nothing may run unrecorded") from error
        finally:
            if not sent and records:
                self._to_do.appendleft(Write(tuple(records)))

    async def _prepare(self) -> None:
        state = self._state
        self._job += 1
        await self._compactor.send(
            PrepareContext(
                number=self._job,
                turn=state.turn_count,
                model=state.model,
                max_tokens=state.output_tokens,
                messages=state.messages,
            )
        )

    async def _compact(self, action: Compact) -> None:
        state = self._state
        self._level = action.level
        self._job += 1
        await self._compactor.send(
            MakeRoom(
                number=self._job,
                turn=state.turn_count,
                model=state.model,
                messages=state.messages,
                level=action.level,
                failure=action.failure,
            )
        )

    async def _context_ready(self, ready: Prepared) -> None:
        self._tell_and_book(ready)
        await self._observe(
            ContextReady(
                messages=ready.messages,
                view=ready.view,
                staged_collapses=ready.staged_collapses,
                compacted=ready.compacted,
                pre_tokens=ready.pre_tokens,
                post_tokens=ready.post_tokens,
                attachments=ready.attachments,
                spent_usd=self._account.ledger.cost_usd,
            )
        )

    async def _room_made(self, item: RoomMade) -> None:
        ready = item.ready
        self._tell_and_book(ready)
        problems = check(ready.messages)
        if problems:
            error = f"the compacted history is not valid: {'; '.join(problems)}"
            await self._observe(CompactFailed(level=item.level, error=error))
            return
        await self._observe(
            Compacted(
                level=item.level,
                messages=ready.messages,
                pre_tokens=ready.pre_tokens,
                post_tokens=ready.post_tokens,
            )
        )

    def _tell_and_book(self, ready: Prepared) -> None:
        if ready.compacted is not None:
            self._cache.expect_break()
        for text in ready.notices:
            self._publish(Notice(level="warning", source="context", text=text))
        self._book(ready.side_usage)

    def _book(self, paid: SideUsage) -> None:
        for message_id, model, usage in paid:
            self._account.response(message_id, model, usage)

    async def _context_lost(self, error: str) -> None:
        """The compactor crashed: this compaction failed, the run goes on with the history as it is."""
        if self._state.phase is Phase.PREPARE:
            await self._context_ready(Prepared(messages=self._state.messages))
        elif self._state.phase is Phase.RECOVER and self._level is not None:
            await self._observe(CompactFailed(level=self._level, error=error))

    # --- work beside the run ------------------------------------------------------------------------

    async def _would_end(self, action: RunStopHooks) -> None:
        """The model is done; the run's end may have to wait for what goes on beside it."""
        until = await self._subagents.before_end() if self._subagents is not None else None
        self._parked = None if until is None else (action, until)
        if until is None:
            await self._ask_stop_hooks(action)

    async def _look_at_background(self) -> None:
        """Go on with an end that waited, if it need not wait any longer."""
        if self._parked is None or self._subagents is None or self._state.phase is not Phase.HOOKS:
            return
        if self._ends:
            # It need not wait since what it waited for is being stopped, and so is the run.
            return
        action, until = self._parked
        if self._state.queued:
            # Something has come of it, which the model is to hear.
            self._parked = None
            await self._observe(StopHooksEnded())
        elif not self._subagents.pending or trio.current_time() >= until:
            await self._would_end(action)

    def _patience(self) -> trio.CancelScope:
        return trio.CancelScope(deadline=inf if self._parked is None else self._parked[1])

    async def _stop_background(self, action: Finish) -> None:
        """However the run ends, nothing works on beside it. Cancelled: the end is still to come."""
        if self._subagents is None or not self._subagents.pending:
            return
        gone = False
        try:
            await self._subagents.stop_background("the run ends")
            gone = True
        finally:
            if not gone:
                self._to_do.appendleft(action)

    async def _ask_stop_hooks(self, action: RunStopHooks) -> None:
        context = StopContext(
            session_id=self._account.session_id,
            run_id=self._state.run_id,
            text=self._account.last_text(self._state.messages),
            messages=self._state.messages,
            active=action.active,
        )

        def report(text: str) -> None:
            self._publish(Notice(level="warning", source="stop hook", text=text))

        with self.status.waiting("stop hooks"):
            outcome = await run_stop_hooks(self._stop_hooks, context, report)
        await self._take_messages()
        await self._observe(outcome)

    async def _call_model(self, action: CallModel) -> None:
        # What the model is about to see must be recorded before it sees it.
        await self._write((), sync=True)
        request = self._requests.build(
            self._state.view if self._state.view is not None else self._state.messages,
            model=action.model,
            max_tokens=action.max_tokens,
            task_budget_remaining=action.task_budget_remaining,
        )
        self._request = request
        self._account.request_started()
        self._model_call = ModelCall(action.request, request, action.has_fallback)
        await self._streamer.send(self._model_call)

    def _has_more_to_do(self) -> bool:
        return self._history.queue.waits and not (self._ends or self._journal_lost)

    async def _go_on_after_all(self) -> None:
        """Somebody has said more since it was decided that the work is done; nobody has been told of the end yet."""
        self._state = attrs.evolve(self._state, phase=Phase.HOOKS, terminal=None)
        await self._take_messages()
        await self._observe(StopHooksEnded())

    def _finish(self, action: Finish) -> None:
        self._tell_summaries()
        told = self._close()
        state = self._state
        result = self._account.result(
            action.reason,
            messages=state.messages[self._opening_length :],
            turns=state.turn_count,
            errors=action.errors,
            failure=action.failure,
            subtype=action.subtype,
        )
        record = RunEndRecord(
            uuid=derive_id(state.run_id, "run", "end"),
            run_id=state.run_id,
            terminal_reason=action.reason.value,
            errors=action.errors,
        )
        self._to_do += (*told, Write((record,), sync=True), _Announce(result))

    def _close(self) -> tuple[Action, ...]:
        """Messages that were accepted until now join the history, whatever came before them; no more are accepted."""
        self._inbox.drain()
        self._backlog.clear()
        late = [queued.message for queued in self._history.queue.close()]
        self._state, told = join_queued(self._state, *late)
        self._history.messages = self._state.messages
        return told

    @property
    def _opening_length(self) -> int:
        """Where this run's messages begin: a result never shows the text of an earlier run."""
        for position, message in enumerate(self._state.messages):
            if message is self._prompt:
                return position
        return 0
