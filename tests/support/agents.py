"""Whole sessions in memory: an agent, a scripted model, a clock that jumps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import attrs
import trio

from atrio.actors import Agent, Dependencies, Session, open_session
from atrio.actors.testing import ScriptedModel
from atrio.runtime.config import Config, Durability
from atrio.runtime.events import Event, RunEnded, ToolEnded
from atrio.runtime.history import check
from atrio.runtime.messages import UserMessage
from atrio.runtime.replay import replay_file
from atrio.runtime.result import Result
from atrio.runtime.tool import Tool, ToolContext, ToolOutput

E = TypeVar("E", bound=Event)


def config(home: Path, **changes: Any) -> Config:
    """No threads below: a clock that jumps would jump over them."""
    return attrs.evolve(Config(home=home, base_url="http://model.test", durability=Durability.OS), **changes)


class Probe(Tool):
    """
    A tool that does what ``behave`` says, and notes when each call ran.

    ``log`` has (name of the call, what, when): ``+`` at its start, ``-`` at its end, ``x`` when cancelled.
    """

    description = "a probe"
    permission: Literal["allow", "read", "edit", "ask"] = "allow"

    def __init__(
        self,
        name: str = "Probe",
        *,
        behave: Callable[[str, ToolContext], Any] | None = None,
        safe: bool = True,
        **changes: Any,
    ) -> None:
        self.name = name
        self.input_schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        self.safe = safe
        self.behave = behave
        self.log: list[tuple[str, str, float]] = []
        for key, value in changes.items():
            setattr(self, key, value)

    def parse(self, raw: Any) -> Any:
        return dict(raw)

    def concurrency_safe(self, input: Any) -> bool:
        return self.safe

    async def run(self, input: Any, ctx: ToolContext) -> ToolOutput:
        name = str(input.get("name", ctx.call_id))
        self.log.append((name, "+", trio.current_time()))
        try:
            outcome: Any = f"{name} done"
            if self.behave is not None:
                outcome = await self.behave(name, ctx)
        except trio.Cancelled:
            self.log.append((name, "x", trio.current_time()))
            raise
        self.log.append((name, "-", trio.current_time()))
        return outcome if isinstance(outcome, ToolOutput) else ToolOutput(str(outcome))


def sleeping(**seconds: float) -> Callable[[str, ToolContext], Any]:
    """Calls that take so long, by name."""

    async def behave(name: str, ctx: ToolContext) -> str:
        await trio.sleep(seconds.get(name, 1.0))
        return f"{name} done"

    return behave


@attrs.define(eq=False)
class Stage:
    """A session on a scripted model, with what its runs told."""

    session: Session
    model: ScriptedModel
    check_replay: bool = True
    events: list[Event] = attrs.field(factory=list)
    times: list[float] = attrs.field(factory=list)

    async def run(self, prompt: str = "go", *, until: Callable[[Event], bool] | None = None) -> Result:
        """One run to its end; or until an event, where its block is left."""
        self.events, self.times = [], []
        async with self.session.submit(prompt) as run:
            async for event in run:
                self.take(event)
                if until is not None and until(event):
                    break
        if until is not None:
            async for event in run:
                self.take(event)
        self.check()
        return run.result

    def take(self, event: Event) -> None:
        self.events.append(event)
        self.times.append(trio.current_time())

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def results(self) -> list[tuple[str, str, bool]]:
        """(call id, text, is_error) of each result that was told."""
        return [(e.call_id, str(e.result.content), e.result.is_error) for e in self.of(ToolEnded)]

    def prompts(self) -> list[str]:
        """Text of the user messages in history, tool results apart."""
        return [
            "".join(getattr(block, "text", "") for block in message.content)
            for message in self.session.messages
            if isinstance(message, UserMessage) and message.origin != "tool_results"
        ]

    def check(self) -> None:
        """What holds after each run."""
        assert [] == check(self.session.messages)
        assert [] == self.model.violations
        assert isinstance(self.events[-1], RunEnded)
        assert 1 == len(self.of(RunEnded))
        numbers = [event.seq for event in self.events]
        assert list(range(numbers[0], numbers[0] + len(numbers))) == numbers
        recorded = replay_file(self.session.journal)
        assert [] == recorded.bad_lines
        if not self.check_replay:
            return
        assert list(recorded.messages) == list(self.session.messages)


@asynccontextmanager
async def stage(
    tmp_path: Path,
    model: ScriptedModel,
    /,
    *tools: Tool,
    options: dict[str, Any] | None = None,
    deps: Dependencies | None = None,
    can_use_tool: Any = None,
    allowed_tools: Sequence[str] = (),
    check_replay: bool = True,
    session: dict[str, Any] | None = None,
    **agent: Any,
) -> AsyncIterator[Stage]:
    """Open a session in memory; ``options`` change its configuration."""
    defaults = {"model": "scripted-1", "tools": tools, "allowed_tools": allowed_tools, "context_window": 200_000}
    made = Agent(**{**defaults, **agent})
    chosen: dict[str, Any] = {
        "config": config(tmp_path / "home", **(options or {})),
        "transport": model.transport(),
        "deps": deps or Dependencies(jitter=lambda: 0.0),
        "can_use_tool": can_use_tool,
        **(session or {}),
    }
    async with open_session(made, cwd=tmp_path, **chosen) as opened:
        yield Stage(opened, model, check_replay)
        # Within the block everything is still open: only what outlived its run would show.
        names = [info.name for info in opened.tree() if info.name != "bookmarks"]
        assert names in (["session", "recorder"], ["session", "recorder", "prefetch", "background"]), names
