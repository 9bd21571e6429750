"""Oban for Python: PostgreSQL alone, job rows kept. Needs Python 3.12 or newer."""

# The peer lives in its own environment, where no type checker looks.
# mypy: disable-error-code="import-not-found,untyped-decorator,attr-defined"

import asyncio
from collections.abc import Sequence

import orjson
from oban import Oban, worker
from oban.schema import install
from psycopg.types.json import set_json_dumps, set_json_loads

from bench.marks import mark
from bench.peers.base import Spec, database_url

CONCURRENCY = 100

_WORKER = (
    "{python}",
    *("-m", "oban", "start", "--dsn", "{database}", "--queues", f"bench:{CONCURRENCY}", "--pool-max-size", "10"),
    *("--cron-modules", "bench.peers.oban", "--log-level", "WARNING"),
)

SPEC = Spec(
    title="Oban",
    settings=f"2 worker processes of {CONCURRENCY} jobs at once; LISTEN/NOTIFY on; finished jobs kept",
    batch="enqueue_many, 1,000 at a time in one transaction",
    worker_commands=(_WORKER, _WORKER),
    done_sql="SELECT count(*) FROM oban_jobs WHERE state = 'completed'",
    packages=("oban", "psycopg"),
)


@worker(queue="bench")
class Noop:
    """Does nothing but mark the task."""

    async def process(self, job: object) -> None:
        mark(job.args["number"])


def setup() -> None:
    """Install the schema."""

    async def create() -> None:
        pool = await Oban.create_pool(database_url())
        await install(pool)
        await pool.close()

    asyncio.run(create())


class Producer:
    """Enqueues as a client without queues of its own."""

    async def open(self) -> None:
        set_json_dumps(orjson.dumps)
        set_json_loads(orjson.loads)
        self._pool = await Oban.create_pool(database_url())
        self._oban = await Oban(pool=self._pool).start()

    async def send_one(self, number: int) -> None:
        await self._oban.enqueue(Noop.new({"number": number}))

    async def send_batch(self, numbers: Sequence[int]) -> None:
        await self._oban.enqueue_many(Noop.new({"number": number}) for number in numbers)

    async def close(self) -> None:
        await self._oban.stop()
        await self._pool.close()
