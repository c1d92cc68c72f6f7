"""
What a session knows of its context: how full it is, what was decided about it, and how room is made.

Decisions are pure (`atrio.runtime.context`); here they meet what they need: the clock, files, and a model that
writes summaries. The session owns the keeper, the compactor actor of each run works with it, one job at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

import attrs
import trio

from atrio.runtime.context.autocompact import CompactHistory, Verdict, autocompact, is_blocked
from atrio.runtime.context.collapse import next_range
from atrio.runtime.context.pins import pinned_tokens
from atrio.runtime.context.pipeline import Projection, project
from atrio.runtime.context.plan import Collapse, ContextPlan
from atrio.runtime.context.rebuild import NewHistory, after_boundary, new_history
from atrio.runtime.context.restore import RestoredFile, RestoredSkill
from atrio.runtime.context.step import ContextLimits, Moment, Persist
from atrio.runtime.context.summary import (
    MAX_SHORTENINGS,
    Summary,
    SummaryRejected,
    SummaryRequest,
    read_summary,
    shortened,
    strip_media,
    summary_request,
)
from atrio.runtime.errors import ContextExhausted, ToolRejected
from atrio.runtime.history import wire_messages
from atrio.runtime.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextBlock,
    Usage,
    UserMessage,
    text_of,
)
from atrio.runtime.model import FailureKind, ModelFailure, ModelRequest
from atrio.runtime.prices import Catalogue
from atrio.runtime.rerecord import renamed
from atrio.runtime.tokens import Calibration, Estimates
from atrio.runtime.tool import FileState
from atrio.runtime.window import WindowLevels, choose_window, levels_of
from atrio.tools.files import in_thread

from .agent import Agent
from .attach import Attacher
from .context.prefetch import Prefetch
from .context.project import ProjectContext
from .context.skills import load_skill
from .dependencies import Dependencies, Prepared
from .protocol import MakeRoom, PrepareContext
from .requests import RequestBuilder
from .session_hooks import SessionHooks
from .side_call import SideCall

__all__ = ["Keeper"]

COMPACT_LIMIT = 600.0
"""Seconds that a compaction may take, all requests together; then it has failed."""

RESTORED_FILE_BYTES = 512 * 1024
"""A larger file is not read again after a compaction; the model can ask for it."""

TOO_LONG = frozenset((FailureKind.PROMPT_TOO_LONG, FailureKind.CONTEXT_OVERFLOW, FailureKind.REQUEST_TOO_LARGE))

COLLAPSE_INSTRUCTION = "This is one part of a longer session, not its end: summarise just what happens in it."

Trigger = Literal["auto", "manual", "reactive"]


@attrs.frozen
class _Asking:
    """The model to ask, and where to note what it cost (message id, model, usage)."""

    side: SideCall
    usage: list[tuple[str, str, Usage]]


@attrs.define(eq=False, kw_only=True)
class Keeper:
    """
    One session's context.

    Args:
        files: the session's record of files, oldest first; the newest are read again after a compaction.
        attacher: looks for what the model should be told beside the conversation; None: nothing.
    """

    agent: Agent
    requests: RequestBuilder
    deps: Dependencies
    catalogue: Catalogue
    limits: ContextLimits
    cwd: Path
    files: dict[Path, FileState]
    attacher: Attacher | None = None
    hooks: SessionHooks | None = None
    prefetch: Prefetch | None = None
    project: ProjectContext | None = None
    over_budget: Callable[[], str | None] | None = None
    """Why nothing may be spent any more in the tree of agents that this one is in."""
    plan: ContextPlan = attrs.field(factory=ContextPlan)
    compactions: CompactHistory = attrs.field(factory=CompactHistory)
    calibration: Calibration = attrs.field(factory=Calibration)
    _estimates: Estimates = attrs.field(factory=Estimates)
    _turns: int = 0
    """Requests of the whole session."""
    _told: frozenset[str] = frozenset()
    _noted: set[str] = attrs.field(factory=set)
    _sent: tuple[int, int] | None = None
    """The estimate of the last request, and how long the history was."""
    _asked_at: float | None = None
    """When the last request went out, which is when the provider's cache was last of use (Unix time)."""
    _greeted: bool = False
    _collapsing: bool = False
    _unbooked: list[tuple[str, str, Usage]] = attrs.field(factory=list)
    """What the background cost, to be booked with the next job."""

    @property
    def injected(self) -> bool:
        """The embedding program's functions take the place of ours."""
        return self.deps.prepare is not None or self.deps.autocompact is not None

    # --- jobs -------------------------------------------------------------------------------------

    async def prepare(self, job: PrepareContext, side: SideCall) -> Prepared:
        """
        The history and its view for the next request, compacted if it is time.

        Raises:
            ContextExhausted: no request can be made that fits.
        """
        if self.over_budget is not None and (problem := self.over_budget()) is not None:
            raise ContextExhausted("budget_exhausted", problem)
        if self.deps.prepare is not None:
            return await self.deps.prepare(job.messages)
        self._turns += 1
        self._learn(job)
        notices = [] if self._greeted else list(self.requests.notices)
        self._greeted = True
        levels = self._levels(job.model, job.max_tokens, notices)
        await self._ask_batch_hooks(job.messages)
        attached = (*self._said_by_hooks(), *await self._attach(job, notices))
        history = (*job.messages, *attached)
        projection = await self._project(history, job.model, levels)
        notices += projection.notes
        verdict = autocompact(
            projection.tokens,
            levels,
            self.compactions,
            turn=self._turns,
            fixed_tokens=self._fixed_tokens(history, job.model),
            settings=self.agent.context,
            collapsing=bool(self.plan.staged or self.plan.collapses),
        )
        if verdict.verdict is Verdict.RAPID_REFILL:
            raise ContextExhausted("rapid_refill_breaker", verdict.note or "the context is full again at once")
        if verdict.verdict is Verdict.COMPACT:
            made = await self._compact(
                history, projection, job.model, levels, "auto", (), _Asking(side, self._unbooked)
            )
            if isinstance(made, NewHistory):
                self.compactions = self.compactions.succeeded(self._turns)
                ready = await self._compacted(made, projection.tokens, "auto", job.model, levels)
                return attrs.evolve(ready, notices=(*notices, *ready.notices), side_usage=self.take_paid())
            self.compactions = self.compactions.failed()
            notices.append(f"the context could not be compacted: {made}")
        elif verdict.note is not None:
            self._note_once(verdict.note, notices)
        self._refuse_if_blocked(projection, levels, verdict.verdict)
        self._sent = (projection.estimated, len(job.messages))
        self._asked_at = self.deps.now().timestamp()
        if self.prefetch is not None:
            self.prefetch.begin_turn(_last_words(history))
        return Prepared(
            messages=job.messages,
            view=projection.messages,
            staged_collapses=len(self.plan.staged),
            attachments=attached,
            notices=tuple(notices),
            side_usage=self.take_paid(),
        )

    async def make_room(self, job: MakeRoom, side: SideCall) -> Prepared:
        """
        A history that takes less room, after the server refused the present one.

        Raises:
            ContextExhausted: no room can be made.
        """
        if self.deps.autocompact is not None:
            messages = await self.deps.autocompact(job.messages, job.level, job.failure)
            return Prepared(messages=messages, compacted=job.level)
        if job.level == "drain":
            self.plan = self.plan.drain()
            return Prepared(messages=job.messages)
        stripped = strip_media(job.messages)
        if job.failure.kind is FailureKind.MEDIA and any(
            a is not b for a, b in zip(stripped, job.messages, strict=True)
        ):
            return Prepared(messages=stripped, compacted="reactive")
        return await self.compact(stripped, job.model, "reactive", (), side)

    async def compact(
        self,
        messages: Sequence[Message],
        model: str,
        trigger: Trigger,
        instructions: Sequence[str],
        side: SideCall,
    ) -> Prepared:
        """
        The history with a summary in place of its older part.

        Raises:
            ContextExhausted: there is none; the text says why. The history stays as it is.
        """
        notices: list[str] = []
        levels = self._levels(model, 0, notices)
        projection = await self._project(messages, model, levels)
        asking = _Asking(side, self._unbooked)
        made = await self._compact(messages, projection, model, levels, trigger, instructions, asking)
        if not isinstance(made, NewHistory):
            self.compactions = self.compactions.failed()
            raise ContextExhausted("prompt_too_long", f"the context could not be compacted: {made}")
        self.compactions = self.compactions.succeeded(self._turns, manual=trigger == "manual")
        ready = await self._compacted(made, projection.tokens, trigger, model, levels)
        return attrs.evolve(ready, notices=(*notices, *ready.notices), side_usage=self.take_paid())

    def take_paid(self) -> tuple[tuple[str, str, Usage], ...]:
        """What answers beside the run cost since this was last asked, those of failed compactions too."""
        paid = tuple(self._unbooked)
        self._unbooked.clear()
        return paid

    def background(self, job: PrepareContext | MakeRoom, side: SideCall) -> Callable[[], Awaitable[None]] | None:
        """Work that may go on beside the run: a part of the history to be summarised before there is need."""
        if not self.agent.collapse or self.injected or self._collapsing:
            return None
        return lambda: self._stage_collapse(job.messages, job.model, side)

    def begin_anew(self) -> None:
        """The conversation was cleared: nothing that was decided about it holds any more."""
        self.plan = ContextPlan()
        self._sent = None
        if self.attacher is not None:
            self.attacher.forget()

    # --- steps ------------------------------------------------------------------------------------

    def _learn(self, job: PrepareContext) -> None:
        """What the server counted teaches how good the estimate was."""
        if self._sent is None:
            return
        estimated, length = self._sent
        self._sent = None
        for message in job.messages[length:]:
            if isinstance(message, AssistantMessage) and message.usage.reported:
                usage = message.usage
                reported = usage.context_tokens - usage.output_tokens
                self.calibration = self.calibration.observed(job.model, estimated=estimated, reported=reported)
                return

    def _levels(self, model: str, max_tokens: int, notices: list[str]) -> WindowLevels:
        info = self.catalogue.find(model)
        choice = choose_window(
            model,
            tokens=self.agent.context_window or (info.context_window if info else None),
            max_output_tokens=info.max_output_tokens if info else None,
            told=self._told,
        )
        self._told = choice.told
        if choice.note is not None:
            notices.append(choice.note)
        return levels_of(choice.window, self.agent.context, max_tokens=max_tokens)

    async def _ask_batch_hooks(self, messages: Sequence[Message]) -> None:
        stop = await self.hooks.batch(messages) if self.hooks is not None else None
        if stop is not None:
            raise ContextExhausted("hook_stopped", stop)

    def _said_by_hooks(self) -> tuple[UserMessage, ...]:
        texts = self.hooks.take_contexts() if self.hooks is not None else ()
        return tuple(
            UserMessage(
                uuid=self.deps.new_id(),
                content=(TextBlock(f"<system-reminder>\n{text}\n</system-reminder>"),),
                origin="hook",
                hidden=True,
            )
            for text in texts
        )

    async def _attach(self, job: PrepareContext, notices: list[str]) -> tuple[UserMessage, ...]:
        if self.attacher is None:
            return ()
        attached = await self.attacher.look(job.messages)
        notices += attached.warnings
        return attached.messages

    async def _project(self, history: Sequence[Message], model: str, levels: WindowLevels) -> Projection:
        projection = project(
            history,
            self.plan,
            limits=self.limits,
            levels=levels,
            estimates=self._estimates,
            overhead=self.requests.overhead,
            ratio=self.calibration.ratio(model),
            now=self.deps.now().timestamp(),
            last_response_at=self._asked_at,
        )
        for item in projection.persist:
            await in_thread(_write, item)
        self.plan = projection.plan
        return projection

    def _fixed_tokens(self, history: Sequence[Message], model: str) -> int:
        """What stays in the window whatever is done."""
        pinned = pinned_tokens(after_boundary(history), self._estimates)
        return round((self.requests.overhead + pinned) * self.calibration.ratio(model))

    def _refuse_if_blocked(self, projection: Projection, levels: WindowLevels, verdict: Verdict) -> None:
        reactive = self.agent.context.compact and verdict is not Verdict.BROKEN
        if is_blocked(projection.tokens, levels, verdict, room_can_be_made=bool(self.plan.staged) or reactive):
            raise ContextExhausted(
                "blocking_limit",
                f"the context holds about {projection.tokens:,} tokens, from {levels.blocking:,} on nothing is sent; "
                "compact the session, or choose a model with a larger window",
            )

    def _note_once(self, note: str, notices: list[str]) -> None:
        if note not in self._noted:
            self._noted.add(note)
            notices.append(note)

    # --- compaction -------------------------------------------------------------------------------

    async def _compact(
        self,
        history: Sequence[Message],
        projection: Projection,
        model: str,
        levels: WindowLevels,
        trigger: Trigger,
        instructions: Sequence[str],
        asking: _Asking,
    ) -> NewHistory | str:
        """The new history, or why there is none."""
        if self.hooks is not None:
            refused, wanted = await self.hooks.may_compact(trigger, instructions)
            if refused is not None:
                return f"a hook refused it: {refused}"
            instructions = (*instructions, *wanted)
        outcome: Summary | SummaryRejected | str = f"it took longer than {COMPACT_LIMIT:g} s"
        with trio.move_on_after(COMPACT_LIMIT):
            request = summary_request(
                projection.messages,
                run_id=self.deps.new_id(),
                max_tokens=levels.summary_tokens,
                instructions=instructions,
            )
            outcome = await self._summary(request, model, levels, asking)
        if isinstance(outcome, SummaryRejected):
            return outcome.message
        if isinstance(outcome, str):
            return outcome
        made = new_history(
            after_boundary(history),
            outcome,
            boundary_uuid=self.deps.new_id(),
            trigger=trigger,
            pre_tokens=projection.tokens,
            plan=self.plan,
            shown=projection.messages,
            limits=self.limits,
            levels=levels,
            estimates=self._estimates,
            fixed_tokens=self.requests.overhead,
            ratio=self.calibration.ratio(model),
            files=await self._recent_files(),
            skills=await self._used_skills(history),
        )
        if isinstance(made, SummaryRejected):
            return made.message
        if self.hooks is not None:
            await self.hooks.compacted(trigger, outcome.text)
        messages = renamed(made.messages, seed=self.deps.new_id())
        plan = attrs.evolve(made.plan, budgeted_through=messages[-1].uuid)
        return attrs.evolve(made, messages=messages, plan=plan)

    async def _summary(
        self, request: SummaryRequest, model: str, levels: WindowLevels, asking: _Asking
    ) -> Summary | SummaryRejected | str:
        for _ in range(MAX_SHORTENINGS + 1):
            answer = await asking.side.ask(
                ModelRequest(
                    model=model,
                    messages=wire_messages(request.messages, model=model),
                    system=(request.system,),
                    # The API takes no calls in a conversation without the tools that they are of.
                    tools=self.requests.toolbox.definitions(),
                    max_tokens=request.max_tokens,
                )
            )
            if not isinstance(answer, ModelFailure):
                asking.usage.append((answer.message_id or self.deps.new_id(), answer.model or model, answer.usage))
                return read_summary(answer.content, answer.stop_reason, max_tokens=levels.summary_tokens)
            if answer.kind not in TOO_LONG:
                return f"the model gave no summary: {answer.message}"
            gap = None
            if answer.input_tokens is not None and answer.window is not None:
                gap = answer.input_tokens - answer.window
            shorter = shortened(request, too_many_tokens=gap, estimates=self._estimates)
            if shorter is None:
                break
            request = shorter
        return "even a part of the conversation is too long to be summarised in one request"

    async def _compacted(
        self, made: NewHistory, pre_tokens: int, trigger: Trigger, model: str, levels: WindowLevels
    ) -> Prepared:
        self.plan = made.plan
        self._sent = None
        if self.attacher is not None:
            self.attacher.forget()
        projection = await self._project(made.messages, model, levels)
        return Prepared(
            messages=made.messages,
            view=projection.messages,
            compacted=trigger,
            pre_tokens=pre_tokens,
            post_tokens=made.tokens,
        )

    async def _recent_files(self) -> list[RestoredFile]:
        newest = list(reversed(self.files))[:10]
        return await in_thread(_read_again, newest) if newest else []

    async def _used_skills(self, messages: Sequence[Message]) -> list[RestoredSkill]:
        """The skills that were loaded, newest first, as they are now."""
        if self.project is None:
            return []
        names = [
            str(call.input.get("name") or call.input.get("skill") or "")
            for message in reversed(messages)
            if isinstance(message, AssistantMessage)
            for call in reversed(message.tool_uses)
            if call.name == "Skill"
        ]
        found: list[RestoredSkill] = []
        for name in dict.fromkeys(names):
            skill = self.project.skill(name)
            if skill is None:
                continue
            try:
                loaded = await load_skill(skill)
            except ToolRejected:
                # Gone since: there is nothing to restore.
                continue
            found.append(RestoredSkill(name=skill.name, text=loaded.text))
        return found

    # --- collapsing, in the background --------------------------------------------------------------

    async def _stage_collapse(self, messages: Sequence[Message], model: str, side: SideCall) -> None:
        """Summarise the oldest part of the history, to be put in its place when there is need. It may fail freely."""
        levels = self._levels(model, 0, [])
        shown = after_boundary(messages)
        found = next_range(shown, self.plan, self.limits, moment=Moment(levels=levels), estimates=self._estimates)
        if found is None or self._collapsing:
            return
        self._collapsing = True
        try:
            uuids = [message.uuid for message in shown]
            part = shown[uuids.index(found[0]) : uuids.index(found[1]) + 1]
            request = summary_request(
                part,
                run_id=self.deps.new_id(),
                max_tokens=levels.summary_tokens,
                instructions=(COLLAPSE_INSTRUCTION,),
            )
            outcome = await self._summary(request, model, levels, _Asking(side, self._unbooked))
            if isinstance(outcome, Summary):
                self.plan = self.plan.stage(Collapse(first_uuid=found[0], last_uuid=found[1], summary=outcome.text))
        finally:
            self._collapsing = False


def _last_words(messages: Sequence[Message]) -> str:
    """What was said last, by anybody."""
    for message in reversed(messages):
        if not isinstance(message, SystemMessage) and (text := text_of(message.content)):
            return text
    return ""


def _write(item: Persist) -> None:
    path = Path(item.path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(item.text, encoding="utf-8", errors="replace")
    path.chmod(0o600)


def _read_again(paths: Sequence[Path]) -> list[RestoredFile]:
    found: list[RestoredFile] = []
    for path in paths:
        try:
            if path.is_file() and path.stat().st_size <= RESTORED_FILE_BYTES:
                text = path.read_text(encoding="utf-8")
                found.append(RestoredFile(path=str(path), text=text))
        except (OSError, UnicodeDecodeError):
            # Gone or no text any more: nothing to restore.
            continue
    return found
