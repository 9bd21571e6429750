"""A private PostgreSQL and a private RabbitMQ for one run: free ports, temporary directories, default durability.

They are those of the tests (`tests/support`) and of `despacho up` (`app/embedded`), except that here PostgreSQL
flushes: fsync, synchronous_commit and full_page_writes are on.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import aio_pika

from app.embedded.postgres import EmbeddedPostgres
from tests.support.ports import free_port
from tests.support.rabbitmq import RabbitNode
from tests.support.reaper import reaper

_SETTINGS = {"max_connections": "200"}


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running private PostgreSQL."""

    server_url: str
    pid: int

    def url(self, database: str) -> str:
        return urlunsplit(urlsplit(self.server_url)._replace(path=f"/{database}"))


@dataclass(frozen=True, slots=True)
class Rabbit:
    """A running private RabbitMQ node."""

    node: RabbitNode
    pid: int

    @property
    def url(self) -> str:
        return self.node.url

    def version(self) -> str:
        return asyncio.run(self.node.ctl("--quiet", "version")).strip()

    def queue_depths(self) -> dict[str, int]:
        """Return ready plus unacknowledged messages by queue."""
        rows = asyncio.run(self.node.ctl("--quiet", "list_queues", "name", "messages", "--no-table-headers"))
        return {name: int(depth) for name, depth in (row.split("\t") for row in rows.split("\n") if "\t" in row)}

    def delete_queues(self) -> None:
        """Delete every queue; over AMQP, because each rabbitmqctl call costs a second of CPU."""
        asyncio.run(_delete(self.url, list(self.queue_depths())))


async def _delete(url: str, names: list[str]) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        for name in names:
            await channel.queue_delete(name)


@contextlib.contextmanager
def private_postgres() -> Iterator[Postgres]:
    """Start a PostgreSQL of its own and stop it at the end."""
    server = EmbeddedPostgres(reaper().directory("bench-postgres") / "data", free_port(), settings=_SETTINGS)
    server.start()
    assert server.pid is not None
    try:
        yield Postgres(server.url, server.pid)
    finally:
        server.stop()


@contextlib.contextmanager
def private_rabbit() -> Iterator[Rabbit]:
    """Start a RabbitMQ node of its own and stop it at the end."""
    node = RabbitNode()
    asyncio.run(node.start())
    assert node.pid is not None
    try:
        yield Rabbit(node, node.pid)
    finally:
        asyncio.run(node.close())
