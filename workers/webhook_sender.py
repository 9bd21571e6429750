"""One try to deliver one event: a signed POST through the guard, over within its time whatever the receiver does.

Nothing raises: what kept the receiver from answering is a value. The answer's body is of no interest; a little of it is
read, so that the connection can be used again.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Protocol

import httpx

from app.domain.addresses import parse_allowed
from app.domain.failure import classify
from app.domain.retry_after import parse_retry_after
from app.domain.webhooks import Try
from app.outbound.guard import DEADLINE, MAX_BYTES, GuardedTransport, Resolve, resolve
from app.runtime import Runtime
from app.version import product_version

_MOST_READ_BYTES = 64 * 1024
_READ_SECONDS = 0.5


class Sender(Protocol):
    """What makes one try."""

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Try:
        """Make one POST; never raises but for its own cancellation."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class WebhookSender:
    """Sends through `app.outbound.guard`; redirects are not followed."""

    def __init__(self, runtime: Runtime, *, resolver: Resolve = resolve) -> None:
        self._runtime = runtime
        self._seconds = runtime.settings.webhooks.try_timeout_seconds
        outbound = runtime.settings.outbound
        self._client = httpx.AsyncClient(
            transport=GuardedTransport(
                parse_allowed(outbound.allowed_networks),
                max_response_bytes=_MOST_READ_BYTES,
                deadline_seconds=self._seconds,
                ca_file=None if outbound.ca_file is None else str(outbound.ca_file),
                resolver=resolver,
                max_connections=runtime.settings.webhooks.max_in_flight,
            ),
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(self._seconds),
            headers={"User-Agent": f"Despacho/{product_version()}"},
        )

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Try:
        """Make one POST; the status counts as soon as it is there."""
        extensions = {DEADLINE: time.monotonic() + self._seconds, MAX_BYTES: _MOST_READ_BYTES}
        answer: Try | None = None
        try:
            async with asyncio.timeout(self._seconds):
                request = self._client.build_request(
                    "POST", url, headers=dict(headers), content=body, extensions=extensions
                )
                response = await self._client.send(request, stream=True)
                asked = parse_retry_after(response.headers.get("retry-after"), self._runtime.now())
                answer = Try(response.status_code, retry_after_seconds=asked)
                await _let_go(response)
        except Exception as error:
            return answer or Try(None, classify(error, self._runtime.now()).error_type)
        finally:
            self._client.cookies.clear()
        return answer

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()


async def _let_go(response: httpx.Response) -> None:
    """Read a small body to its end; a large or slow one is cut off with its connection."""
    try:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_READ_SECONDS):
                await response.aread()
    finally:
        await response.aclose()
