"""
The error family.

Every class carries typed fields; its text is composed here and nowhere else,
so that logic asks for classes and fields and only people read sentences.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

__all__ = [
    "AtrioError",
    "ChildRejected",
    "ConfigError",
    "ContextExhausted",
    "EventTooLarge",
    "InvalidToolInput",
    "InvariantError",
    "JournalCorrupt",
    "JournalError",
    "JournalLocked",
    "JournalUnwritable",
    "MailboxDeadlock",
    "MailboxOverflow",
    "ModelError",
    "PeerGone",
    "PromptBlocked",
    "ProtocolError",
    "ReplyDropped",
    "RestartIntensityExceeded",
    "SessionBusy",
    "SessionClosed",
    "ShutdownOverrun",
    "StartFailed",
    "StartTimedOut",
    "StreamTruncated",
    "SupervisionError",
    "SupervisorNotRunning",
    "ToolError",
    "ToolRejected",
    "ToolTimedOut",
    "UnknownTool",
    "WireError",
]


class AtrioError(Exception):
    """The root of everything atrio raises on purpose. It is abstract: raise one of its children."""

    def __init__(self, *args: object) -> None:
        if type(self) is AtrioError:
            raise TypeError("AtrioError is abstract; raise one of its subclasses")
        super().__init__(*args)


@attrs.define(eq=False, slots=False)
class ConfigError(AtrioError):
    """A setting is missing or wrong. ``thing`` names it, ``problem`` says what is wrong, ``remedy`` the way out."""

    thing: str
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.thing}: {self.problem}"
        return f"{text}; {self.remedy}" if self.remedy else text


class InvariantError(AtrioError):
    """atrio broke one of its own rules (an illegal transition, an unpaired result). Always a bug to report."""


class MailboxOverflow(InvariantError):
    """More replies were sent than a mailbox had reserved room for."""


@attrs.define(eq=False, slots=False)
class MailboxDeadlock(InvariantError):
    """A send would have waited for itself: the full mailboxes ``names`` are read by tasks that wait for one another."""

    names: Sequence[str]

    def __str__(self) -> str:
        if len(self.names) == 1:
            return f"an actor sent to its own mailbox {self.names[0]!r} while it was full; use offer or reply instead"
        circle = ", ".join(repr(name) for name in self.names)
        return f"the mailboxes {circle} are full and their readers wait for one another; let one of them offer or reply"


class PeerGone(AtrioError):
    """The other end of a mailbox is closed: nobody will ever read this message."""


class ReplyDropped(AtrioError):
    """The actor that owed an answer ended (crashed or was stopped) without giving it."""


class PromptBlocked(AtrioError):
    """A hook refused the prompt; nothing was recorded of it."""


class SessionClosed(AtrioError):
    """The session has ended; open another one, or resume this one by its id."""


class SessionBusy(AtrioError):
    """A run is already active on this session; steer it, or wait for its end before submitting again."""


# --- the wire -------------------------------------------------------------------------------------


class WireError(AtrioError):
    """The bytes of a model's response can't be understood."""


@attrs.define(eq=False, slots=False)
class EventTooLarge(WireError):
    """One server-sent event grew over the limit (bytes)."""

    size_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"one event of the model's stream is larger than {self.limit_bytes:,} bytes "
            f"(at least {self.size_bytes:,}); raise max_event_bytes if the server really sends events this large"
        )


@attrs.define(eq=False, slots=False)
class StreamTruncated(WireError):
    """The body ended before the message was complete."""

    detail: str

    def __str__(self) -> str:
        return f"the model's stream ended before its message was complete: {self.detail}"


@attrs.define(eq=False, slots=False)
class ModelError(AtrioError):
    """A model call failed for good, as seen by a caller of the public API."""

    kind: str
    message: str
    status: int | None = None
    request_id: str | None = None

    def __str__(self) -> str:
        where = f" (HTTP {self.status})" if self.status is not None else ""
        ref = f" [request {self.request_id}]" if self.request_id else ""
        return f"{self.kind}{where}: {self.message}{ref}"


# --- tools ----------------------------------------------------------------------------------------


class ToolError(AtrioError):
    """
    A tool call failed in a way that the model should hear about.

    The text goes to the model as the call's ``is_error`` result, so it says what went wrong and what
    to do instead. Tools raise this (or a child) for expected failures.
    """

    @property
    def message_for_model(self) -> str:
        return str(self) or type(self).__name__


@attrs.define(eq=False, slots=False)
class UnknownTool(ToolError):
    """The model asked for a tool that doesn't exist; ``close`` lists similar names."""

    name: str
    close: Sequence[str] = ()

    def __str__(self) -> str:
        shown = self.name if len(self.name) <= 80 else f"{self.name[:77]}..."
        text = f"No such tool available: {shown!r}."
        return f"{text} Did you mean {', '.join(self.close)}?" if self.close else text


