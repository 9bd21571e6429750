"""`ctx.http`: the guarded client, bound to an attempt; it carries the trace on, and inside an effect its key."""

import sys
from collections.abc import Mapping
from typing import Any

import httpx

from app.outbound.client import OutboundClient
from workers.attempt import Attempt
from workers.bridge import Bridge

IDEMPOTENCY_KEY = "Idempotency-Key"


class OutgoingHttp:
    """Sends requests of one attempt to where they may go; every method gives a response that was read to its end.

    Redirects are not followed unless `follow_redirects=True`. A status is no error by itself: `raise_for_status()`
    makes it one, which is then classified (408, 425, 429 and 5xx are tried again, after `Retry-After`).

    Raises `forbidden_address`, `response_too_large`, `invalid_response` and `too_many_redirects` as DeadLetter, and
    httpx's TransportError.
    """

    __slots__ = ("_client", "_owner")

    def __init__(self, owner: Attempt, client: OutboundClient) -> None:
        self._owner = owner
        self._client = client

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        max_response_bytes: int | None = None,
        follow_redirects: bool = False,
        **body: Any,
    ) -> httpx.Response:
        """Send one request; `body` is what httpx takes: `json`, `content`, `data`, `files`, `params`."""
        return await self._client.request(
            method,
            url,
            headers=bound_headers(self._owner, headers),
            timeout_seconds=timeout_seconds,
            max_response_bytes=max_response_bytes,
            follow_redirects=follow_redirects,
            **body,
        )

    async def get(self, url: str, **more: Any) -> httpx.Response:
        """Send a GET request; see `request`."""
        return await self.request("GET", url, **more)

    async def post(self, url: str, **more: Any) -> httpx.Response:
        """Send a POST request; see `request`."""
        return await self.request("POST", url, **more)

    async def put(self, url: str, **more: Any) -> httpx.Response:
        """Send a PUT request; see `request`."""
        return await self.request("PUT", url, **more)

    async def patch(self, url: str, **more: Any) -> httpx.Response:
        """Send a PATCH request; see `request`."""
        return await self.request("PATCH", url, **more)

    async def delete(self, url: str, **more: Any) -> httpx.Response:
        """Send a DELETE request; see `request`."""
        return await self.request("DELETE", url, **more)


class BlockingOutgoingHttp:
    """The same for plain handlers: a call blocks the handler's thread until its response was read."""

    __slots__ = ("_bridge", "_http")

    def __init__(self, http: OutgoingHttp, bridge: Bridge) -> None:
        self._http = http
        self._bridge = bridge

    def request(self, method: str, url: str, **more: Any) -> httpx.Response:
        """Send one request; see OutgoingHttp."""
        return self._bridge.run(lambda _: self._http.request(method, url, **more))

    def get(self, url: str, **more: Any) -> httpx.Response:
        """Send a GET request; see OutgoingHttp."""
        return self.request("GET", url, **more)

    def post(self, url: str, **more: Any) -> httpx.Response:
        """Send a POST request; see OutgoingHttp."""
        return self.request("POST", url, **more)

    def put(self, url: str, **more: Any) -> httpx.Response:
        """Send a PUT request; see OutgoingHttp."""
        return self.request("PUT", url, **more)

    def patch(self, url: str, **more: Any) -> httpx.Response:
        """Send a PATCH request; see OutgoingHttp."""
        return self.request("PATCH", url, **more)

    def delete(self, url: str, **more: Any) -> httpx.Response:
        """Send a DELETE request; see OutgoingHttp."""
        return self.request("DELETE", url, **more)


def bound_headers(owner: Attempt, given: Mapping[str, str] | None) -> dict[str, str]:
    """Add the trace and the effect's key to a call's own headers, which win."""
    headers = dict(given or {})
    names = {name.lower() for name in headers}
    own = {
        "traceparent": owner.traceparent,
        "tracestate": owner.tracestate if owner.traceparent else None,
        IDEMPOTENCY_KEY: _effect_key(),
    }
    headers.update({name: value for name, value in own.items() if value and name.lower() not in names})
    return headers


def _effect_key() -> str | None:
    """Name the effect that this call is part of; without the module of effects in this process there is none."""
    variable = getattr(sys.modules.get("workers.effects"), "current_effect_key", None)
    key = None if variable is None else variable.get(None)
    return key if isinstance(key, str) else None
