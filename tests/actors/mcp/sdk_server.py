"""An MCP server made with the SDK, which speaks the newest protocol: ``python sdk_server.py [port]``."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("sdk", instructions="from the sdk")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def grow(ctx: Context) -> str:
    """Have a further tool."""

    def further() -> str:
        return "further"

    server.add_tool(further)
    await ctx.notify_tools_changed()
    return "grown"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
