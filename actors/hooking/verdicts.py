"""
What hooks say, as values: `HookAnswer` of one hook, `HookOutcome` of all that an event was told to. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, Literal

import attrs

from atrio.runtime.messages import JsonObject

__all__ = ["HookAnswer", "HookNotice", "HookOutcome", "Permission", "aggregate"]


class Permission(StrEnum):
    """What a hook says of a call."""

    ALLOW = "allow"
    ASK = "ask"
    DEFER = "defer"
    DENY = "deny"


STRICTNESS: Final = (Permission.ALLOW, Permission.ASK, Permission.DEFER, Permission.DENY)


@attrs.frozen
class HookNotice:
    """Something for the user: a hook's message, or that one failed."""

    text: str
    level: Literal["info", "warning"] = "warning"


@attrs.frozen(kw_only=True)
class HookAnswer:
    """
    What one hook says; a hook that has nothing to say says `HookAnswer()`.

    Args:
        permission: of the call that PreToolUse and PermissionRequest are about. ``reason``: why.
        updated_input: takes the place of the call's input.
        updated_output: takes the place of the call's output (PostToolUse); None: nothing does.
        updated_permissions: changes of rules that come with a PermissionRequest's answer, as they were given.
        interrupt: a denied PermissionRequest shall also end the run.
        block: why it is not to be so: the prompt is refused (UserPromptSubmit), the run goes on (Stop, SubagentStop),
            the history is not compacted (PreCompact), the model is told (PostToolUse, PostToolUseFailure).
        stop: why the run shall end, whatever else is said.
        context: text for the model.
        notices: for the user.
    """

    permission: Permission | None = None
    reason: str | None = None
    updated_input: JsonObject | None = None
    updated_output: Any = None
    updated_permissions: tuple[JsonObject, ...] = ()
    interrupt: bool = False
    block: str | None = None
    stop: str | None = None
    context: tuple[str, ...] = ()
    notices: tuple[HookNotice, ...] = ()


@attrs.frozen(kw_only=True)
class HookOutcome:
    """What all hooks say together. The fields are those of `HookAnswer`; ``blocks`` has the reasons of all."""

    permission: Permission | None = None
    reason: str | None = None
    updated_input: JsonObject | None = None
    updated_output: Any = None
    updated_permissions: tuple[JsonObject, ...] = ()
    interrupt: bool = False
    blocks: tuple[str, ...] = ()
    stop: str | None = None
    contexts: tuple[str, ...] = ()
    notices: tuple[HookNotice, ...] = ()

    @property
    def block(self) -> str | None:
        """The reasons of all who block, as one text; None: nobody does."""
        return "\n\n".join(self.blocks) or None


def aggregate(answers: Iterable[HookAnswer]) -> HookOutcome:
    """
    The answers as one: of permissions the strictest holds (deny, defer, ask, allow), with the reasons of those who
    gave it; of updates the last one, but none from a hook that is against the call; texts are joined.
    """
    said = list(answers)
    permission = max(
        (answer.permission for answer in said if answer.permission is not None), key=STRICTNESS.index, default=None
    )
    deciding = [answer for answer in said if answer.permission is permission] if permission is not None else []
    updates = [
        answer.updated_input
        for answer in said
        if answer.updated_input is not None and answer.permission not in (Permission.DENY, Permission.DEFER)
    ]
    outputs = [answer.updated_output for answer in said if answer.updated_output is not None]
    return HookOutcome(
        permission=permission,
        reason="\n".join(_distinct(answer.reason for answer in deciding)) or None,
        updated_input=updates[-1] if updates else None,
        updated_output=outputs[-1] if outputs else None,
        updated_permissions=tuple(
            update for answer in deciding if permission is Permission.ALLOW for update in answer.updated_permissions
        ),
        interrupt=any(answer.interrupt for answer in deciding),
        blocks=_distinct(answer.block for answer in said),
        stop=next((answer.stop for answer in said if answer.stop), None),
        contexts=_distinct(text for answer in said for text in answer.context),
        notices=tuple(notice for answer in said for notice in answer.notices),
    )


def _distinct(texts: Iterable[str | None]) -> tuple[str, ...]:
    found: Sequence[str] = [text for text in texts if text]
    return tuple(dict.fromkeys(found))
