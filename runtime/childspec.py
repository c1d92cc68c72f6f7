"""
How a supervisor is told about its children: specs, restart types, strategies, and the report of an exit.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import attrs

from .actor import Actor, HasDepth
from .errors import ConfigError

__all__ = ["SHUTDOWN_GRACE", "START_LIMIT", "ChildExit", "ChildSpec", "Restart", "Strategy", "wants_restart"]

SHUTDOWN_GRACE = 5.0
"""Seconds a child has to end after it was told to; OTP's default for workers."""

START_LIMIT = 30.0
"""Seconds a child has to report ready: long enough for a slow disk or a TLS handshake, short enough to be noticed."""


class Restart(enum.Enum):
    """Which ends of a child call for a restart: every one, only errors, or none."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"


class Strategy(enum.Enum):
    """Which children are restarted with one that failed: none other, all of them, or those started after it."""

    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"
    REST_FOR_ONE = "rest_for_one"


def wants_restart(restart: Restart, *, failed: bool) -> bool:
    """Whether a child that ended by itself is started again, intensity aside."""
    return restart is Restart.PERMANENT or (restart is Restart.TRANSIENT and failed)


@attrs.frozen
class ChildSpec:
    """
    One child of a supervisor.

    Args:
        name: unique among its siblings; no slash, since paths are made of names.
        start: makes a new actor; called for the first start and for every restart.
        restart: when to start it again.
        shutdown: seconds it has to end once told to. Use ``math.inf`` for a supervisor, whose children have
            their own.
        start_timeout: seconds it has to report ready.
        significant: its own end (not a restart) ends the whole supervisor, normally. Not for permanent children,
            which never end.
        inbox: shown in the tree, if the actor has no attribute ``inbox``.
    """

    name: str
    start: Callable[[], Actor]
    restart: Restart = attrs.field(default=Restart.PERMANENT, kw_only=True)
    shutdown: float = attrs.field(default=SHUTDOWN_GRACE, kw_only=True)
    start_timeout: float = attrs.field(default=START_LIMIT, kw_only=True)
    significant: bool = attrs.field(default=False, kw_only=True)
    inbox: HasDepth | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        thing = f"child {self.name!r}"
        if not self.name or "/" in self.name:
            raise ConfigError(thing, "a child's name is not empty and has no slash")
        if not self.shutdown >= 0:
            raise ConfigError(thing, f"shutdown={self.shutdown} is not a number of seconds")
        if not self.start_timeout > 0:
            raise ConfigError(thing, f"start_timeout={self.start_timeout} is not a positive number of seconds")
        if self.significant and self.restart is Restart.PERMANENT:
            raise ConfigError(thing, "a permanent child can't be significant", "make it transient or temporary")


@attrs.frozen(kw_only=True)
class ChildExit:
    """
    The end of one run of a child, reported before anything is done about it.

    Args:
        error: what it ended with, groups of one taken off; None if it returned or was stopped in order. A child
            that overran its grace period has `ShutdownOverrun` here, with its own error, if any, as the cause.
        restarts: how often it had been restarted until then.
        will_restart: whether it is going to be started again.
    """

    name: str
    path: str
    error: BaseException | None
    restarts: int
    will_restart: bool
