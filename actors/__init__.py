"""Agents, sessions, runs: the public door of atrio."""

from .agent import Agent
from .call import CanUseTool
from .dependencies import Dependencies, Prepared
from .hooks import StopContext, StopDecision, StopHook, ToolCall, ToolDecision, ToolHook
from .run import Run
from .session import Session, open_session, run_agent

__all__ = [
    "Agent",
    "CanUseTool",
    "Dependencies",
    "Prepared",
    "Run",
    "Session",
    "StopContext",
    "StopDecision",
    "StopHook",
    "ToolCall",
    "ToolDecision",
    "ToolHook",
    "open_session",
    "run_agent",
]
