"""What must hold after every simulated run, whatever hit it. Each finding begins with the name of the invariant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs
import orjson

from atrio.actors.session import Session
from atrio.runtime.events import (
    AssistantBlock,
    Event,
    MessageWithdrawn,
    Notice,
    RunEnded,
    RunStarted,
    ToolEnded,
    ToolStarted,
)
from atrio.runtime.messages import Message, TextBlock, ToolUseBlock, Usage, UserMessage
from atrio.runtime.plain_json import json_line
from atrio.runtime.replay import replay_file
from atrio.runtime.result import Result, TerminalReason

from .sim_plan import ABORTS, DEATHS, Plan, StrikeKind
from .sim_tools import CallLog, Hands
from .sim_world import Exchange

__all__ = ["RunLog", "findings_of"]

GRACES = 60.0
"""Seconds that an aborted run may need to its end: the graces of its actors, one after the other."""

SILENCE = 310.0
"""Seconds that a response may be silent before a watchdog or the limit of an answer without streaming cuts it."""

WAIT = 400.0
"""Seconds before the next attempt, where somebody watches."""

LONG_WAIT = 6 * 3600 * 1.25
"""The same where nobody does."""

ROUNDING = 1e-6
"""Seconds by which differences of Trio's times may be off."""

CONTEXT = 7 * 3600.0 + 10.0
APPROVAL = 310.0
HOOK = 65.0
CALL = 30.0

ACTORS: Mapping[str, tuple[StrikeKind, ...]] = {
    "executor": ("executor",),
    "streamer": ("streamer", "streamer_inbox"),
    "watchdog": ("watchdog",),
    "compactor": ("streamer",),
}
"""What kills them: the broken transport meets whichever call of the model comes next, a summary's as well."""

OTHER_SUCCESSES = (TerminalReason.STOP_HOOK_PREVENTED, TerminalReason.HOOK_STOPPED, TerminalReason.TOOL_DEFERRED)
TIMED_OUT = (TerminalReason.BUDGET_EXHAUSTED, "error_during_execution")


@attrs.define(eq=False)
class RunLog:
    """One run as it was seen from outside. Times are Trio's."""

    number: int
    began: float
    prompt: str = "go"
    ended: float = 0.0
    events: list[Event] = attrs.field(factory=list)
    """As published."""
    read: list[Event] = attrs.field(factory=list)
    """As a subscriber got them."""
    invalid: list[str] = attrs.field(factory=list)
    """What was wrong with the history at some event."""
    hits: list[tuple[StrikeKind, float]] = attrs.field(factory=list)
    """Strikes that came before the run's end, and when."""
    steered: list[str] = attrs.field(factory=list)
    """Messages that the run has accepted."""
    tried: list[str] = attrs.field(factory=list)
    """Messages that it was offered."""
    exchanges: Sequence[Exchange] = ()
    usage: dict[str, Usage] = attrs.field(factory=dict)
    """What the session's ledger took up meanwhile, by message id."""
    calls: CallLog = attrs.field(factory=CallLog)
    hands: Hands = attrs.field(factory=Hands)
    """Before and after make a difference; here it is."""
    out_of_time: bool = False
    error: BaseException | None = None
    result: Result | None = None
    left: str = ""
    """Actors that outlived the run."""

    def hit(self, *kinds: StrikeKind) -> bool:
        return any(kind in kinds for kind, _ in self.hits)

    @property
    def aborted(self) -> bool:
        return self.hit(*ABORTS, "loop", "recorder") or self.error is not None or self.out_of_time

    @property
    def faulty(self) -> bool:
        return any(exchange.fault is not None for exchange in self.exchanges)


def findings_of(plan: Plan, log: RunLog, session: Session, *, journal_lost: bool, compacted: bool) -> Iterator[str]:
    """Everything that doesn't hold after this run. ``compacted``: old messages have made room for a summary."""
    yield from _events(log, journal_lost)
    yield from (f"history at every event: {problem}" for problem in log.invalid)
    yield from _calls(log)
    yield from _time(plan, log)
    if log.left:
        yield f"nothing left: {log.left}"
    if log.calls.running:
        yield f"nothing left: {log.calls.running} calls still run"
    if log.result is not None:
        yield from _reason(plan, log, log.result)
        yield from _ledger(log, log.result)
    if not compacted:
        yield from _messages(log, session)
    if not journal_lost:
        yield from _replay(session)


