"""Awa (awa-pg): a Rust core on PostgreSQL alone with Python handlers."""

# The peer lives in its own environment, where no type checker looks.
# mypy: disable-error-code="import-not-found,untyped-decorator"

import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import awa

from bench.marks import mark
from bench.peers.base import Spec, database_url

CONCURRENCY = 100
CLAIM_BATCH = 100
_WORKER = ("{python}", "-m", "bench.peers.awa")

SPEC = Spec(
    title="Awa",
    settings=(
        f"2 worker processes of {CONCURRENCY} jobs at once, one claimer each (2 and 4 were slower); queue storage; "
        "a finished job leaves only a count"
    ),
    batch="enqueue_many_copy, 1,000 at a time",
    worker_commands=(_WORKER, _WORKER),
    # Not the view awa.terminal_jobs: on fresh tables its plan took 94 s to count 20,000 rows.
    done_sql=(
        "SELECT (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)"
        " + (SELECT coalesce(sum(pruned_completed_count), 0) FROM awa.queue_terminal_rollups)"
    ),
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

    queue = {"name": "bench", "max_workers": CONCURRENCY, "claim_batch_size": CLAIM_BATCH}
    await client.start([queue], queue_storage_schema="awa")
    await stop.wait()
    await client.shutdown()
    await client.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(work()))
