"""Procrastinate: PostgreSQL alone, job rows kept."""

# The peer lives in its own environment, where no type checker looks.
# mypy: disable-error-code="import-not-found,untyped-decorator"

import asyncio
import os
from collections.abc import Sequence

import procrastinate

from bench.marks import mark
from bench.peers.base import Spec, database_url

CONCURRENCY = 10

_WORKER = (
    "{python}",
    *("-m", "procrastinate", "--app", "bench.peers.procrastinate.app", "worker"),
    *("--concurrency", str(CONCURRENCY), "--queues", "bench"),
)

SPEC = Spec(
    title="Procrastinate",
    settings=f"2 worker processes of concurrency {CONCURRENCY}; LISTEN/NOTIFY on; finished jobs kept",
    batch="batch_defer_async, 1,000 at a time",
    worker_commands=(_WORKER, _WORKER),
    done_sql="SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
    packages=("procrastinate", "psycopg"),
)

if "BENCH_DATABASE_URL" in os.environ:
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=database_url(), min_size=2, max_size=CONCURRENCY)
    )

    @app.task(name="noop", queue="bench")
    async def noop(number: int) -> None:
        """Do nothing but mark the task."""
        mark(number)


def setup() -> None:
    """Apply the schema."""

    async def create() -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    asyncio.run(create())


class Producer:
    """Defers through the app's own pool."""

    async def open(self) -> None:
        await app.open_async()

    async def send_one(self, number: int) -> None:
        await noop.defer_async(number=number)

    async def send_batch(self, numbers: Sequence[int]) -> None:
        await noop.batch_defer_async(*({"number": number} for number in numbers))

    async def close(self) -> None:
        await app.close_async()
