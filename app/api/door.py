"""The outermost layer, in plain ASGI: request ids, body limit, deadline, metrics, and a problem for whatever is raised.

It is one layer and not five, because every request of the hot path goes through all of it.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Mapping

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import answer, database_unavailable, payload_too_large, refusal_of
from app.services.actors import Hidden
from app.services.callers import Caller
from app.services.errors import ServiceError
from app.telemetry.metrics import Metrics

_REQUEST_ID = re.compile(rb"^[\x21-\x7e]{1,128}$")
_WAITS = re.compile(rb"(?:^|[,;&\s])wait\s*=", re.IGNORECASE)
_PARAMETER = re.compile(r"\{([a-z_]+)(?::[a-z]+)?\}")


class Door:
    """Wrap the application: `limit_of` tells a path's body limit, `hidden` hears of refused crossings.

    `direct` holds routes, by method and path, whose endpoint takes the request alone: they are served without going
    through the framework's routing and dependencies, which cost as much as everything else that a submission does.
    `waits` names paths whose requests may wait for a task without saying so in their query.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        limit_of: Callable[[str], int],
        direct: Mapping[tuple[str, str], APIRoute],
        hidden: Callable[[Caller, Hidden], None],
        deadline_seconds: float,
        longest_wait_seconds: float,
        waits: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._limit_of = limit_of
        self._direct = direct
        self._hidden = hidden
        self._deadline_seconds = deadline_seconds
        self._longest_wait_seconds = longest_wait_seconds
        self._waiting_paths = waits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            # Whatever can be read can be asked for without its body, which the server leaves out (RFC 9110, 9.3.2).
            scope = {**scope, "method": "GET"}
        began = time.perf_counter()
        state = scope.setdefault("state", {})
        headers = dict(scope["headers"])
        request_id = _request_id(headers)
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        limit = self._limit_of(scope["path"])
        try:
            if _declared_length(headers) > limit:
                raise payload_too_large(limit)
            seconds = self._deadline_seconds
            if (
                scope["path"] in self._waiting_paths
                or _WAITS.search(scope["query_string"])
                or _WAITS.search(headers.get(b"prefer", b""))
            ):
                seconds += self._longest_wait_seconds
            async with asyncio.timeout(seconds) as deadline:
                limited = _Limited(receive, limit, deadline, seconds).receive
                route = self._direct.get((scope["method"], scope["path"]))
                if route is None:
                    await self._app(scope, limited, sending)
                else:
                    scope["route"] = route
                    response: Response = await route.endpoint(Request(scope, limited))
                    await response(scope, limited, sending)
        except Exception as error:
            refusal = database_unavailable() if isinstance(error, TimeoutError) else refusal_of(error)
            if status:
                raise
            if isinstance(error, Hidden) and "caller" in state:
                self._hidden(state["caller"], error)
            await self.refuse(refusal, scope, receive, sending)
        finally:
            template = getattr(scope.get("route"), "path", "none")
            self._metrics.http_request(template, scope["method"], status, time.perf_counter() - began)

    async def refuse(self, refusal: ServiceError, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a problem."""
        self._metrics.refused(refusal.code)
        await answer(refusal, instance_of(scope))(scope, receive, send)


def instance_of(scope: Scope) -> str:
    """Name where a problem happened by the route's template: the ids in a path were submitted and are not repeated."""
    path = getattr(scope.get("route"), "path", "/")
    return _PARAMETER.sub(r":\1", path)


class _Limited:
    """Counts the bytes of a body as they arrive, whatever was declared; each part has the whole deadline again."""

    def __init__(self, receive: Receive, limit: int, deadline: asyncio.Timeout, seconds: float) -> None:
        self._receive = receive
        self._left = limit
        self._limit = limit
        self._deadline = deadline
        self._seconds = seconds

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise payload_too_large(self._limit)
            if message.get("more_body"):
                # Each part of a slow upload has the whole time again; work begins when the last one is there.
                self._deadline.reschedule(asyncio.get_running_loop().time() + self._seconds)
        return message


def _request_id(headers: dict[bytes, bytes]) -> bytes:
    given = headers.get(b"x-request-id", b"")
    return given if _REQUEST_ID.match(given) else b"req_" + secrets.token_hex(12).encode()


def _declared_length(headers: dict[bytes, bytes]) -> int:
    declared = headers.get(b"content-length", b"0")
    return int(declared) if declared.isdigit() and len(declared) < 19 else 0
