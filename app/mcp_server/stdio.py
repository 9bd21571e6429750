"""`despacho mcp`: the same tools over stdin and stdout, for agents that start their servers themselves."""

from contextlib import nullcontext

from app.client.retrying import Retries
from app.client.shells import Awaiting, Setup
from app.client.target import Target
from app.mcp_server.server import make_server

_PATIENCE_SECONDS = 20.0


async def serve(target: Target) -> None:
    """Serve until stdin ends. Raises ModuleNotFoundError where the extra is not installed."""
    from mcp.server.stdio import stdio_server

    retries = Retries(for_seconds=_PATIENCE_SECONDS)
    shell = Awaiting(Setup(target, retries=retries, typed=False, agent="despacho-mcp"))
    server = make_server(lambda _: nullcontext(shell))
    try:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        await shell.close()
