"""Servers to test with, and the context that a call gets."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from atrio.actors.mcp.config import StdioServer
from atrio.actors.mcp.manager import McpServers, mcp_servers
from atrio.runtime.tool import ToolContext, Workspace

SERVER = Path(__file__).with_name("raw_server.py")

OpenServers = Callable[..., AbstractAsyncContextManager[McpServers]]


@pytest.fixture
def server() -> Callable[..., StdioServer]:
    """Makes the configuration of a raw server with faults."""

    def make(*faults: str, name: str = "raw", call_limit: float | None = None) -> StdioServer:
        return StdioServer(name=name, command=sys.executable, args=(str(SERVER), *faults), call_limit=call_limit)

    return make


@pytest.fixture
def opened(tmp_path: Path) -> OpenServers:
    """`mcp_servers` with a working folder and an environment."""
    pytest.importorskip("mcp")

    def open_servers(*configs: StdioServer, **options: Any) -> AbstractAsyncContextManager[McpServers]:
        return mcp_servers(configs, cwd=tmp_path, environ=dict(os.environ), jitter=lambda: 0.0, **options)

    return open_servers


@pytest.fixture
def progress() -> list[tuple[Any, ...]]:
    """What was reported as progress."""
    return []


@pytest.fixture
def ctx(tmp_path: Path, progress: list[tuple[Any, ...]]) -> ToolContext:
    """A call's context."""
    return ToolContext(
        session_id="s",
        run_id="r",
        call_id="c1",
        workspace=Workspace(cwd=tmp_path),
        results_dir=tmp_path / "results",
        progress=lambda *said: progress.append(said),
    )
