"""
A session: one conversation, its journal, and one run at a time.

`open_session` is the door. Everything that a session starts lives in its nursery or in the nursery of a
`Session.submit` block, so that leaving either ends it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import trio

from atrio.runtime.backoff import RetryPolicy
from atrio.runtime.config import Config, prepare_home
from atrio.runtime.doors import single_error
from atrio.runtime.errors import ConfigError, JournalError, SessionBusy, SessionClosed
from atrio.runtime.events import RunStarted
from atrio.runtime.journal import journal_path, results_folder
from atrio.runtime.ledger import Ledger
from atrio.runtime.mailbox import Address, Inbox, open_mailbox
from atrio.runtime.messages import Block, Message, TextBlock, ToolUseBlock, UserMessage
from atrio.runtime.model import Provider
from atrio.runtime.prices import Catalogue
from atrio.runtime.records import RunStartRecord, ToolStartRecord
from atrio.runtime.result import Result
from atrio.runtime.state import Limits, LoopState, derive_id
from atrio.runtime.supervisor import ChildSpec, Restart, Supervisor
from atrio.runtime.tool import FileState, Progress, Tool, ToolContext, Workspace
from atrio.runtime.tree import Node
from atrio.tools.permissions import Decision, Rules, decide_permission
from atrio.tools.registry import Toolbox

from .account import Account
from .agent import Agent
from .broadcaster import Broadcaster
from .call import CallPipeline, CanUseTool
from .dependencies import Dependencies
from .executor import Executor
from .http import HttpPool
from .loop import History, Loop
from .protocol import LoopInput, ModelCall, RunCall
from .providers.anthropic import AnthropicProvider
from .recorder import Append, Recorder
from .requests import RequestBuilder
from .run import Run, RunFactory, RunTree
from .streamer import Streamer, StreamerSettings
from .watchdog import IdleLimits, PulseBoard

__all__ = ["Session", "open_session", "run_agent"]
