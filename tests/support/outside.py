"""An outside system over HTTP that counts what it accepts, by Idempotency-Key, and misbehaves when told to.

`POST /effects` accepts; `GET /effects/<key>` says what became of a key (404: nothing). The server lives in the test's
process, so that whoever calls may be killed.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.ports import free_port

_REASONS = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}


class Outside:
    """The system. `accepted` counts acceptances by key, `asked` questions; `hangs` accepts and never answers.

    With `forgets` a repeated key is accepted again; `delay_seconds` is waited after the acceptance; with `fails`
    nothing is accepted and 503 is answered.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.accepted: Counter[str] = Counter()
        self.arrived: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.hangs = False
        self.forgets = False
        self.fails = False
        self.delay_seconds = 0.0
        self._go = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Its address; nobody listens there while it refuses."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def total(self) -> int:
        """How often anything was accepted."""
        return self.accepted.total()

    async def listen(self) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def refuse(self) -> None:
        """Refuse every connection, and drop those that stand."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for talk in list(self._talks):
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def answer_all(self) -> None:
        """Answer whom it left without an answer, and hang no more."""
        self.hangs = False
        self._go.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            while request := await _read(reader):
                status, body = await self._answer(*request)
                data = json.dumps(body).encode()
                head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\n"
                writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            self._talks.discard(talk)
            writer.close()

    async def _answer(self, method: str, path: str, key: str) -> tuple[int, dict[str, str]]:
        if method == "GET":
            asked = path.rpartition("/")[2]
            self.asked[asked] += 1
            return (200, {"id": _id_of(asked)}) if self.accepted[asked] else (404, {})
        self.arrived[key] += 1
        if self.fails:
            return 503, {}
        if not self.accepted[key] or self.forgets:
            self.accepted[key] += 1
        if self.hangs:
            await self._go.wait()
        await asyncio.sleep(self.delay_seconds)
        return 200, {"id": _id_of(key)}


def _id_of(key: str) -> str:
    return f"out-{key[:8]}"


async def _read(reader: asyncio.StreamReader) -> tuple[str, str, str] | None:
    first = await reader.readline()
    if not first:
        return None
    method, path, _ = first.decode().split(" ", 2)
    headers: dict[str, str] = {}
    while (line := (await reader.readline()).decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    await reader.readexactly(int(headers.get("content-length", "0")))
    return method, path, headers.get("idempotency-key", "")


@asynccontextmanager
async def an_outside() -> AsyncIterator[Outside]:
    """Have an outside system for the length of a test."""
    outside = Outside()
    await outside.listen()
    try:
        yield outside
    finally:
        with suppress(Exception):
            await outside.refuse()
