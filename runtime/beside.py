"""
What worked beside a session whose process ended: agents and commands in the background that the model was told of, and
whose end nobody told it any more. Pure.

Agents end with their process. A command may outlive one that was killed, but nobody reads its output or ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from .messages import TextBlock, UserMessage, text_of
from .records import ResultRecord

__all__ = ["LOST", "NOTIFICATION", "Beside"]

NOTIFICATION: Final = "<task-notification>"
"""Begins what the model is told of the end of an agent in the background."""

LOST: Final = "<background-lost>"
"""Begins what it is told of those that ended with their process."""


@attrs.define(eq=False)
class Beside:
    """Takes what a journal says of work in the background; ``agents`` and ``commands`` are what is still open."""

    agents: dict[str, str] = attrs.field(factory=dict)
    """By id: what the model may be told of it."""
    commands: dict[str, str] = attrs.field(factory=dict)

    def result(self, record: ResultRecord) -> None:
        """A tool's result may say that something began, or how it stands."""
        details = record.details
        if not isinstance(details, Mapping):
            return
        running = details.get("status") == "running"
        for key, known in (("agentId", self.agents), ("backgroundTaskId", self.commands), ("shellId", self.commands)):
            id = details.get(key)
            if not isinstance(id, str):
                continue
            if not running:
                known.pop(id, None)
            elif key == "agentId" and details.get("isAsync") is True:
                place = details.get("transcriptPath")
                known[id] = f"the agent {id} ({details.get('description', '')}); its record is in {place}"
            elif key == "backgroundTaskId":
                place = details.get("outputFile")
                known[id] = f"the command {id}, which may still run; its output until then is in {place}"

    def message(self, message: UserMessage) -> None:
        """A notification tells of an end."""
        if not message.hidden or not (self.agents or self.commands):
            return
        text = text_of(message.content)
        if text.startswith(LOST):
            self.agents.clear()
            self.commands.clear()
        elif NOTIFICATION in text:
            for id in [id for id in self.agents if id in text]:
                del self.agents[id]

    def lost(self, uuid: str) -> UserMessage | None:
        """What to tell the model of those that are open; None: there are none."""
        open = (*self.agents.values(), *self.commands.values())
        if not open:
            return None
        listed = "\n".join(f"- {each}" for each in open)
        text = (
            f"{LOST}\nThe process that this session ran in has ended. What worked in the background is lost to it:\n"
            f"{listed}\nNothing more will come of these by themselves. Each may have done all, some or none of its "
            f"work: look before you start one again.\n</{LOST[1:]}"
        )
        return UserMessage(uuid=uuid, content=(TextBlock(text),), origin="recovery", hidden=True)
