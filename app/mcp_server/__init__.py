"""Despacho as an MCP server: an agent hands work to the queue, waits for it, and looks after what died."""
