"""
A session's hooks from settings files, at the places where they are asked: the session, its prompts, calls, compactions.

What hooks have to say to the model joins the conversation before the next request; what they have to say to a person
is a notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import trio

from atrio.runtime.errors import PromptBlocked
from atrio.runtime.events import Event, Notice
from atrio.runtime.messages import AssistantMessage, Message, ToolResultBlock, UserMessage
from atrio.runtime.result import Result
from atrio.runtime.settings import Settings

from .call import CanUseTool
from .hooking.bridge import EngineApproval, EngineStopHook, EngineToolHook, Subagent, text_of
from .hooking.command import Confine
from .hooking.config import parse_hooks
from .hooking.engine import HookEngine
from .hooking.payloads import (
    HookEvent,
    HookName,
    HookSession,
    post_compact,
    post_tool_batch,
    pre_compact,
    session_end,
    session_start,
    stop_failure,
    subagent_start,
    user_prompt_submit,
)
from .hooking.verdicts import HookOutcome
from .hooks import StopHook, ToolHook

__all__ = ["SessionHooks"]

END_LIMIT = 1.5
"""Seconds that hooks get when a session ends."""

_TOOL_EVENTS = (HookName.PRE_TOOL_USE, HookName.POST_TOOL_USE, HookName.POST_TOOL_USE_FAILURE)


@attrs.define(eq=False, kw_only=True)
class SessionHooks:
    """One session's hooks. ``publish`` takes notices for people; `take_contexts` gives what the model is to hear."""

    engine: HookEngine
    publish: Callable[[Event], None]
    subagent: Subagent | None = None
    """Whose session this is, where it isn't the main agent's."""
    _contexts: list[str] = attrs.field(factory=list)
    _stop: str | None = None

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        *,
        session: HookSession,
        cwd: Path,
        environ: Mapping[str, str],
        results_dir: Path,
        publish: Callable[[Event], None],
        confine: Confine | None = None,
    ) -> SessionHooks | None:
        """
        The hooks that settings files set; None if there are none.

        Raises:
            ConfigError: a hook is set wrongly.
        """
        config = parse_hooks(settings.hooks, settings.hook_files)
        if not any(config.has(name) for name in HookName) and not config.warnings:
            return None
        engine = HookEngine(
            config=config, session=session, cwd=cwd, environ=environ, results_dir=results_dir, confine=confine
        )
        hooks = cls(engine=engine, publish=publish)
        engine.on_late = hooks.hear
        return hooks

    @classmethod
    def of_subagent(
        cls, parent: SessionHooks, who: Subagent, session: HookSession, *, publish: Callable[[Event], None]
    ) -> SessionHooks:
        """The same hooks for a subagent's session."""
        engine = attrs.evolve(parent.engine, session=session)
        hooks = cls(engine=engine, publish=publish, subagent=who)
        engine.on_late = hooks.hear
        return hooks

    # --- as hooks of the agent ----------------------------------------------------------------------

    def tool_hooks(self) -> Sequence[ToolHook]:
        if not any(self.engine.has(name) for name in _TOOL_EVENTS):
            return ()
        return (EngineToolHook(self.engine, tell=self._tell),)

    def stop_hooks(self) -> Sequence[StopHook]:
        name = HookName.STOP if self.subagent is None else HookName.SUBAGENT_STOP
        if not self.engine.has(name):
            return ()
        return (EngineStopHook(self.engine, tell=self._tell_people, subagent=self.subagent),)

    def approval(self, otherwise: CanUseTool | None) -> CanUseTool | None:
        if not self.engine.has(HookName.PERMISSION_REQUEST):
            return otherwise
        return EngineApproval(self.engine, otherwise=otherwise, tell=self._tell)

    # --- the session ----------------------------------------------------------------------------------

    async def start(self, source: str, model: str, background: trio.Nursery) -> None:
        """The session begins. Cancelled: the hooks' processes are gone."""
        self.engine.background = background
        if self.subagent is not None:
            await self._fire(subagent_start(self.subagent.agent_id, self.subagent.agent_type))
            return
        for warning in self.engine.config.warnings:
            self.publish(Notice(level="warning", source="hooks", text=warning))
        await self._fire(session_start(source, model=model))

    async def end(self) -> None:
        """The session ends; hooks get a short time. Shielded, so that it may be called while cancelled."""
        if self.subagent is None and self.engine.has(HookName.SESSION_END):
            with trio.move_on_after(END_LIMIT + 1, shield=True):
                outcome = await self.engine.fire(session_end("other"), limit=END_LIMIT)
                self.hear(outcome)

    async def prompt(self, text: str) -> None:
        """
        A prompt is about to be taken.

        Raises:
            PromptBlocked: a hook refuses it.
        """
        if self.subagent is not None:
            return  # what an agent says to another is no prompt of a user
        outcome = await self._fire(user_prompt_submit(text))
        reason = outcome.stop or outcome.block
        if reason is not None:
            raise PromptBlocked(f"a hook refused the prompt: {reason}")

    async def failed(self, result: Result) -> None:
        """A run ended since the model couldn't be asked."""
        if result.error_kind is not None:
            details = "; ".join(result.errors)
            await self._fire(stop_failure(result.error_kind, details=details, last_message=result.text))

    # --- within a run -----------------------------------------------------------------------------------

    async def batch(self, messages: Sequence[Message]) -> str | None:
        """All calls of a response have their results; why the run shall end here, if a hook wants that."""
        if not self.engine.has(HookName.POST_TOOL_BATCH):
            return None
        calls = _last_batch(messages)
        return (await self._fire(post_tool_batch(calls))).stop if calls else None

    async def may_compact(self, trigger: str, instructions: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
        """Why no summary may be made now, if a hook says so; and what hooks want in it."""
        name = "manual" if trigger == "manual" else "auto"
        outcome = await self._fire(pre_compact(name, instructions="\n".join(instructions)), keep=False)
        return outcome.stop or outcome.block, outcome.contexts

    async def compacted(self, trigger: str, summary: str) -> None:
        await self._fire(post_compact("manual" if trigger == "manual" else "auto", summary))

    def take_contexts(self) -> Sequence[str]:
        """What hooks had to say to the model since this was last asked."""
        contexts, self._contexts = self._contexts, []
        return contexts

    # --- hearing ------------------------------------------------------------------------------------------

    async def _fire(self, event: HookEvent, *, keep: bool = True) -> HookOutcome:
        outcome = await self.engine.fire(event)
        if keep:
            self.hear(outcome)
        else:
            self._tell_people(event, outcome)
        return outcome

    def hear(self, outcome: HookOutcome) -> None:
        """Keep what is for the model, publish what is for people."""
        self._contexts += outcome.contexts
        for notice in outcome.notices:
            self.publish(Notice(level="warning", source="hooks", text=notice.text))

    def _tell(self, event: HookEvent, outcome: HookOutcome) -> None:
        self.hear(outcome)

    def _tell_people(self, event: HookEvent, outcome: HookOutcome) -> None:
        for notice in outcome.notices:
            self.publish(Notice(level="warning", source="hooks", text=notice.text))


def _last_batch(messages: Sequence[Message]) -> list[Mapping[str, object]]:
    if not messages or not isinstance(messages[-1], UserMessage) or messages[-1].origin != "tool_results":
        return []
    last = next((message for message in reversed(messages) if isinstance(message, AssistantMessage)), None)
    results = {block.tool_use_id: block for block in messages[-1].content if isinstance(block, ToolResultBlock)}
    return [
        {
            "tool_name": call.name,
            "tool_input": dict(call.input),
            "tool_use_id": call.id,
            "tool_response": text_of(results[call.id]),
        }
        for call in (last.tool_uses if last is not None else ())
        if call.id in results
    ]
