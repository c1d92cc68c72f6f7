"""
What a supervision tree looks like at one moment: frozen values, and a drawing of them for people. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import attrs

__all__ = ["ActorInfo", "ActorState", "render"]


class ActorState(enum.Enum):
    """
    Where an actor is in its life.

    ``waiting`` is running, with a wait that it announced (`Status.waiting`); ``stopped`` is ended because it was
    told to, or never started; ``finished`` ended by itself; ``failed`` ended by an error and not restarted.
    """

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


@attrs.frozen(kw_only=True)
class ActorInfo:
    """
    One actor as it was at ``taken``. All times are readings of Trio's clock, in seconds.

    ``restarts`` counts what its supervisor did on its own; ``since`` is when the state (or the wait) began;
    ``until`` is the wait's deadline; ``inbox_depth`` is None if the actor showed no inbox.
    """

    name: str
    path: str
    state: ActorState
    taken: float
    since: float
    restarts: int = 0
    last_error: str | None = None
    inbox_depth: int | None = None
    waiting_for: str | None = None
    until: float | None = None
    children: tuple[ActorInfo, ...] = ()

    def __iter__(self) -> Iterator[ActorInfo]:
        """This actor and everything below it, in start order."""
        yield self
        for child in self.children:
            yield from child

    def find(self, path: str) -> ActorInfo | None:
        """The actor at ``path`` (as in ``"app/engine/streamer"``), or None."""
        return next((info for info in self if info.path == path), None)


def render(tree: ActorInfo) -> str:
    """The tree as text, one actor a line."""
    lines = list(_lines(tree, "", ""))
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)


def _lines(info: ActorInfo, first: str, rest: str) -> Iterator[tuple[str, str]]:
    yield first + info.name, _describe(info)
    for child in info.children:
        last = child is info.children[-1]
        yield from _lines(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _describe(info: ActorInfo) -> str:
    text = f"{info.state.value} {info.taken - info.since:.1f} s"
    if info.waiting_for is not None:
        text += f" for {info.waiting_for}"
    if info.until is not None:
        left = info.until - info.taken
        text += f", {left:.1f} s left" if left >= 0 else f", {-left:.1f} s overdue"
    if info.inbox_depth is not None:
        text += f" · inbox {info.inbox_depth}"
    if info.restarts:
        text += f" · restarts {info.restarts}"
    if info.last_error is not None:
        text += f" · last error: {info.last_error.splitlines()[0] if info.last_error else ''}"
    return text
