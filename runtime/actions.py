"""What `decide` may ask for: effects, as values. The shell performs them in order."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from .events import Event
from .messages import ToolUseBlock
from .model import ModelFailure
from .observations import CompactLevel
from .records import Record
from .result import ResultSubtype, TerminalReason
from .state import LoopState

__all__ = [
    "Action",
    "CallModel",
    "Compact",
    "Finish",
    "Prepare",
    "Publish",
    "RunStopHooks",
    "StartCall",
    "StopModel",
    "Transition",
    "Write",
]


@attrs.frozen
class Write:
    """
    Put records into the journal. With ``sync`` the loop goes on only when they are durable (as far as the
    durability policy goes); without, they keep their order before anything written later.
    """

    records: tuple[Record, ...]
    sync: bool = False


@attrs.frozen
class Publish:
    """Tell the subscribers. Always after the `Write` of the same fact."""

    event: Event


@attrs.frozen
class Prepare:
    """Run the context pipeline; answered by `ContextReady` or `SetupFailed`."""


@attrs.frozen(kw_only=True)
class CallModel:
    """Send a request; everything that comes of it carries its number."""

    request: int
    model: str
    max_tokens: int
    has_fallback: bool = False
    """Another model would take over if this one stays overloaded."""
    task_budget_remaining: int | None = None
    """What compaction left of the task budget; None: the server counts for itself."""


@attrs.frozen(kw_only=True)
class StopModel:
    """Break off a request. Nothing that still comes of it counts."""

    request: int


@attrs.frozen(kw_only=True)
class StartCall:
    """Queue a tool call; answered by exactly one `CallEnded`."""

    block: ToolUseBlock


@attrs.frozen(kw_only=True)
class Compact:
    """
    Make room in the history, since a request with it was refused; answered by `Compacted` or `CompactFailed`.

    ``drain`` commits what is staged, ``reactive`` replaces the history by a summary (and strips media).
    """

    level: CompactLevel
    failure: ModelFailure


@attrs.frozen
class RunStopHooks:
    """Ask the stop hooks whether the run may end; answered by `StopHooksEnded`."""

    active: bool
    """A stop hook has already made this run go on."""


@attrs.frozen(kw_only=True)
class Finish:
    """The run is over. The last action of a run."""

    reason: TerminalReason
    errors: tuple[str, ...] = ()
    failure: ModelFailure | None = None
    subtype: ResultSubtype | None = None
    """In place of the one that the reason stands for."""


Action: TypeAlias = Write | Publish | Prepare | CallModel | StopModel | StartCall | Compact | RunStopHooks | Finish


@attrs.frozen
class Transition:
    """A step of the machine: the next state and what to do, in this order."""

    state: LoopState
    actions: tuple[Action, ...] = ()

    def prefixed(self, *actions: Action) -> Transition:
        """The same step with ``actions`` done first."""
        return Transition(self.state, (*actions, *self.actions))
