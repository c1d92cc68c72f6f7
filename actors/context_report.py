"""What fills the window of a session that nobody has open: its history, with what its project says today."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from atrio.runtime.config import Config
from atrio.runtime.context.rebuild import after_boundary, measured_since
from atrio.runtime.context.report import WindowReport, report
from atrio.runtime.messages import Message
from atrio.runtime.prices import Catalogue
from atrio.runtime.tokens import measure
from atrio.runtime.window import choose_window, levels_of
from atrio.tools.registry import Toolbox

from .agent import Agent
from .context.project import load_project_context
from .requests import RequestBuilder

__all__ = ["report_of", "window_report"]


async def report_of(agent: Agent, messages: Sequence[Message], *, config: Config, cwd: Path) -> WindowReport:
    """The report for a history that ``agent`` would go on with in ``cwd``. Cancelled: nothing was changed."""
    home = config.environ.get("HOME") or os.environ.get("HOME")
    project = await load_project_context(cwd, (), config.home, Path(home) if home else None)
    toolbox = Toolbox(agent.tools)
    today = datetime.now(UTC).date()
    requests = RequestBuilder.for_session(agent, toolbox, cwd=cwd, add_dirs=(), today=today, project=project)
    return window_report(agent, messages, requests)


def window_report(agent: Agent, messages: Sequence[Message], requests: RequestBuilder) -> WindowReport:
    """What fills the window with this history (as the model sees it)."""
    info = Catalogue.load().find(agent.model)
    choice = choose_window(
        agent.model,
        tokens=agent.context_window or (info.context_window if info else None),
        max_output_tokens=info.max_output_tokens if info else None,
    )
    shown = after_boundary(messages)
    measured = measure(shown, overhead=requests.overhead, since=measured_since(shown))
    return report(
        shown,
        system=requests.system,
        tools=requests.toolbox.definitions(),
        instructions=requests.instructions,
        levels=levels_of(choice.window, agent.context),
        measured_tokens=measured.tokens if measured.anchor is not None else None,
    )
