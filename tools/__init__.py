"""The hands: the tool protocol's concrete tools."""

from __future__ import annotations

from .ask import AskUser
from .background import BackgroundShells, background_shells
from .background_tools import BashOutput, KillShell
from .edit import Edit
from .function import FunctionTool, tool
from .glob import Glob
from .grep import Grep
from .notebook import NotebookEdit
from .permissions import PermissionMode, Rule, Rules
from .read import Read
from .registry import Toolbox, default_tools
from .shell import Bash
from .skill import Skill
from .todo import TodoWrite
from .web import WebFetch
from .write import Write

__all__ = [
    "AskUser",
    "BackgroundShells",
    "Bash",
    "BashOutput",
    "Edit",
    "FunctionTool",
    "Glob",
    "Grep",
    "KillShell",
    "NotebookEdit",
    "PermissionMode",
    "Read",
    "Rule",
    "Rules",
    "Skill",
    "TodoWrite",
    "Toolbox",
    "WebFetch",
    "Write",
    "background_shells",
    "default_tools",
    "tool",
]
