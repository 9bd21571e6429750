"""The processes of an installation: live workers, and whether everything that work needs is there."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.runtime import Runtime
from app.services.classes import consumers_of
from app.store import leaders, standing, workers
from app.store.database import Database

_PATIENCE_SECONDS = 2.0


async def read_workers(database: Database) -> list[tuple[Row[Any], Sequence[str]]]:
    """Read the live workers, each with the ids of the tasks that it runs."""

    async def work(connection: AsyncConnection) -> list[tuple[Row[Any], Sequence[str]]]:
        running = await standing.running_by_worker(connection)
        return [(row, running.get(row.worker_id, ())) for row in await workers.live(connection)]

    return await database.run(work)


@dataclass(frozen=True, slots=True)
class Health:
    """What is there; `consumers` counts the live workers of each class of the policy."""

    database: bool
    broker: bool
    dispatcher: bool
    consumers: dict[str, int]

    @property
    def is_complete(self) -> bool:
        """Say whether nothing is missing."""
        return self.database and self.broker and self.dispatcher and all(self.consumers.values())


async def look(runtime: Runtime) -> Health:
    """Look at everything that work needs, within two seconds."""
    names = [one.name for one in runtime.policy.current.classes]
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await runtime.database.ping()
            served = await runtime.database.run(workers.live, retry_for_seconds=0.0)
            leader = await leaders.leader(runtime.database, "dispatcher")
    except Exception:
        return Health(False, runtime.broker.connected, False, dict.fromkeys(names, 0))
    consumers = consumers_of([row.classes for row in served])
    return Health(
        database=True,
        broker=runtime.broker.connected,
        dispatcher=leader is not None and leader.alive,
        consumers={name: consumers.get(name, 0) for name in names},
    )
