"""Taskiq on RabbitMQ (taskiq-aio-pika) with its results in PostgreSQL (taskiq-postgres)."""

# The peer lives in its own environment, where no type checker looks.
# mypy: disable-error-code="import-not-found,untyped-decorator"

import asyncio
import os
from collections.abc import Sequence

from taskiq_aio_pika import AioPikaBroker
from taskiq_pg.asyncpg import AsyncpgResultBackend

from bench.marks import mark
from bench.peers.base import Spec, amqp_url, database_url

CONCURRENCY = 100
PIPELINED = 100

SPEC = Spec(
    title="Taskiq, results in PostgreSQL",
    settings=(
        f"2 processes on uvloop, {CONCURRENCY} tasks each at once; prefetch {2 * CONCURRENCY}; quorum queue; "
        "publisher confirms; acknowledged when the result is saved"
    ),
    batch=f"{PIPELINED} kiq() calls at once on one channel (Taskiq has no batch call)",
    worker_commands=(
        (
            "{python}",
            *("-m", "taskiq", "worker", "bench.peers.taskiq:broker", "--workers", "2"),
            *("--max-async-tasks", str(CONCURRENCY), "--max-prefetch", str(CONCURRENCY)),
            *("--ack-type", "when_saved", "--log-level", "WARNING"),
        ),
    ),
    done_sql="SELECT count(*) FROM taskiq_results WHERE result IS NOT NULL",
    packages=("taskiq", "taskiq-aio-pika", "taskiq-postgres", "aio-pika", "asyncpg"),
    uses_broker=True,
)

if "BENCH_AMQP_URL" in os.environ:
    results = AsyncpgResultBackend(database_url())
    broker = AioPikaBroker(amqp_url(), result_backend=results, qos=2 * CONCURRENCY)

    @broker.task(task_name="noop")
    async def noop(number: int) -> None:
        """Do nothing but mark the task."""
        mark(number)


def setup() -> None:
    """Create the result table and the queues, so that two workers do not race to."""

    async def create() -> None:
        await broker.startup()
        await broker.shutdown()

    asyncio.run(create())


class Producer:
    """Publishes with confirms on one channel."""

    async def open(self) -> None:
        await broker.startup()

    async def send_one(self, number: int) -> None:
        await noop.kiq(number)

    async def send_batch(self, numbers: Sequence[int]) -> None:
        for start in range(0, len(numbers), PIPELINED):
            await asyncio.gather(*(noop.kiq(number) for number in numbers[start : start + PIPELINED]))

    async def close(self) -> None:
        await broker.shutdown()
