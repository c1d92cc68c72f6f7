"""
The public testkit: a scripted model in memory or on loopback, faults on demand, checks of what remains, and whole
sessions that are drawn from a seed (`simulate`).

    model = ScriptedModel([Turn(text("I look."), tool("Read", {"file_path": "a"})), Turn(text("Done."))])
    async with open_session(agent, transport=model.transport()) as session: ...
"""

from typing import TYPE_CHECKING, Any

from .checks import check_history
from .faults import Fault, FaultPlan
from .scripted import RecordedRequest, ScriptedModel
from .transport import ScriptedTransport
from .turns import Turn, block, raw, text, thinking, tool
from .validation import violations_of

if TYPE_CHECKING:
    from .simulator import Outcome, draw_plan, simulate

__all__ = [
    "Fault",
    "FaultPlan",
    "Outcome",
    "RecordedRequest",
    "ScriptedModel",
    "ScriptedTransport",
    "Turn",
    "block",
    "check_history",
    "draw_plan",
    "raw",
    "simulate",
    "text",
    "thinking",
    "tool",
    "violations_of",
]


def __getattr__(name: str) -> Any:
    """The simulator is there when somebody asks for it: it loads all of the runtime."""
    if name in ("Outcome", "draw_plan", "simulate"):
        from . import simulator

        return getattr(simulator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