def _events(log: RunLog, journal_lost: bool) -> Iterator[str]:
    ends = [number for number, event in enumerate(log.events) if isinstance(event, RunEnded)]
    if ends != [len(log.events) - 1]:
        yield f"one terminal event, the last: RunEnded at {ends} of {len(log.events)} events"
    if log.events and not isinstance(log.events[0], RunStarted):
        yield f"the first event is RunStarted: it is {type(log.events[0]).__name__}"
    numbers = [event.seq for event in log.events]
    if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        yield "events are numbered without gaps"
    for event in log.events:
        source = event.source if isinstance(event, Notice) and " failed: " in event.text else ""
        if source in ACTORS and not log.hit(*ACTORS[source]):
            yield f"an actor fails only when it is killed: {event}"
    if not journal_lost and log.read != log.events and len(log.events) < 4000:
        yield f"a subscriber gets every event: {len(log.read)} of {len(log.events)}"


def _calls(log: RunLog) -> Iterator[str]:
    void = {uuid for event in log.events if isinstance(event, MessageWithdrawn) for uuid in event.uuids}
    asked = Counter(
        event.block.id
        for event in log.events
        if isinstance(event, AssistantBlock) and isinstance(event.block, ToolUseBlock) and event.uuid not in void
    )
    ended = Counter(event.call_id for event in log.events if isinstance(event, ToolEnded))
    if asked != ended:
        missing, excess = sorted((asked - ended).elements()), sorted((ended - asked).elements())
        yield f"one result for each call: missing {missing}, in excess {excess}"
    told = Counter(event.call_id for event in log.events if isinstance(event, ToolStarted))
    for id, times in log.calls.started.items():
        if times != 1:
            yield f"no call is executed twice: {id} ran {times} times"
        if told[id] != 1:
            yield f"a call that runs is told of: {id} was told {told[id]} times"
        if not ended[id]:
            yield f"a call that started has a result: {id} has none"


def _time(plan: Plan, log: RunLog) -> Iterator[str]:
    if log.out_of_time:
        yield "virtual time is bounded: the run had to be stopped"
        return
    # A reader that is to leave its block notices at the next event, a loop that is to die at its next message.
    aborts = [at for kind, at in log.hits if kind in ("interrupt", "cancel", "recorder")]
    # A tool may hang until somebody breaks in or the time is up: then it is the abort alone that has a limit.
    ends = [at - log.began for at in aborts] + ([plan.max_seconds] if plan.max_seconds is not None else [])
    limit = min(ends) + GRACES if ends else _allowed(plan, log)
    if log.ended - log.began > limit:
        yield f"virtual time is bounded: {log.ended - log.began:g} s, where {limit:g} s were to be enough"


def _allowed(plan: Plan, log: RunLog) -> float:
    """The sum of all deadlines that this run has met."""
    requests = len(log.exchanges) + 1
    wait = LONG_WAIT if plan.unattended else WAIT
    hands = log.hands
    return (
        GRACES
        + (wait if plan.faults else 0.0)
        + sum(exchange.longest for exchange in log.exchanges)
        + requests * SILENCE
        + sum(1 for exchange in log.exchanges if not exchange.clean) * wait
        + requests * WAIT
        + log.calls.seconds * 2
        + sum(log.calls.started.values()) * CALL
        + hands.hooks * HOOK
        + hands.approvals * APPROVAL
        + (hands.compactions + (hands.prepared if plan.prepare == "hangs" else 0)) * CONTEXT
        + hands.prepared * 3.0
    )


def _reason(plan: Plan, log: RunLog, result: Result) -> Iterator[str]:
    reason = result.terminal_reason
    if not _excused(plan, log, result):
        yield f"the reason fits the plan: {reason.value} ({'; '.join(result.errors)[:200]})"
    if reason is TerminalReason.COMPLETED and plan.schema and result.structured_output is None:
        yield "completed with a schema means there is an answer"
    if (reason is TerminalReason.COMPLETED) is not result.is_success and reason not in OTHER_SUCCESSES:
        yield f"completed means success: {reason.value} is {result.subtype}, {result.errors}"


