"""Awa (awa-pg): a Rust core on PostgreSQL alone with Python handlers."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import awa

from bench.marks import mark
from bench.peers.base import Spec, database_url

CONCURRENCY = 100
_WORKER = ("{python}", "-m", "bench.peers.awa")

SPEC = Spec(
    title="Awa",
    settings=f"2 worker processes of {CONCURRENCY} jobs at once; queue storage; finished jobs kept",
    batch="enqueue_many_copy, 1,000 at a time",
    worker_commands=(_WORKER, _WORKER),
    done_sql="SELECT count(*) FROM awa.terminal_jobs WHERE state = 'completed'",
    packages=("awa-pg",),
)


@dataclass
class Noop:
    """The arguments of the no-op job."""

    number: int


def setup() -> None:
    """Run Awa's migrations."""

    async def create() -> None:
        async with awa.AsyncClient(database_url()) as client:
            await client.migrate()
            await client.install_queue_storage()

    asyncio.run(create())


class Producer:
    """Inserts through Awa's own pool."""

    async def open(self) -> None:
        self._client = awa.AsyncClient(database_url())

    async def send_one(self, number: int) -> None:
        await self._client.insert(Noop(number), queue="bench")

    async def send_batch(self, numbers: Sequence[int]) -> None:
        await self._client.enqueue_many_copy([Noop(number) for number in numbers], queue="bench")

    async def close(self) -> None:
        await self._client.close()


async def work() -> None:
    """Run one worker process until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = awa.AsyncClient(database_url(), max_connections=20)

    @client.task(Noop, queue="bench")
    async def noop(job: awa.Job) -> None:
        mark(job.args.number)

    await client.start([("bench", CONCURRENCY)], queue_storage_schema="awa")
    await stop.wait()
    await client.shutdown()
    await client.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(work()))
