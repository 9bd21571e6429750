"""The one way out: an httpx transport that connects only to addresses it has checked itself.

The name is resolved here, every address of the answer is checked, and the connection goes to an address of that very
answer: there is no second resolution that could say something else (DNS rebinding). The certificate is still checked
against the name. This holds for every connection, so for every redirect too, whatever client sits on top.
"""

import asyncio
import socket
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import httpcore
import httpx

from app.domain.addresses import Allowed, check_address, check_host, check_url
from app.domain.errors import DeadLetter

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""(host, port) → addresses as text, in the order in which they should be tried. Raises OSError where there are none."""

DEADLINE = "despacho_deadline"
"""Extension of a request: the moment (`time.monotonic()`) by which its response must have been read."""
MAX_BYTES = "despacho_max_bytes"
"""Extension of a request: how large its response may be, decoded."""

_MAXIMUM_ADDRESSES = 64
_CHUNK_BYTES = 64 * 1024


class ResponseTooLarge(DeadLetter):
    """A response is larger than may be read; the rest of it was not."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__("response_too_large", f"the response is larger than the {max_bytes} bytes that may be read")
        self.max_bytes = max_bytes

    def __reduce__(self) -> tuple[type["ResponseTooLarge"], tuple[int]]:  # type: ignore[override]
        return type(self), (self.max_bytes,)


class InvalidEncoding(DeadLetter):
    """A response's Content-Encoding is unknown, or its content is not what it says."""

    def __init__(self, message: str) -> None:
        super().__init__("invalid_response", message)

    def __reduce__(self) -> tuple[type["InvalidEncoding"], tuple[str]]:  # type: ignore[override]
        return type(self), (self.message,)


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system's resolver. Raises OSError (`socket.gaierror`)."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class _CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Opens connections to checked addresses only; what httpcore builds on a connection (TLS, HTTP) stays its own."""

    def __init__(self, allowed: Allowed, resolver: Resolve) -> None:
        self._allowed = allowed
        self._resolve = resolver
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that answers, within `timeout` seconds for all together.

        Raises AddressForbidden before anything is sent where one of the addresses is forbidden.
        """
        name = check_host(host, self._allowed)
        try:
            async with asyncio.timeout(timeout):
                return await self._connect(name, port, socket_options)
        except TimeoutError:
            raise httpcore.ConnectTimeout("no connection was made in time") from None

    async def _connect(self, name: str, port: int, socket_options: Any) -> httpcore.AsyncNetworkStream:
        try:
            texts = (await self._resolve(name, port))[:_MAXIMUM_ADDRESSES]
        except (OSError, UnicodeError):
            raise httpcore.ConnectError("the host's name cannot be resolved") from None
        addresses = [str(check_address(text, host=name, allowed=self._allowed)) for text in texts]
        for left in range(len(addresses), 0, -1):
            address = addresses[-left]
            try:
                # An address that swallows packets leaves time to the others; the last may take what there is.
                async with asyncio.timeout(3.0 if left > 1 else None):
                    return await self._inner.connect_tcp(address, port, socket_options=socket_options)
            except (TimeoutError, httpcore.ConnectTimeout, httpcore.ConnectError):
                continue
        raise httpcore.ConnectError("the host refused the connection or cannot be reached")

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Never: calls go to hosts."""
        raise httpcore.UnsupportedProtocol("unix sockets are not called")

    async def sleep(self, seconds: float) -> None:
        """Wait between two tries of a connection."""
        await asyncio.sleep(seconds)


class _BoundedBody(httpx.AsyncByteStream):
    """A response's body, decoded, up to a size and a deadline."""

    def __init__(
        self, inner: httpx.AsyncByteStream, decoder: "_Decoder", *, max_bytes: int, deadline: float | None
    ) -> None:
        self._inner = inner
        self._decoder = decoder
        self._max_bytes = max_bytes
        self._deadline = deadline

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = received = 0
        chunks = aiter(self._inner)
        while (raw := await self._next(chunks)) is not None:
            received += len(raw)
            if received > self._max_bytes:
                raise ResponseTooLarge(self._max_bytes)
            for piece in self._decoder.feed(raw):
                seen += len(piece)
                if seen > self._max_bytes:
                    raise ResponseTooLarge(self._max_bytes)
                yield piece
        self._decoder.end()

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        async with _until(self._deadline):
            return await anext(chunks, None)

    async def aclose(self) -> None:
        """Give the connection back, or close it where something is left unread."""
        await self._inner.aclose()


