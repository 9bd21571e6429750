"""`/mcp`: streamable HTTP without sessions, in the API's own process, with the key that every request brings.

Each POST is answered whole, as JSON; nothing is kept between two. The tools call the API in process, through the same
front door as everybody else: limits, scopes, tenants, audit and metrics are those of the caller's key.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from app.client.retrying import NO_RETRIES
from app.client.shells import Awaiting, Setup
from app.client.target import Secret, Target
from app.mcp_server.server import make_server

_HERE = "http://127.0.0.1"
_TIMEOUT_SECONDS = 30.0


class McpDoor:
    """Serves MCP for an application. Whoever calls it has seen to it that the key is valid."""

    def __init__(self, app: ASGIApp, *, max_body_bytes: int) -> None:
        """`app` answers the tools' calls. Raises ModuleNotFoundError where the extra is not installed."""
        import mcp  # noqa: F401 - to know now and not with the first request

        self._app = app
        self._max_body_bytes = max_body_bytes
        self._starting = asyncio.Lock()
        self._leave = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None
        self._manager: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one POST."""
        async with self._starting:
            if self._holder is None or self._holder.done():
                await self._start()
        await self._manager.handle_request(scope, receive, send)

    async def close(self) -> None:
        """End what is being served."""
        if self._holder is not None:
            self._leave.set()
            await asyncio.gather(self._holder, return_exceptions=True)

    async def _start(self) -> None:
        """Start the SDK's manager in a task of its own, which it needs to be left where it was entered."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        self._leave = asyncio.Event()
        self._manager = StreamableHTTPSessionManager(
            make_server(self._shell_of),
            json_response=True,
            stateless=True,
            max_request_body_size=self._max_body_bytes,
        )
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold(self._manager, ready, self._leave))
        await ready

    async def _hold(self, manager: Any, ready: "asyncio.Future[None]", leave: asyncio.Event) -> None:
        async with manager.run():
            ready.set_result(None)
            await leave.wait()

    @asynccontextmanager
    async def _shell_of(self, context: Any) -> AsyncIterator[Awaiting]:
        """Have the shell for one call: the caller's key, this application."""
        _, _, key = str(context.request.headers.get("authorization", "")).partition(" ")
        shell = Awaiting(
            Setup(
                Target(_HERE, Secret(key.strip())),
                timeout_seconds=_TIMEOUT_SECONDS,
                retries=NO_RETRIES,
                typed=False,
                transport=httpx.ASGITransport(self._app),
                agent="despacho-mcp",
            )
        )
        try:
            yield shell
        finally:
            await shell.close()
