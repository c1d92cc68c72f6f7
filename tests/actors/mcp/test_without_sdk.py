"""What holds without the SDK, and names of tools."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.mcp.tools import tool_name
from atrio.tools.registry import require_name

PROGRAM = """
import sys
from pathlib import Path
sys.modules["mcp"] = sys.modules["mcp_types"] = sys.modules["anyio"] = None
import trio
from atrio.actors.mcp.config import StdioServer
from atrio.actors.mcp.manager import mcp_servers
from atrio.runtime.errors import ConfigError

async def main(*configs):
    async with mcp_servers(configs, cwd=Path.cwd(), environ={}) as servers:
        print(len(servers.tools()))

trio.run(main)
try:
    trio.run(main, StdioServer(name="a", command="b"))
except ConfigError as error:
    print(error)
"""


def test_without_the_sdk_only_servers_are_refused() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False)
    assert "" == done.stderr
    first, second = done.stdout.splitlines()
    assert "0" == first
    assert second.endswith("is not installed; install it with: pip install 'atrio[mcp]'")


@given(st.text(min_size=1, max_size=300))
def test_every_tool_gets_a_name_that_the_api_takes(name: str) -> None:
    require_name(tool_name("server", name), "a test")


def test_long_names_that_differ_at_the_end_stay_different() -> None:
    assert tool_name("s", "x" * 200 + "a") != tool_name("s", "x" * 200 + "b")