class _Decoder:
    """Undoes `gzip` and `deflate` in bounded pieces: a small body must not unfold to a huge one in memory."""

    def __init__(self, encoding: str) -> None:
        names = [name for name in (one.strip().lower() for one in encoding.split(",")) if name not in ("", "identity")]
        if len(names) > 1 or (names and names[0] not in ("gzip", "x-gzip", "deflate")):
            raise InvalidEncoding("the response's Content-Encoding should be gzip, deflate or identity")
        self._begun = False
        self._inflate = zlib.decompressobj(wbits=47) if names else None  # 47: gzip or zlib, told by the header

    def feed(self, raw: bytes) -> Iterable[bytes]:
        """Decode what came, in pieces of at most 64 KiB. Raises InvalidEncoding."""
        if self._inflate is None:
            yield raw
            return
        self._begun = True
        while raw:
            try:
                piece = self._inflate.decompress(raw, _CHUNK_BYTES)
            except zlib.error:
                raise InvalidEncoding("the response is not encoded as its Content-Encoding says") from None
            if piece:
                yield piece
            raw = self._inflate.unconsumed_tail

    def end(self) -> None:
        """Say that nothing more comes. Raises InvalidEncoding where the encoded content was cut off."""
        if self._inflate is not None and self._begun and not self._inflate.eof:
            raise InvalidEncoding("the response's encoded content is cut off")


class _until:  # noqa: N801 - reads as the statement that it is
    """End what runs inside at a moment of `time.monotonic()`. Raises httpx.ReadTimeout."""

    def __init__(self, deadline: float | None) -> None:
        self._timeout = asyncio.timeout(None if deadline is None else deadline - time.monotonic())

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        try:
            await self._timeout.__aexit__(*raised)
        except TimeoutError:
            raise httpx.ReadTimeout("the response did not end within its deadline") from None


class GuardedTransport(httpx.AsyncHTTPTransport):
    """An httpx transport behind the guard; give it to any `httpx.AsyncClient` made with `trust_env=False`."""

    def __init__(
        self,
        allowed: Allowed,
        *,
        max_response_bytes: int,
        deadline_seconds: float,
        ca_file: str | None = None,
        resolver: Resolve = resolve,
        max_connections: int = 100,
    ) -> None:
        """`deadline_seconds` bounds one request, from its connection to the last byte of its response."""
        context = tls_context(ca_file)
        super().__init__(verify=context, trust_env=False, http2=False)
        # httpx offers no way to hand over a network; its pool is httpcore's public class, made here instead.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=max_connections,
            max_keepalive_connections=min(20, max_connections),
            keepalive_expiry=5.0,
            network_backend=_CheckedNetwork(allowed, resolver),
        )
        self._allowed = allowed
        self._max_response_bytes = max_response_bytes
        self._deadline_seconds = deadline_seconds

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request. Raises AddressForbidden, ResponseTooLarge, InvalidEncoding and httpx.TransportError."""
        check_url(str(request.url), self._allowed)
        deadline = time.monotonic() + self._deadline_seconds
        if (asked := request.extensions.get(DEADLINE)) is not None:
            deadline = min(deadline, float(asked))
        max_bytes = int(request.extensions.get(MAX_BYTES, self._max_response_bytes))
        request.headers["Accept-Encoding"] = "gzip"
        async with _until(deadline):
            response = await super().handle_async_request(request)
        try:
            return _bounded(response, max_bytes, deadline)
        except BaseException:
            await response.aclose()
            raise


def tls_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Make the verifying TLS context: the usual authorities, and those of `ca_file` (PEM) beside them.

    Raises OSError (`ssl.SSLError`) where the file cannot be read.
    """
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context


def _bounded(response: httpx.Response, max_bytes: int, deadline: float) -> httpx.Response:
    """Put the bounds around a response's body; it reaches the client decoded, without its Content-Encoding."""
    if sum(len(name) + len(value) for name, value in response.headers.raw) > 256 * 1024:
        raise ResponseTooLarge(256 * 1024)
    decoder = _Decoder(response.headers.get("content-encoding", ""))
    headers = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-encoding"]
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - this transport is asynchronous
    return httpx.Response(
        response.status_code,
        headers=headers,
        stream=_BoundedBody(response.stream, decoder, max_bytes=max_bytes, deadline=deadline),
        extensions=response.extensions,
    )
