"""
A client for MCP servers: their tools, resources and prompts become a session's.

`config` reads ``.mcp.json``; `manager.mcp_servers` runs the servers. The SDK (extra ``atrio[mcp]``) is loaded when the
first server is connected and not before.
"""
