"""What the journal holds: one value for each line. How a line looks is in `transcript`."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs

from .messages import Block, StopReason, ToolResultBlock, Usage, UserMessage

__all__ = [
    "MAIN_SCOPE",
    "BlockRecord",
    "Priority",
    "QueueRecord",
    "Record",
    "ResponseEndRecord",
    "ResultRecord",
    "RunEndRecord",
    "RunStartRecord",
    "SystemRecord",
    "ToolStartRecord",
    "UserRecord",
    "WithdrawRecord",
]


Priority: TypeAlias = Literal["now", "next", "later"]
"""
When a message that came during a run reaches the model: at once, the stream broken off (what is complete is kept); at
the next opportunity; or in place of the run's end.
"""

MAIN_SCOPE = "main"
"""The session's own agent. A subagent's queue has its id as scope."""


@attrs.frozen(kw_only=True)
class QueueRecord:
    """
    A message was accepted during the run ``run_id``, for the agent ``scope``. It is delivered by the `UserRecord` of
    the same message, or by the run's end, which none outlasts.
    """

    uuid: str
    message: UserMessage
    run_id: str
    priority: Priority = "next"
    scope: str = MAIN_SCOPE


@attrs.frozen(kw_only=True)
class UserRecord:
    """A user message, other than tool results."""

    message: UserMessage

    @property
    def uuid(self) -> str:
        return self.message.uuid


@attrs.frozen(kw_only=True)
class BlockRecord:
    """One finished block of a response. Usage is not known yet; `ResponseEndRecord` has it."""

    uuid: str
    message_id: str
    model: str
    block: Block
    requested_model: str = ""


@attrs.frozen(kw_only=True)
class ResponseEndRecord:
    """
    A response is over. ``incomplete``: it was broken off, what had come of it counts.

    ``beside_block``: another program noted this with a block; more blocks of the same response may follow.
    ``copied``: the original stands elsewhere, so this usage is not to be added up.
    """

    uuid: str
    message_id: str
    model: str
    stop_reason: StopReason | None
    usage: Usage
    incomplete: bool = False
    beside_block: bool = False
    copied: bool = False


@attrs.frozen(kw_only=True)
class ToolStartRecord:
    """A call is about to run. After a crash, a start without a result means: outcome unknown."""

    uuid: str
    call_id: str
    name: str
    idempotent: bool = False


@attrs.frozen(kw_only=True)
class ResultRecord:
    """A call's one result."""

    uuid: str
    block: ToolResultBlock
    name: str
    details: Any = None


@attrs.frozen(kw_only=True)
class WithdrawRecord:
    """The blocks of this response are void."""

    uuid: str
    message_id: str
    reason: str


@attrs.frozen(kw_only=True)
class SystemRecord:
    """
    Something to remember that is no message (``subtype`` informational, compact_boundary, ...).

    ``followed_by``: so many records belong to this one; if fewer follow, it doesn't count.
    """

    uuid: str
    subtype: str
    text: str = ""
    data: Any = None
    followed_by: int = 0


@attrs.frozen(kw_only=True)
class RunStartRecord:
    uuid: str
    run_id: str
    model: str


@attrs.frozen(kw_only=True)
class RunEndRecord:
    uuid: str
    run_id: str
    terminal_reason: str
    errors: tuple[str, ...] = ()


Record: TypeAlias = (
    UserRecord
    | QueueRecord
    | BlockRecord
    | ResponseEndRecord
    | ToolStartRecord
    | ResultRecord
    | WithdrawRecord
    | SystemRecord
    | RunStartRecord
    | RunEndRecord
)
