"""Agents, sessions, runs: the public door of atrio."""

from .agent import Agent
from .call import CanUseTool
from .dependencies import Dependencies
from .hooks import StopContext, StopDecision, StopHook
from .run import Run
from .session import Session, open_session, run_agent

__all__ = [
    "Agent",
    "CanUseTool",
    "Dependencies",
    "Run",
    "Session",
    "StopContext",
    "StopDecision",
    "StopHook",
    "open_session",
    "run_agent",
]