def _excused(plan: Plan, log: RunLog, result: Result) -> bool:
    """Whether anything in the plan can have led to this reason."""
    statuses = {exchange.status for exchange in log.exchanges if not exchange.clean}
    elapsed = log.ended - log.began
    match result.terminal_reason:
        case TerminalReason.COMPLETED:
            return True
        case TerminalReason.MAX_TURNS:
            return plan.max_turns is not None and result.num_turns == plan.max_turns
        case TerminalReason.ABORTED_STREAMING | TerminalReason.ABORTED_TOOLS:
            return log.aborted or log.hit("watchdog")
        case TerminalReason.STOP_HOOK_PREVENTED:
            return "prevents" in plan.hooks
        case TerminalReason.HOOK_STOPPED:
            return "stops" in plan.tool_hooks
        case TerminalReason.TOOL_DEFERRED:
            return "defers" in plan.tool_hooks
        case TerminalReason.BLOCKING_LIMIT:
            return plan.prepare == "exhausted"
        case TerminalReason.PROMPT_TOO_LONG | TerminalReason.IMAGE_ERROR:
            return bool(statuses & {400, 413})
        case TerminalReason.BUDGET_EXHAUSTED:
            timed = plan.max_seconds is not None and elapsed >= plan.max_seconds - ROUNDING
            return timed or plan.max_budget_usd is not None
        case TerminalReason.MALFORMED_TOOL_USE_EXHAUSTED:
            return log.number > 0 and sum(map(_is_broken, log.events)) > 3
        case TerminalReason.STRUCTURED_OUTPUT_RETRY_EXHAUSTED:
            return plan.schema
        case TerminalReason.TURN_SETUP_FAILED:
            return plan.prepare in ("fails", "hangs")
        case TerminalReason.MODEL_ERROR:
            circles = plan.max_repeats is not None and len(log.exchanges) > plan.max_repeats
            return log.hit(*DEATHS, "loop", "recorder") or log.faulty or circles
        case TerminalReason.API_ERROR:
            limits = any(turn.reason in ("max_tokens", "model_context_window_exceeded") for turn in plan.script)
            return log.faulty or (log.number > 0 and limits)
        case _:
            return False


def _is_broken(event: Event) -> bool:
    return (
        isinstance(event, AssistantBlock)
        and isinstance(event.block, ToolUseBlock)
        and event.block.invalid_json is not None
    )


def _ledger(log: RunLog, result: Result) -> Iterator[str]:
    total = sum(log.usage.values(), Usage())
    if attrs.evolve(total, reported=True) != attrs.evolve(result.usage, reported=True):
        yield f"the ledger is the sum of distinct responses: {result.usage} where they are {total}"
    if len(log.usage) != sum(model.requests for model in result.model_usage.values()):
        yield f"each response counts once: {len(log.usage)} ids, {result.model_usage}"
    if log.aborted or log.hit(*DEATHS) or (result.terminal_reason, result.subtype) == TIMED_OUT:
        return
    for exchange in log.exchanges:
        # What a compaction costs is told when it has succeeded.
        sent = exchange.message() if exchange.clean and exchange.whole and not exchange.side else None
        if sent is not None and log.usage.get(sent[0]) != sent[1]:
            booked = log.usage.get(sent[0])
            yield f"a response that came whole is booked: {sent[0]} has {sent[1]}, the ledger {booked}"


def _messages(log: RunLog, session: Session) -> Iterator[str]:
    texts = Counter(
        block.text
        for message in session.messages
        if isinstance(message, UserMessage)
        for block in message.content
        if isinstance(block, TextBlock)
    )
    for text in (log.prompt, *log.steered):
        if texts[text] != 1:
            yield f"an accepted message is in the history once: {text!r} is there {texts[text]} times"
    for text in log.tried:
        if text not in log.steered and texts[text]:
            yield f"a message that was not accepted is not in the history: {text!r}"


def _replay(session: Session) -> Iterator[str]:
    recorded = replay_file(session.journal)
    if recorded.bad_lines:
        yield f"the journal is readable: {recorded.bad_lines}"
    if recorded.started:
        yield f"a recorded start has a recorded result: {sorted(recorded.started)}"
    replayed, held = [_recordable(each) for each in recorded.messages], [_recordable(each) for each in session.messages]
    if replayed != held:
        at = next((n for n, (a, b) in enumerate(zip(replayed, held, strict=False)) if a != b), "the end")
        yield f"replay equals memory: {len(replayed)} and {len(held)} messages, they differ at {at}"


def _recordable(message: Message) -> Message:
    """A tool may hand out anything as details; the journal holds what JSON has a form for."""
    if not isinstance(message, UserMessage) or not message.details:
        return message
    return attrs.evolve(message, details=orjson.loads(json_line(message.details)))
