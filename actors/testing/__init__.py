"""
The public testkit: a scripted model in memory or on loopback, faults on demand, checks of what remains.

    model = ScriptedModel([Turn(text("I look."), tool("Read", {"file_path": "a"})), Turn(text("Done."))])
    async with open_session(agent, transport=model.transport()) as session: ...
"""

from .checks import check_history
from .faults import Fault, FaultPlan
from .scripted import RecordedRequest, ScriptedModel
from .transport import ScriptedTransport
from .turns import Turn, block, raw, text, thinking, tool
from .validation import violations_of

__all__ = [
    "Fault",
    "FaultPlan",
    "RecordedRequest",
    "ScriptedModel",
    "ScriptedTransport",
    "Turn",
    "block",
    "check_history",
    "raw",
    "text",
    "thinking",
    "tool",
    "violations_of",
]
