"""Lists of tasks: newest first by id, which is stable under inserts, and without offsets."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.lifecycle import TaskStatus
from app.store.filters import TaskFilter, task_conditions
from app.store.llm_usage import USAGE
from app.store.schema import dead_letters, delayed, flights, ready, suspended, tasks
from app.store.tasks import TASK_COLUMNS

_COLUMNS = [tasks.c[name.strip()] for name in TASK_COLUMNS.split(",")]
_STANDING: Mapping[str, tuple[sa.Table, ...]] = {
    TaskStatus.SCHEDULED: (delayed,),
    TaskStatus.FAILED_RETRYABLE: (delayed,),
    TaskStatus.QUEUED: (ready, delayed, flights),
    TaskStatus.RUNNING: (flights,),
    TaskStatus.AWAITING_APPROVAL: (suspended,),
    TaskStatus.DEAD_LETTERED: (dead_letters,),
}
"""Where the tasks of a status stand: found there by id, not by reading through the tasks of all other statuses."""


async def list_tasks(
    connection: AsyncConnection, which: TaskFilter, *, before: str | None, limit: int, with_result: bool
) -> Sequence[Row[Any]]:
    """Read tasks, newest first, beginning below the id `before`."""
    columns = [*_COLUMNS, sa.literal_column(USAGE).label("usage"), *([tasks.c.result] if with_result else [])]
    query = sa.select(*columns).where(*task_conditions(which)).order_by(tasks.c.task_id.desc()).limit(limit)
    if before is not None:
        query = query.where(tasks.c.task_id < before)
    if which.status and _STANDING.keys() >= set(which.status):
        tables = dict.fromkeys(table for status in which.status for table in _STANDING[status])
        places = sa.union_all(*(sa.select(table.c.task_id) for table in tables)).subquery()
        query = query.join(places, places.c.task_id == tasks.c.task_id)
    return (await connection.execute(query)).fetchall()
