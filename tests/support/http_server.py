"""A small HTTP/1.1 server for what is called from here: it counts connections, keeps requests and answers as told."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Read the body as JSON."""
        return json.loads(self.body)


Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Server:
    """A running server: `answer` may be changed at any time."""

    answer: Callable[[Request], Answer]
    port: int = 0
    scheme: str = "http"
    connections: int = 0
    requests: list[Request] = field(default_factory=list)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        """Give the URL of a path."""
        return f"{self.scheme}://{host}:{self.port}{path}"


def a_response(
    status: int = 200,
    body: bytes | str = b"",
    headers: Iterable[tuple[str, str]] = (),
    content_type: str | None = "application/json",
) -> bytes:
    """Spell a whole response; the connection is closed after it."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", "Connection: close"]
    lines += [f"Content-Type: {content_type}"] if content_type else []
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode() + content


@contextlib.asynccontextmanager
async def serving(
    answer: Callable[[Request], Answer] = lambda request: a_response(body="{}"),
    *,
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[Server]:
    """Serve on a free port of 127.0.0.1."""
    server = Server(answer, scheme="https" if context else "http")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            request = await _read(reader)
            server.requests.append(request)
            answered = server.answer(request)
            if isinstance(answered, bytes):
                writer.write(answered)
                await writer.drain()
            else:
                await answered(writer)
        writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context, limit=2**20)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)
