"""
The executor: tool calls start while the model still streams, and their results come back in call order.

A reader/writer rule decides what may run together (`atrio.runtime.admission`); progress is reported at once.
A failing call that says so cancels its siblings. Whatever ends the executor, every call that it has taken
is answered: with its result, or with a synthetic error.
"""

from __future__ import annotations

import attrs
import trio

from atrio.runtime import notes
from atrio.runtime.actor import Status
from atrio.runtime.admission import CallState, admit
from atrio.runtime.errors import PeerGone
from atrio.runtime.mailbox import Address, Inbox
from atrio.runtime.messages import ToolResultBlock
from atrio.runtime.tool import Progress

from .call import CallPipeline, Prepared
from .protocol import CallDone, CallReported, LoopInput, RunCall

__all__ = ["Executor"]


@attrs.define(eq=False)
class _Entry:
    """One call on its way. ``scope`` is shielded for a tool that may finish in peace when all is aborted."""

    call: Prepared
    scope: trio.CancelScope
    state: CallState = CallState.QUEUED
    done: CallDone | None = None
    stopped_by: str | None = None
    started: float = 0.0

    @property
    def blocks(self) -> bool:
        return self.call.tool is not None and self.call.tool.interrupt == "block"

    def stop(self, reason: str) -> None:
        """Cancel it now, or when its grace is over if it may finish in peace."""
        if self.blocks and self.call.tool is not None:
            self.scope.deadline = min(self.scope.deadline, trio.current_time() + self.call.tool.grace)
        else:
            self.scope.cancel(reason=reason)


class Executor:
    """The actor. It answers each `RunCall` with exactly one `CallDone`."""

    name = "executor"

    def __init__(
        self,
        *,
        inbox: Inbox[RunCall],
        loop: Address[LoopInput],
        pipeline: CallPipeline,
        limit: int,
    ) -> None:
        self._inbox = inbox
        self._loop = loop
        self._pipeline = pipeline
        self._limit = limit
        self._entries: list[_Entry] = []
        self._aborted = False
        self.status = Status()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """
        Run calls until cancelled. Cancelled: ``cancel`` tools are cancelled, ``block`` tools get their grace,
        then every open call is answered.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._let_blocking_tools_finish)
                task_status.started()
                async for request in self._inbox:
                    self._queue(request, nursery)
        finally:
            self._answer_all()

    def _queue(self, request: RunCall, nursery: trio.Nursery) -> None:
        call = self._pipeline.prepare(request.block)
        blocks = call.tool is not None and call.tool.interrupt == "block"
        self._entries.append(_Entry(call=call, scope=trio.CancelScope(shield=blocks)))
        self._admit(nursery)

    def _admit(self, nursery: trio.Nursery) -> None:
        if self._aborted:
            # A call that is shielded from the abort would begin all the same, and nobody would ever stop it.
            return
        for position in admit(((entry.state, entry.call.safe) for entry in self._entries), limit=self._limit):
            entry = self._entries[position]
            entry.state = CallState.EXECUTING
            nursery.start_soon(self._perform, entry, nursery)

    async def _perform(self, entry: _Entry, nursery: trio.Nursery) -> None:
        entry.started = trio.current_time()
        cancel_siblings = False
        try:
            with entry.scope, self.status.waiting(f"{entry.call.block.name} ({entry.call.block.id})"):
                performed = await self._pipeline.perform(entry.call, self._reporter(entry))
                entry.done = performed.done
                cancel_siblings = performed.cancel_siblings
        finally:
            self._complete(entry)
        if cancel_siblings:
            self._cancel_siblings(entry)
        self._admit(nursery)

    def _reporter(self, entry: _Entry) -> Progress:
        block = entry.call.block

        def progress(text: str, data: object = None) -> None:
            elapsed = trio.current_time() - entry.started
            self._loop.offer(CallReported(call_id=block.id, name=block.name, text=text, data=data, elapsed=elapsed))

        return progress

    def _complete(self, entry: _Entry) -> None:
        if entry.done is None:
            entry.done = _synthetic(entry, entry.stopped_by or notes.INTERRUPTED_CALL)
        entry.state = CallState.COMPLETED
        self._hand_on()

    def _hand_on(self) -> None:
        """Answer from the head of the queue as far as it is complete: results come in call order."""
        while self._entries and self._entries[0].state is CallState.COMPLETED:
            entry = self._entries.pop(0)
            entry.state = CallState.YIELDED
            assert entry.done is not None
            try:
                self._loop.reply(entry.done)
            except PeerGone:
                # The loop has ended before its executor: it has answered its open calls itself.
                continue

    def _cancel_siblings(self, failed: _Entry) -> None:
        text = notes.sibling_failed(failed.call.block.name)
        for entry in self._entries:
            if entry is failed or entry.done is not None:
                continue
            entry.stopped_by = text
            if entry.state is CallState.QUEUED:
                self._complete_later(entry)
            else:
                entry.stop("a sibling call failed")
        self._hand_on()

    def _complete_later(self, entry: _Entry) -> None:
        entry.done = _synthetic(entry, entry.stopped_by or notes.INTERRUPTED_CALL)
        entry.state = CallState.COMPLETED

    async def _let_blocking_tools_finish(self) -> None:
        """Shielded scopes don't notice an abort: when it comes, their time begins to run."""
        try:
            await trio.sleep_forever()
        finally:
            self._aborted = True
            for entry in self._entries:
                if entry.blocks and entry.state is CallState.EXECUTING:
                    entry.stop("the run was aborted")

    def _answer_all(self) -> None:
        for entry in self._entries:
            if entry.state in (CallState.QUEUED, CallState.EXECUTING):
                self._complete_later(entry)
        self._hand_on()


def _synthetic(entry: _Entry, text: str) -> CallDone:
    block = entry.call.block
    duration = trio.current_time() - entry.started if entry.started else 0.0
    return CallDone(call_id=block.id, result=ToolResultBlock(block.id, text, is_error=True), duration=duration)
