"""The hands: the tool protocol's concrete tools."""

from __future__ import annotations

from .edit import Edit
from .function import FunctionTool, tool
from .glob import Glob
from .grep import Grep
from .permissions import PermissionMode, Rule, Rules
from .read import Read
from .registry import Toolbox, default_tools
from .shell import Bash
from .write import Write

__all__ = [
    "Bash",
    "Edit",
    "FunctionTool",
    "Glob",
    "Grep",
    "PermissionMode",
    "Read",
    "Rule",
    "Rules",
    "Toolbox",
    "Write",
    "default_tools",
    "tool",
]
