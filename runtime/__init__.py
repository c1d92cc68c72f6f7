"""
The kernel: values, the pure machine, supervision and the journal.

What is named here is public; `Supervisor`, `ChildSpec` and `open_mailbox` serve any Trio program.
"""

from .actor import Actor, FunctionActor, Status
from .childspec import ChildExit, ChildSpec, Restart, Strategy
from .config import Config, Durability
from .errors import AtrioError
from .events import Event
from .mailbox import Address, Inbox, Pending, Reply, open_mailbox, open_reply
from .result import Result, TerminalReason
from .supervisor import Supervisor
from .tree import ActorInfo, ActorState, render

__all__ = [
    "Actor",
    "ActorInfo",
    "ActorState",
    "Address",
    "AtrioError",
    "ChildExit",
    "ChildSpec",
    "Config",
    "Durability",
    "Event",
    "FunctionActor",
    "Inbox",
    "Pending",
    "Reply",
    "Restart",
    "Result",
    "Status",
    "Strategy",
    "Supervisor",
    "TerminalReason",
    "open_mailbox",
    "open_reply",
    "render",
]
