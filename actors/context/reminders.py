"""Text that atrio puts before the model in its own name, in the tags by which the model knows it. Pure."""

from __future__ import annotations

import re
from typing import Final

from atrio.runtime.messages import TextBlock, UserMessage

__all__ = ["harmless", "hidden_message", "reminder"]

_TAG: Final = re.compile(r"<(?=/?system-reminder)", re.IGNORECASE)


def reminder(text: str) -> str:
    """The text within reminder tags."""
    return f"<system-reminder>\n{text}\n</system-reminder>"


def harmless(text: str) -> str:
    """Foreign text (a file's change, a task's title) that can neither end a reminder nor begin one."""
    return _TAG.sub("<\\\\", text)


def hidden_message(uuid: str, text: str, *, pinned: bool = False) -> UserMessage:
    """A message by atrio, with the text within reminder tags."""
    return UserMessage(uuid=uuid, content=(TextBlock(reminder(text)),), origin="attachment", hidden=True, pinned=pinned)
