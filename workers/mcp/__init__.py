"""`ctx.mcp`: tools of MCP servers, by configuration and by what a task type declares."""
