"""
Tells hooks what happens, and what they say of it.

Each hook has a deadline, and none can do more harm than to have no say: one that hangs, dies, floods or writes
nonsense is a notice for the user. The event that it was told of goes on as if it weren't there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, assert_never

import attrs
import trio

from atrio.runtime.errors import AtrioError

from .answers import read_command, read_http
from .command import Confine, run_command_hook
from .config import CommandHandler, Handler, HookConfig, HttpHandler
from .http import post_hook
from .matching import handlers_for
from .payloads import HookEvent, HookName, HookSession, encode_payload
from .texts import fit_answer
from .verdicts import HookAnswer, HookNotice, HookOutcome, aggregate

__all__ = ["DEFAULT_LIMIT", "HookEngine"]

DEFAULT_LIMIT: Final = 600.0
"""Seconds that a hook may take where its settings don't say."""

PROMPT_LIMIT: Final = 30.0
"""The same before a prompt is taken: somebody is waiting for the run to begin."""

SESSION_END_LIMIT: Final = 1.5
"""Seconds for all hooks at a session's end together, whatever their settings say: nobody waits any more."""

MAX_AT_ONCE: Final = 32
"""Hooks of one event that run at the same time; the others wait for a place, which doesn't count as their time."""


def _nobody(outcome: HookOutcome) -> None:
    pass


@attrs.define(eq=False, kw_only=True)
class HookEngine:
    """
    The hooks of one session.

    Args:
        config: what `parse_hooks` made of the settings.
        session: what hooks are told of the session; may be replaced when its permission mode changes.
        cwd: where commands run.
        environ: the environment of commands, and what headers may refer to. Without secrets.
        results_dir: where texts go that are too long for the model.
        background: where hooks run that nobody waits for (``async``); they end with it. None: they are waited for.
        confine: puts command hooks into a sandbox; None: they run as anything else of the user's does.
        on_late: gets what these say, once they have ended; otherwise it is lost, as nobody waits for it.
    """

    config: HookConfig
    session: HookSession
    cwd: Path
    environ: Mapping[str, str] = attrs.field(factory=dict)
    results_dir: Path | None = None
    background: trio.Nursery | None = None
    on_late: Callable[[HookOutcome], None] = _nobody
    confine: Confine | None = None

    def has(self, name: HookName) -> bool:
        """Whether any hook is set for this event."""
        return self.config.has(name)

    async def fire(
        self, event: HookEvent, *, session: HookSession | None = None, limit: float = math.inf
    ) -> HookOutcome:
        """
        Tell all hooks that the event is for, at once, and what they say together. Never fails.

        ``session`` takes the place of the engine's own, for a subagent. No hook gets more than ``limit`` seconds: a
        caller that would be cancelled itself loses what all hooks said, a deny too; with this, only the slow ones.

        Cancelled: the hooks' processes are gone and their connections closed.
        """
        handlers = handlers_for(self.config, event, self.cwd) if self.has(event.name) else ()
        if not handlers:
            await trio.lowlevel.checkpoint()
            return HookOutcome()
        payload = encode_payload(event, session or self.session)
        answers: dict[int, HookAnswer] = {}
        places = trio.CapacityLimiter(MAX_AT_ONCE)

        async def tell(position: int, handler: Handler) -> None:
            async with places:
                answers[position] = await self._tell(
                    handler, event.name, payload, min(_limit_of(handler, event.name), limit)
                )

        async with trio.open_nursery() as nursery:
            for position, handler in enumerate(handlers):
                if isinstance(handler, CommandHandler) and handler.background:
                    # At a session's end, what outlives this call would be cut off at once.
                    own = nursery if event.name is HookName.SESSION_END else self.background or nursery
                    own.start_soon(self._tell_late, handler, event.name, payload)
                else:
                    nursery.start_soon(tell, position, handler)
        return aggregate(answers[position] for position in sorted(answers))

    async def _tell_late(self, handler: CommandHandler, name: HookName, payload: bytes) -> None:
        """Run a hook that nobody waits for: it may tell things, but no longer decide."""
        answer = await self._tell(handler, name, payload, _limit_of(handler, name))
        told = (*answer.context, *((answer.block or answer.reason,) if handler.rewake else ()))
        self.on_late(aggregate([HookAnswer(context=tuple(filter(None, told)), notices=answer.notices)]))

    async def _tell(self, handler: Handler, name: HookName, payload: bytes, limit: float) -> HookAnswer:
        answer: HookAnswer | None = None
        try:
            with trio.move_on_after(limit):
                answer = await self._ask(handler, name, payload)
        except AtrioError as error:
            answer = HookAnswer(notices=(HookNotice(f"{handler.label}: {error}"),))
        except Exception as error:
            # The border to foreign code: a defect that some hook brings to light must not end the run.
            text = f"{handler.label} could not be run: {type(error).__name__}: {error}"
            answer = HookAnswer(notices=(HookNotice(text),))
        if answer is None:
            text = f"{handler.label} said nothing within {limit:g} s, so it was stopped and has no say"
            answer = HookAnswer(notices=(HookNotice(text),))
        return await fit_answer(answer, self.results_dir)

    async def _ask(self, handler: Handler, name: HookName, payload: bytes) -> HookAnswer:
        match handler:
            case CommandHandler():
                reply = await run_command_hook(
                    handler, payload, cwd=self.cwd, env=self._environment(), confine=self.confine
                )
                return await trio.to_thread.run_sync(read_command, name, handler.label, reply)
            case HttpHandler():
                answer = await post_hook(handler, payload, env=self.environ)
                return await trio.to_thread.run_sync(read_http, name, handler.label, answer)
            case _:
                assert_never(handler)

    def _environment(self) -> dict[str, str]:
        folder = str(self.cwd)
        return {**self.environ, "ATRIO_PROJECT_DIR": folder, "CLAUDE_PROJECT_DIR": folder}


def _limit_of(handler: Handler, name: HookName) -> float:
    """Seconds that it may take."""
    match name:
        case HookName.SESSION_END:
            return min(handler.timeout or SESSION_END_LIMIT, SESSION_END_LIMIT)
        case HookName.USER_PROMPT_SUBMIT:
            return handler.timeout or PROMPT_LIMIT
        case _:
            return handler.timeout or DEFAULT_LIMIT
