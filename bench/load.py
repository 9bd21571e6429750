"""The HTTP load generator, a process of its own: `python -m bench.load REPORT`, one JSON order on standard input.

The report goes to a file: what uvloop leaves of standard output writes only part of a long text to a pipe now and then.

Closed loop: each connection sends its next POST when its last was answered. Open loop (`per_second` above 0): POSTs are
due at a fixed pace whatever the answers do. It sits on the same cores as what it loads; its own CPU is in its answer.
"""

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.http import Connection, encode

_NUMBER = "@number@"


@dataclass(frozen=True, slots=True)
class Order:
    """What to send: `body` is a template whose @number@ becomes the task's number, counted from `first`."""

    host: str
    port: int
    path: str
    body: str
    key: str | None
    first: int
    count: int
    connections: int
    per_second: float = 0.0


class Generator:
    """Carries out one order and keeps when each POST was sent and answered."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.sent_ns = [0] * order.count
        self.answered_ns = [0] * order.count
        self.statuses: dict[int, int] = {}
        self._numbers: Iterator[int] = itertools.count()

    async def run(self) -> None:
        connections = [await Connection.open(self.order.host, self.order.port) for _ in range(self.order.connections)]
        if self.order.per_second:
            await self._at_a_pace(connections)
        else:
            await asyncio.gather(*(self._without_pause(connection) for connection in connections))
        for connection in connections:
            connection.close()

    async def _without_pause(self, connection: Connection) -> None:
        while (position := next(self._numbers)) < self.order.count:
            await self._post(connection, position)

    async def _at_a_pace(self, connections: list[Connection]) -> None:
        idle: asyncio.Queue[Connection] = asyncio.Queue()
        for connection in connections:
            idle.put_nowait(connection)

        async def post(position: int) -> None:
            connection = await idle.get()
            await self._post(connection, position)
            idle.put_nowait(connection)

        due = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for position in range(self.order.count):
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due += 1 / self.order.per_second
                group.create_task(post(position))

    async def _post(self, connection: Connection, position: int) -> None:
        body = self.order.body.replace(_NUMBER, str(self.order.first + position)).encode()
        request = encode("POST", self.order.path, body, self.order.key)
        self.sent_ns[position] = time.monotonic_ns()
        answer = await connection.request(request)
        self.answered_ns[position] = time.monotonic_ns()
        self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1


def main() -> None:
    """Read the order, carry it out, write what happened to the file that is named."""
    order = Order(**json.loads(sys.stdin.readline()))
    generator = Generator(order)
    uvloop.run(generator.run())
    report = {
        "sent_ns": generator.sent_ns,
        "answered_ns": generator.answered_ns,
        "statuses": {str(status): number for status, number in generator.statuses.items()},
        "cpu_seconds": time.process_time(),
    }
    Path(sys.argv[1]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
