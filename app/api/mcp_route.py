"""The route of the MCP server: the key first, as everywhere, and nothing but POST."""

from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.api.auth import authenticate
from app.api.front import Front
from app.api.problems import answer, refusal_of

MCP_PATH = "/mcp"


class Served(Protocol):
    """What answers once the caller is known."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

    async def close(self) -> None:
        """End what is being served."""


class McpRoute:
    """`POST /mcp`. It keeps no sessions, so there is nothing to GET and nothing to DELETE."""

    def __init__(self, front: Front, served: Served) -> None:
        self._front = front
        self._served = served
        self.route = Route(MCP_PATH, self, include_in_schema=False)

    async def close(self) -> None:
        """End what is being served."""
        await self._served.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Raises unauthorized."""
        request = Request(scope)
        scope["state"]["caller"] = await authenticate(self._front, request.headers.get("authorization"))
        if scope["method"] != "POST":
            refused = refusal_of(HTTPException(405))
            response: Response = answer(refused, MCP_PATH, {"Allow": "POST"})
            await response(scope, receive, send)
            return
        await self._served(scope, receive, send)
