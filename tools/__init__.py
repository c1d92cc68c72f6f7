"""The hands: the tool protocol's concrete tools."""

from __future__ import annotations

from .edit import Edit
from .function import FunctionTool, tool
from .permissions import PermissionMode, Rule, Rules
from .read import Read
from .registry import Toolbox, default_tools
from .write import Write

__all__ = [
    "Edit",
    "FunctionTool",
    "PermissionMode",
    "Read",
    "Rule",
    "Rules",
    "Toolbox",
    "Write",
    "default_tools",
    "tool",
]
