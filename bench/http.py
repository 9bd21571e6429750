"""A lean HTTP/1.1 client on kept connections: cheap enough not to be what is measured."""

import asyncio
from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: its status and body."""

    status: int
    body: bytes


def encode(method: str, path: str, body: bytes = b"", key: str | None = None) -> bytes:
    """Encode one request with its fixed headers."""
    lines = [f"{method} {path} HTTP/1.1", "Host: bench", f"Content-Length: {len(body)}"]
    if body:
        lines.append("Content-Type: application/json")
    if key:
        lines.append(f"Authorization: Bearer {key}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class Connection(asyncio.Protocol):
    """One kept connection; one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._buffer = bytearray()

    @classmethod
    async def open(cls, host: str, port: int) -> "Connection":
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    async def request(self, request: bytes) -> Answer:
        """Send one encoded request and return its answer; raises ConnectionError when the peer closes."""
        if self._transport is None or self.closed:
            raise ConnectionError("the connection is closed")
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiter

    @property
    def closed(self) -> bool:
        """Whether either side has closed it; a server does so with an idle one after some seconds."""
        return self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by class.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        length = int(_header(head, b"content-length") or 0)
        if len(self._buffer) < end + 4 + length:
            return
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(Answer(int(head[9:12]), body))

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error or ConnectionError("the server closed the connection"))


def _header(head: bytes, name: bytes) -> bytes | None:
    start = head.find(b"\r\n" + name + b":")
    if start < 0:
        return None
    start += len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip()
