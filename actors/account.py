"""A run's account: what it used, how long it took, what was denied; the result record is made from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import trio

from atrio.runtime.ledger import Ledger
from atrio.runtime.messages import AssistantMessage, Message, TextBlock, ToolResultBlock, Usage, UserMessage
from atrio.runtime.model import ModelFailure
from atrio.runtime.records import Record, SystemRecord
from atrio.runtime.rerecord import BOUNDARY, USAGE_TOTALS
from atrio.runtime.result import Denial, Result, ResultSubtype, TerminalReason
from atrio.runtime.state import STRUCTURED_OUTPUT, derive_id

__all__ = ["Account", "with_totals"]

_SUBTYPES: dict[TerminalReason, ResultSubtype] = {
    TerminalReason.COMPLETED: "success",
    TerminalReason.STOP_HOOK_PREVENTED: "success",
    TerminalReason.HOOK_STOPPED: "success",
    TerminalReason.TOOL_DEFERRED: "success",
    TerminalReason.MAX_TURNS: "error_max_turns",
    TerminalReason.BUDGET_EXHAUSTED: "error_max_budget_usd",
    TerminalReason.STRUCTURED_OUTPUT_RETRY_EXHAUSTED: "error_max_structured_output_retries",
}


@attrs.define(eq=False, kw_only=True)
class Account:
    """Kept by the loop of one run."""

    session_id: str
    run_id: str
    ledger: Ledger
    """This run's, with all that subagents use."""
    session_ledger: Ledger
    denials: list[Denial] = attrs.field(factory=list)
    deferred: list[Denial] = attrs.field(factory=list)
    started: float = attrs.field(factory=trio.current_time)
    _own: Ledger = attrs.field(init=False)
    """What this agent itself used."""
    _api_time: float = 0.0
    _request_started: float | None = None
    _first_token: float | None = None

    @_own.default
    def _begin_own(self) -> Ledger:
        return Ledger(self.ledger.catalogue)

    def request_started(self) -> None:
        self._request_started = trio.current_time()

    def token_came(self) -> None:
        if self._first_token is None:
            self._first_token = trio.current_time() - self.started

    def request_ended(self) -> None:
        if self._request_started is not None:
            self._api_time += trio.current_time() - self._request_started
            self._request_started = None

    def response(self, message_id: str, model: str, usage: Usage) -> float | None:
        """Book one response; its cost in USD, or None if the price is unknown."""
        self.session_ledger.record(message_id, model, usage)
        self._own.record(message_id, model, usage)
        return self.ledger.record(message_id, model, usage)

    def last_text(self, messages: tuple[Message, ...]) -> str:
        """The last text of the last response."""
        return _last_text(next((m for m in reversed(messages) if isinstance(m, AssistantMessage)), None))

    def result(
        self,
        reason: TerminalReason,
        *,
        messages: tuple[Message, ...],
        turns: int,
        errors: tuple[str, ...],
        failure: ModelFailure | None,
        subtype: ResultSubtype | None = None,
    ) -> Result:
        """The run's one result record."""
        self.request_ended()
        subtype = subtype or _SUBTYPES.get(reason, "error_during_execution")
        last = next((m for m in reversed(messages) if isinstance(m, AssistantMessage)), None)
        return Result(
            subtype=subtype,
            terminal_reason=reason,
            session_id=self.session_id,
            run_id=self.run_id,
            text=_last_text(last),
            num_turns=turns,
            duration=trio.current_time() - self.started,
            duration_api=self._api_time,
            time_to_first_token=self._first_token,
            stop_reason=last.stop_reason if last is not None else None,
            usage=self._own.usage,
            model_usage=self.ledger.by_model,
            cost_usd=self.ledger.cost_usd,
            permission_denials=tuple(self.denials),
            deferred=tuple(self.deferred),
            errors=errors,
            structured_output=_structured_output(messages) if subtype == "success" else None,
            api_error_status=failure.status if failure is not None else None,
            error_kind=failure.kind.value if failure is not None else None,
        )


def with_totals(records: Sequence[Record], ledger: Ledger) -> Sequence[Record]:
    """
    The records, with what the session has used until now behind them if they are a compaction's: who resumes reads
    nothing that lies before it.
    """
    first = records[0] if records else None
    last = records[-1] if records else None
    if not isinstance(first, SystemRecord) or first.subtype != BOUNDARY:
        return records
    if isinstance(last, SystemRecord) and last.subtype == USAGE_TOTALS:
        return records
    uuid = derive_id(first.uuid, USAGE_TOTALS)
    return (*records, SystemRecord(uuid=uuid, subtype=USAGE_TOTALS, data=ledger.totals()))


def _structured_output(messages: tuple[Message, ...]) -> Any:
    """The input of the last answering call, as its tool took it."""
    for message in reversed(messages):
        if isinstance(message, UserMessage) and message.origin == "tool_results":
            ids = [block.tool_use_id for block in message.content if isinstance(block, ToolResultBlock)]
            answers = [message.details[id] for id in ids if id in message.details and id in _answer_ids(messages)]
            return answers[-1] if answers else None
    return None


def _answer_ids(messages: tuple[Message, ...]) -> set[str]:
    calls = (call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_uses)
    return {call.id for call in calls if call.name == STRUCTURED_OUTPUT}


def _last_text(message: AssistantMessage | None) -> str:
    if message is None:
        return ""
    return next((block.text for block in reversed(message.content) if isinstance(block, TextBlock)), "")