@attrs.define(eq=False, slots=False)
class InvalidToolInput(ToolError):
    """The input doesn't fit the tool's schema; one sentence per problem, with the field's path."""

    tool: str
    problems: Sequence[str]

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return f"InputValidationError: {self.tool}: {self.problems[0]}"
        lines = "\n".join(f"- {problem}" for problem in self.problems)
        return f"InputValidationError: {self.tool} has {len(self.problems)} problems:\n{lines}"


class ToolRejected(ToolError):
    """The input is well-formed, but the call makes no sense now (file not read yet, text not unique, ...)."""


@attrs.define(eq=False, slots=False)
class ToolTimedOut(ToolError):
    """A tool ran over its own limit (seconds)."""

    tool: str
    limit: float
    partial: str = ""

    def __str__(self) -> str:
        text = f"{self.tool} timed out after {self.limit:g} s and was stopped"
        return f"{text}. Output until then:\n{self.partial}" if self.partial else text


# --- journal --------------------------------------------------------------------------------------


class JournalError(AtrioError):
    """The session's record can't be kept; nothing may run unrecorded."""


@attrs.define(eq=False, slots=False)
class JournalUnwritable(JournalError):
    """The journal can't be created or appended to."""

    path: str
    reason: str

    def __str__(self) -> str:
        return (
            f"can't write the session journal {self.path}: {self.reason}; "
            "free space or permissions there, or point ATRIO_HOME at a writable folder"
        )


@attrs.define(eq=False, slots=False)
class JournalCorrupt(JournalError):
    """A journal can't be read at all (single bad lines are skipped and reported instead)."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"journal {self.path}, line {self.line}: {self.reason}"


@attrs.define(eq=False, slots=False)
class JournalLocked(JournalError):
    """Another process writes this session."""

    path: str
    owner: str

    def __str__(self) -> str:
        return f"session journal {self.path} is in use by {self.owner}; end that process, or fork the session"


@attrs.define(eq=False, slots=False)
class ContextExhausted(AtrioError):
    """
    No request can be made that fits the model's window. ``kind`` is the terminal reason: ``blocking_limit`` (too full
    and nothing may make room) or ``rapid_refill_breaker`` (the room is full again as soon as it is made).
    """

    kind: str
    detail: str

    def __str__(self) -> str:
        return self.detail


class ProtocolError(AtrioError):
    """A remote client sent an operation that can't be understood. Never ends the session."""


# --- supervision ----------------------------------------------------------------------------------


class SupervisionError(AtrioError):
    """A supervisor can't keep its promise about a child."""


@attrs.define(eq=False, slots=False)
class RestartIntensityExceeded(SupervisionError):
    """
    Children failed more often than their supervisor tolerates.

    ``path`` is the child that failed last, ``restarts`` how often that child had been restarted until then. It is
    not raised: the child's own error is, with this text as a note; see ``Supervisor.gave_up``.
    """

    path: str
    restarts: int
    max_restarts: int
    period: float

    def __str__(self) -> str:
        return (
            f"{self.path} failed after {self.restarts} restarts; its supervisor gave up, "
            f"as it tolerates {self.max_restarts} restarts within {self.period:g} s"
        )


@attrs.define(eq=False, slots=False)
class StartFailed(SupervisionError):
    """A child failed before it reported ready."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} did not start: {self.reason}"


@attrs.define(eq=False, slots=False)
class StartTimedOut(SupervisionError):
    """A child did not report ready in time (seconds)."""

    path: str
    limit: float

    def __str__(self) -> str:
        return f"{self.path} did not report ready within {self.limit:g} s"


@attrs.define(eq=False, slots=False)
class ShutdownOverrun(SupervisionError):
    """A child did not end within its grace period (seconds) after it was told to."""

    path: str
    grace: float

    def __str__(self) -> str:
        return f"{self.path} did not end within its grace period of {self.grace:g} s"


@attrs.define(eq=False, slots=False)
class ChildRejected(SupervisionError):
    """A request about one child can't be met in the state it is in (or there is no such child)."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@attrs.define(eq=False, slots=False)
class SupervisorNotRunning(SupervisionError):
    """A supervisor was asked for something before it started, or after it ended."""

    path: str

    def __str__(self) -> str:
        return f"supervisor {self.path} is not running"
