"""Reading tasks: one, and pages of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store import task_lists
from app.store.database import Database
from app.store.filters import TaskFilter
from app.store.tasks import get_tasks


@dataclass(frozen=True, slots=True)
class Page:
    """Rows, newest first; `last_id` is where the next page begins, or None when there is none."""

    rows: Sequence[Row[Any]]
    last_id: str | None


def cut(rows: Sequence[Row[Any]], size: int, id_column: str) -> Page:
    """Make a page of up to `size` + 1 rows that were read."""
    page = rows[:size]
    return Page(page, getattr(page[-1], id_column) if len(rows) > size else None)


async def get_task(database: Database, task_id: str) -> Row[Any] | None:
    """Read a whole task, or None."""
    found = await database.run(lambda connection: get_tasks(connection, [task_id]))
    return found.get(task_id)


async def get_tasks_by_id(database: Database, task_ids: Sequence[str]) -> dict[str, Row[Any]]:
    """Read whole tasks by id; those that do not exist are left out."""
    if not task_ids:
        return {}
    return dict(await database.run(lambda connection: get_tasks(connection, task_ids)))


async def list_tasks(database: Database, which: TaskFilter, *, after: str | None, size: int, with_result: bool) -> Page:
    """Read one page of tasks."""

    async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
        return await task_lists.list_tasks(connection, which, before=after, limit=size + 1, with_result=with_result)

    return cut(await database.run(work), size, "task_id")
