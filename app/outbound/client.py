"""Calls to the outside, each read to its end within bounds: the client on top of the guard.

One `OutboundClient` serves a process. It follows no redirect unless told to, keeps no cookies, knows no proxy and no
credentials, and writes nothing anywhere.
"""

import time
from collections.abc import Mapping
from typing import Any

import httpx

from app.domain.addresses import AddressForbidden, parse_allowed
from app.domain.errors import DeadLetter
from app.outbound.guard import DEADLINE, MAX_BYTES, GuardedTransport, Resolve, resolve
from app.settings import OutboundSettings
from app.version import product_version

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEPT_ACROSS_ORIGINS = frozenset(
    {"accept", "accept-encoding", "content-type", "content-length", "user-agent", "traceparent", "tracestate"}
)


class TooManyRedirects(DeadLetter):
    """A chain of redirects is longer than is followed."""

    def __init__(self, most: int) -> None:
        super().__init__("too_many_redirects", f"the endpoint redirects more than {most} times")
        self.most = most

    def __reduce__(self) -> tuple[type["TooManyRedirects"], tuple[int]]:  # type: ignore[override]
        return type(self), (self.most,)


class RedirectForbidden(DeadLetter):
    """A redirect leads to where calls may not go. No AddressForbidden, which says that nothing at all was sent."""

    def __init__(self, message: str) -> None:
        super().__init__("forbidden_address", message)

    def __reduce__(self) -> tuple[type["RedirectForbidden"], tuple[str]]:  # type: ignore[override]
        return type(self), (self.message,)


class OutboundClient:
    """Sends requests through the guard; every method gives a response that has been read, or raises.

    Raises AddressForbidden, ResponseTooLarge, InvalidEncoding, TooManyRedirects, RedirectForbidden, and httpx's
    `TransportError` with its kinds. AddressForbidden and ConnectError mean that nothing was sent.
    """

    def __init__(self, settings: OutboundSettings, *, resolver: Resolve = resolve) -> None:
        """Raises OSError where the file of authorities cannot be read."""
        self.settings = settings
        self.allowed = parse_allowed(settings.allowed_networks)
        self._client = httpx.AsyncClient(
            transport=GuardedTransport(
                self.allowed,
                max_response_bytes=settings.max_response_bytes,
                deadline_seconds=settings.deadline_seconds,
                ca_file=None if settings.ca_file is None else str(settings.ca_file),
                resolver=resolver,
                max_connections=settings.max_connections,
            ),
            trust_env=False,
            follow_redirects=False,
            headers={"User-Agent": f"Despacho/{product_version()}"},
        )

    async def request(
        self,
        method: str,
        url: str,
        *,
        timeout_seconds: float | None = None,
        max_response_bytes: int | None = None,
        follow_redirects: bool = False,
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> httpx.Response:
        """Send one request and read its response, all redirects included, within `timeout_seconds` and the settings'.

        Without `timeout_seconds` a server may be silent for `read_timeout_seconds` of the settings at most.
        `body` is what httpx takes: `json`, `content`, `data`, `files`, `params`.
        """
        settings = self.settings
        silent = settings.read_timeout_seconds if timeout_seconds is None else timeout_seconds
        seconds = min(timeout_seconds or settings.deadline_seconds, settings.deadline_seconds)
        most = settings.max_response_bytes if max_response_bytes is None else max_response_bytes
        extensions = {
            DEADLINE: time.monotonic() + seconds,
            MAX_BYTES: min(most, settings.max_response_bytes),
            "timeout": httpx.Timeout(
                min(silent, seconds), connect=min(settings.connect_timeout_seconds, seconds)
            ).as_dict(),
        }
        try:
            request = self._client.build_request(method, url, headers=headers, extensions=extensions, **body)
        except httpx.InvalidURL:
            raise AddressForbidden("the URL cannot be read") from None
        for hop in range(settings.max_redirects + 1):
            response = await (self._send(request) if hop == 0 else self._send_on(request))
            if not follow_redirects or (following := _following(request, response, extensions)) is None:
                return response
            request = following
        raise TooManyRedirects(settings.max_redirects)

    async def _send_on(self, request: httpx.Request) -> httpx.Response:
        """Send what a redirect asks for: no failure of it may look as if nothing had been sent before."""
        try:
            return await self._send(request)
        except AddressForbidden as error:
            raise RedirectForbidden(f"after a redirect: {error.message}") from None
        except (httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise httpx.ReadTimeout("the redirect's host did not answer in time", request=request) from error
        except httpx.ConnectError as error:
            raise httpx.RemoteProtocolError("the redirect's host cannot be reached", request=request) from error

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def _send(self, request: httpx.Request) -> httpx.Response:
        response = await self._client.send(request, stream=True, follow_redirects=False)
        try:
            await response.aread()
        finally:
            await response.aclose()
            self._client.cookies.clear()
        return response


def _following(request: httpx.Request, response: httpx.Response, extensions: dict[str, Any]) -> httpx.Request | None:
    """Make the request that a redirect asks for; None where the response is none.

    Another origin gets no header that the caller set, credentials among them; its body only by 307 and 308.
    """
    if response.status_code not in _REDIRECTS or not (location := response.headers.get("location")):
        return None
    try:
        url = request.url.join(location)
    except httpx.InvalidURL as error:
        raise httpx.RemoteProtocolError("the redirect's Location cannot be read", request=request) from error
    if not url.fragment and request.url.fragment:
        url = url.copy_with(fragment=request.url.fragment)
    headers = httpx.Headers(request.headers)
    headers.pop("host", None)
    method, content = request.method, request.content
    if (response.status_code == 303 and method != "HEAD") or (response.status_code in (301, 302) and method == "POST"):
        method, content = "GET", b""
    if not content:
        for name in ("content-length", "content-type", "transfer-encoding"):
            headers.pop(name, None)
    if _origin(url) != _origin(request.url):
        headers = httpx.Headers({name: value for name, value in headers.items() if name in _KEPT_ACROSS_ORIGINS})
    return httpx.Request(method, url, headers=headers, content=content or None, extensions=extensions)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)
