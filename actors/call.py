"""
The way of one tool call: look up, parse, check, permission, run, map, keep what is too long.

Everything that goes wrong on the way becomes an error result that the model can act on; only a
cancellation passes through. `CallPipeline.prepare` is the part that the executor needs before the call's turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import attrs
import trio

from atrio.runtime.errors import ToolError
from atrio.runtime.mailbox import Address
from atrio.runtime.messages import TextBlock, ToolResultBlock, ToolUseBlock
from atrio.runtime.preview import clip_error, preview, result_file_name
from atrio.runtime.records import ToolStartRecord
from atrio.runtime.result import Denial
from atrio.runtime.tool import Progress, ResultContent, Tool, ToolContext, ToolOutput
from atrio.tools.permissions import Behavior, Decision
from atrio.tools.registry import Toolbox

from .hooks import ToolCall, ToolDecision, ToolHook, ask_tool_hooks
from .protocol import CallDone, CallStarted, LoopInput
from .recorder import Append, write_and_wait

__all__ = ["CallPipeline", "CanUseTool", "Performed", "Prepared"]

APPROVAL_LIMIT = 300.0
"""Seconds that an approval may take; then the call is denied."""

CanUseTool = Callable[[str, Mapping[str, Any], ToolContext], Awaitable[bool | str]]
"""
Asks somebody about a call that no rule decides: True allows it, False or a text (the reason, for the model) denies.
"""


@attrs.frozen(kw_only=True)
class Prepared:
    """A call, looked up and parsed. ``error`` is set where that failed."""

    block: ToolUseBlock
    tool: Tool | None = None
    input: Any = None
    safe: bool = False
    error: str | None = None


@attrs.frozen(kw_only=True)
class Performed:
    done: CallDone
    cancel_siblings: bool = False


@attrs.define(eq=False, kw_only=True)
class CallPipeline:
    """
    Performs calls for one run.

    Args:
        decide: what the permission rules say.
        context: makes a call's context from its id and its progress function.
        durable_starts: a call that may have effects runs only when its start is on disk.
    """

    toolbox: Toolbox
    decide: Callable[[Tool, Any, ToolContext], Decision]
    can_use_tool: CanUseTool | None
    context: Callable[[str, Progress], ToolContext]
    recorder: Address[Append]
    loop: Address[LoopInput]
    start_record: Callable[[ToolUseBlock, Tool], ToolStartRecord]
    hooks: Sequence[ToolHook] = ()

    def prepare(self, block: ToolUseBlock) -> Prepared:
        """Look up and parse. Never raises for what a model can write."""
        if block.invalid_json is not None:
            error = (
                f"The input of this {block.name} call is not a JSON object, so it was not run. "
                f"You wrote: {block.invalid_json[:1000]}"
            )
            return Prepared(block=block, error=error)
        try:
            tool = self.toolbox.find(block.name)
            input = tool.parse(block.input)
        except ToolError as error:
            return Prepared(block=block, error=error.message_for_model)
        except Exception as error:
            return Prepared(block=block, error=_defect(block.name, error))
        return Prepared(block=block, tool=tool, input=input, safe=_is_safe(tool, input))

    async def perform(self, call: Prepared, progress: Progress) -> Performed:
        """
        The call's one result. Cancelled: the tool has cleaned up after itself, there is no result.
        """
        started = trio.current_time()
        block, tool = call.block, call.tool
        if tool is None or call.error is not None:
            return Performed(done=_failed(block, call.error or "", started))
        ctx = self.context(block.id, progress)
        output = ToolOutput("")
        said = ToolDecision()
        try:
            await tool.check(call.input, ctx)
            call, said = await self._ask_hooks_before(call, tool, ctx, progress)
            if said.deny is None and said.defer:
                return Performed(done=_deferred(call.block, said, started))
            denial = await self._refuse(tool, call, ctx, said)
            if denial is not None:
                return Performed(done=attrs.evolve(_denied(call.block, denial, started), stop_loop=said.stop))
            await self._record_start(tool, call.block)
            output = await _run(tool, call.input, ctx)
            result = attrs.evolve(await self._fit(tool, call.block, output, ctx), is_error=output.is_error)
        except ToolError as error:
            result = _failed(block, error.message_for_model, started).result
        except Exception as error:
            result = _failed(block, _defect(tool.name, error), started).result
        result, stop = await self._ask_hooks_after(call, ctx, result, progress)
        done = CallDone(
            call_id=block.id,
            result=result,
            details=output.details,
            duration=trio.current_time() - started,
            stop_loop=said.stop or stop,
        )
        return Performed(done=done, cancel_siblings=output.cancel_siblings)

    async def _ask_hooks_before(
        self, call: Prepared, tool: Tool, ctx: ToolContext, progress: Progress
    ) -> tuple[Prepared, ToolDecision]:
        """What the hooks say, and the call as they want it."""
        if not self.hooks:
            return call, ToolDecision()
        shown = _shown(call, ctx)
        said, problems = await ask_tool_hooks(self.hooks, lambda hook: hook.before(shown))
        for problem in problems:
            progress(problem)
        if said.input is not None:
            block = attrs.evolve(call.block, input=said.input)
            call = attrs.evolve(call, block=block, input=tool.parse(said.input))
            await tool.check(call.input, ctx)
        return call, said

    async def _ask_hooks_after(
        self, call: Prepared, ctx: ToolContext, result: ToolResultBlock, progress: Progress
    ) -> tuple[ToolResultBlock, str | None]:
        """The result as the hooks want it, and why the run shall end after it."""
        if not self.hooks:
            return result, None
        shown = _shown(call, ctx)
        said, problems = await ask_tool_hooks(self.hooks, lambda hook: hook.after(shown, result))
        for problem in problems:
            progress(problem)
        if said.output is not None:
            result = attrs.evolve(result, content=_clean(said.output))
        if said.feedback is not None:
            result = attrs.evolve(result, content=_with_feedback(result.content, said.feedback))
        return result, said.stop

    async def _refuse(self, tool: Tool, call: Prepared, ctx: ToolContext, said: ToolDecision) -> Denial | None:
        decision = self.decide(tool, call.input, ctx)
        reason: str | None = decision.reason
        if said.deny is not None:
            decision, reason = Decision(Behavior.DENY, said.deny), said.deny
        if decision.behavior is Behavior.ALLOW or (decision.behavior is Behavior.ASK and said.allow):
            return None
        if decision.behavior is Behavior.ASK:
            reason = await self._ask(tool, call, ctx)
            if reason is None:
                return None
        return Denial(
            tool_name=tool.name,
            tool_use_id=call.block.id,
            tool_input=call.block.input,
            reason=reason or "denied",
        )

    async def _ask(self, tool: Tool, call: Prepared, ctx: ToolContext) -> str | None:
        """Why the call may not run; None: it may. Fails closed: no answer, no call."""
        if self.can_use_tool is None:
            return "no rule allows this call and nobody is there to approve it"
        answer: bool | str | None = None
        with trio.move_on_after(APPROVAL_LIMIT):
            try:
                answer = await self.can_use_tool(tool.name, call.block.input, ctx)
            except Exception as error:
                return f"the approval failed: {type(error).__name__}: {error}"
        if answer is True:
            return None
        if answer is None:
            return f"no approval came within {APPROVAL_LIMIT:g} s"
        return answer if isinstance(answer, str) and answer else "the user denied this call"

    async def _record_start(self, tool: Tool, block: ToolUseBlock) -> None:
        durable = not (tool.read_only or tool.idempotent)
        await write_and_wait(self.recorder, (self.start_record(block, tool),), sync=durable)
        await self.loop.send(CallStarted(block))

    async def _fit(self, tool: Tool, block: ToolUseBlock, output: ToolOutput, ctx: ToolContext) -> ToolResultBlock:
        """The output as a result block; a text over the tool's limit goes to a file and a preview takes its place."""
        content = output.content
        if isinstance(content, tuple):
            texts = [part for part in content if isinstance(part, TextBlock)]
            if len(texts) != len(content):
                return ToolResultBlock(block.id, content)
            content = "\n".join(part.text for part in texts)
        text = _clean(content)
        if not text.strip():
            text = (
                f"({tool.name} completed with no output)" if not output.is_error else f"({tool.name} failed, no output)"
            )
        if tool.max_result_chars is not None and len(text) > tool.max_result_chars:
            path = trio.Path(ctx.results_dir) / result_file_name(block.id)
            await path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            await path.write_text(text, encoding="utf-8")
            text = preview(text, path=str(path))
        return ToolResultBlock(block.id, text)


