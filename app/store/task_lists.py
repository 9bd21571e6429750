"""Lists of tasks: newest first by id, which is stable under inserts, and without offsets."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.filters import TaskFilter, task_conditions
from app.store.schema import delayed, flights, tasks
from app.store.tasks import TASK_COLUMNS

_COLUMNS = [tasks.c[name.strip()] for name in TASK_COLUMNS.split(",")]
_ELSEWHERE = frozenset({"scheduled", "failed_retryable", "running"})
"""Statuses whose tasks stand in a small table of their own: found there, not by reading the tasks through."""


async def list_tasks(
    connection: AsyncConnection, which: TaskFilter, *, before: str | None, limit: int, with_result: bool
) -> Sequence[Row[Any]]:
    """Read tasks, newest first, beginning below the id `before`."""
    columns = [*_COLUMNS, *([tasks.c.result] if with_result else [])]
    query = sa.select(*columns).where(*task_conditions(which)).order_by(tasks.c.task_id.desc()).limit(limit)
    if before is not None:
        query = query.where(tasks.c.task_id < before)
    if which.status and _ELSEWHERE.issuperset(which.status):
        places = sa.union_all(sa.select(delayed.c.task_id), sa.select(flights.c.task_id))
        query = query.where(tasks.c.task_id.in_(places))
    return (await connection.execute(query)).fetchall()
