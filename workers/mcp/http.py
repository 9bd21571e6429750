"""MCP over HTTP: answers bounded while they are read, and a failure of one call that leaves the others alone.

In the SDK's transport a connection error of one request ends the whole session. Here it becomes the answer of its
request: a JSON-RPC error whose code says what happened.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from workers.mcp.errors import ACCESS_REFUSED, ANSWER_TOO_LARGE


@contextlib.asynccontextmanager
async def http_transport(
    url: str, headers: Mapping[str, str], connect_timeout_seconds: float, max_answer_bytes: int
) -> AsyncIterator[tuple[Any, Any]]:
    """Give the session's two streams. No proxy, no cookies kept, no redirect to elsewhere."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async with (
        httpx2.AsyncClient(
            transport=_bounded_transport(max_answer_bytes),
            headers=dict(headers),
            timeout=httpx2.Timeout(None, connect=connect_timeout_seconds),
            trust_env=False,
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=max_answer_bytes) as streams,
    ):
        yield streams


def _bounded_transport(max_answer_bytes: int) -> Any:
    import httpx2
    from mcp_types import CONNECTION_CLOSED

    class Body(httpx2.AsyncByteStream):
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            seen = 0
            async for part in self._inner:
                seen += len(part)
                if seen > max_answer_bytes:
                    raise httpx2.ReadError("too large")
                yield part

        async def aclose(self) -> None:
            await self._inner.aclose()

    class Transport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: Any) -> Any:
            if request.method != "POST":
                return await super().handle_async_request(request)
            # Packed answers would unfold past the bound.
            request.headers["Accept-Encoding"] = "identity"
            try:
                response = await super().handle_async_request(request)
            except httpx2.TransportError:
                return _failed(request, CONNECTION_CLOSED)
            if response.status_code >= 400:
                return await self._refused(request, response)
            if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
                # Notifications come along the way: each event is bounded by the reader, the whole generously here.
                return response
            try:
                body = b"".join([part async for part in Body(response.stream)])
            except httpx2.TransportError as error:
                code = ANSWER_TOO_LARGE if str(error) == "too large" else CONNECTION_CLOSED
                return _failed(request, code)
            finally:
                await response.aclose()
            headers = [(k, v) for k, v in response.headers.raw if k.lower() != b"transfer-encoding"]
            return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

        async def _refused(self, request: Any, response: Any) -> Any:
            status = response.status_code
            if status in (401, 403):
                await response.aclose()
                return _failed(request, ACCESS_REFUSED)
            if status in (408, 425, 429) or status >= 500:
                await response.aclose()
                return _failed(request, CONNECTION_CLOSED)
            response.stream = Body(response.stream)
            return response

    def _failed(request: Any, code: int) -> Any:
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "the call failed on its way"}}
        return httpx2.Response(
            502, headers={"content-type": "application/json"}, content=json.dumps(error).encode(), request=request
        )

    return Transport(trust_env=False)