async def _run(tool: Tool, input: Any, ctx: ToolContext) -> ToolOutput:
    try:
        output: object = await tool.run(input, ctx)
    except BaseExceptionGroup as group:
        # A nursery inside a tool wraps what it raises; a cancellation in it must go on as one.
        cancelled, rest = group.split(trio.Cancelled)
        if cancelled is not None:
            raise cancelled from rest
        if len(group.exceptions) == 1 and isinstance(group.exceptions[0], ToolError):
            raise group.exceptions[0] from group
        raise
    if not isinstance(output, ToolOutput):
        raise TypeError(f"its run method returned {type(output).__name__}, not ToolOutput")
    return output


def _is_safe(tool: Tool, input: Any) -> bool:
    try:
        return bool(tool.concurrency_safe(input))
    except Exception:
        return False


def _defect(name: str, error: Exception) -> str:
    text = str(error)
    return f"{name} failed unexpectedly: {type(error).__name__}" + (f": {text}" if text else "")


def _clean(text: str) -> str:
    """Half surrogate pairs can't be sent, stored or printed."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def _failed(block: ToolUseBlock, text: str, started: float) -> CallDone:
    return CallDone(
        call_id=block.id,
        result=ToolResultBlock(block.id, clip_error(_clean(text)) or "The call failed.", is_error=True),
        duration=trio.current_time() - started,
    )


def _denied(block: ToolUseBlock, denial: Denial, started: float) -> CallDone:
    text = f"Permission to use {denial.tool_name} was denied: {denial.reason}. Don't try to get around this."
    return attrs.evolve(_failed(block, text, started), denial=denial)


def _with_feedback(content: ResultContent, feedback: str) -> ResultContent:
    text = f"[A check after this call says: {_clean(feedback)}]"
    return f"{content}\n\n{text}" if isinstance(content, str) else (*content, TextBlock(text))


def _deferred(block: ToolUseBlock, said: ToolDecision, started: float) -> CallDone:
    text = "The call was put off: it did not run, and its outcome will be told later."
    call = Denial(tool_name=block.name, tool_use_id=block.id, tool_input=block.input, reason="put off by a hook")
    return attrs.evolve(_failed(block, text, started), deferred=call, stop_loop=said.stop)


def _shown(call: Prepared, ctx: ToolContext) -> ToolCall:
    block = call.block
    return ToolCall(session_id=ctx.session_id, run_id=ctx.run_id, call_id=block.id, name=block.name, input=block.input)
