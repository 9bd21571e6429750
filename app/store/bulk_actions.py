"""Bulk actions: a stored state machine with a cursor and a fixed end, worked off in small steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Row, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.lifecycle import FINAL
from app.store.filters import TaskFilter, task_conditions
from app.store.schema import tasks


class BulkKind(StrEnum):
    """What a bulk action does to each thing that it matches."""

    CANCEL = "cancel"
    REPROCESS = "reprocess"
    PURGE = "purge"


class BulkState(StrEnum):
    """Where a bulk action stands; the values are part of the REST contract."""

    RUNNING = "running"
    DONE = "done"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class NewBulkAction:
    """A bulk action as it is created. `filter` is JSON text; nothing above `upper_bound` is ever touched."""

    bulk_action_id: str
    tenant_id: str | None
    kind: BulkKind
    filter: str
    reason: str
    actor: str
    state: BulkState
    matched: int
    item_limit: int | None
    rate_per_second: float | None
    upper_bound: str | None


_INSERT = text("""
INSERT INTO bulk_actions (bulk_action_id, tenant_id, kind, filter, reason, actor, state, matched, item_limit,
                          rate_per_second, upper_bound, created_at, updated_at)
VALUES (:bulk_action_id, :tenant_id, :kind, :filter, :reason, :actor, :state, :matched, :item_limit,
        :rate_per_second, :upper_bound, clock_timestamp(), clock_timestamp())
ON CONFLICT (bulk_action_id) DO NOTHING
""")
_GET = text("SELECT * FROM bulk_actions WHERE bulk_action_id = :bulk_action_id")
_ABORT = text("""
UPDATE bulk_actions SET state = 'aborted', updated_at = clock_timestamp()
WHERE bulk_action_id = :bulk_action_id AND state = 'running'
""")


async def insert(connection: AsyncConnection, action: NewBulkAction) -> None:
    """Store a new bulk action; repeating it changes nothing."""
    names = NewBulkAction.__dataclass_fields__
    await connection.execute(_INSERT, {name: getattr(action, name) for name in names})


async def get(connection: AsyncConnection, bulk_action_id: str) -> Row[Any] | None:
    """Read one bulk action."""
    return (await connection.execute(_GET, {"bulk_action_id": bulk_action_id})).first()


async def abort(connection: AsyncConnection, bulk_action_id: str) -> None:
    """Stop a running bulk action; waits for the step that is being made."""
    await connection.execute(_ABORT, {"bulk_action_id": bulk_action_id})


_DUE = text("""
SELECT * FROM bulk_actions
WHERE state = 'running' AND (next_step_at IS NULL OR next_step_at <= clock_timestamp())
  AND bulk_action_id > :above
ORDER BY bulk_action_id LIMIT 1 FOR UPDATE SKIP LOCKED
""")
_ADVANCE = text("""
UPDATE bulk_actions SET cursor = :cursor, done = done + :done, failed = failed + :failed, errors = :errors,
       state = :state, updated_at = clock_timestamp(),
       next_step_at = clock_timestamp() + CAST(:pause_seconds AS float8) * interval '1 second'
WHERE bulk_action_id = :bulk_action_id
""")


async def next_due(connection: AsyncConnection, *, above: str) -> Row[Any] | None:
    """Hold the first bulk action above the id `above` whose next step is due."""
    return (await connection.execute(_DUE, {"above": above})).first()


async def advance(
    connection: AsyncConnection,
    bulk_action_id: str,
    *,
    cursor: str | None,
    done: int,
    failed: int,
    errors: str,
    state: BulkState,
    pause_seconds: float,
) -> None:
    """Record one step in the transaction of its work; `errors` is JSON text, the next step is due after the pause."""
    await connection.execute(
        _ADVANCE,
        {
            "bulk_action_id": bulk_action_id,
            "cursor": cursor,
            "done": done,
            "failed": failed,
            "errors": errors,
            "state": state,
            "pause_seconds": pause_seconds,
        },
    )


_OPEN = tasks.c.status.not_in(sorted(FINAL))


async def count_open_tasks(connection: AsyncConnection, found: TaskFilter) -> tuple[int, str | None]:
    """Count the unfinished tasks that a filter matches and name the highest id among them."""
    query = select(func.count(), func.max(tasks.c.task_id)).where(*task_conditions(found), _OPEN)
    row = (await connection.execute(query)).one()
    return int(row[0]), row[1]


async def open_tasks_after(
    connection: AsyncConnection, found: TaskFilter, *, cursor: str | None, upper_bound: str, limit: int
) -> Sequence[str]:
    """Read the ids of the next unfinished tasks of a bulk action, in order: above `cursor`, up to `upper_bound`."""
    query = select(tasks.c.task_id).where(*task_conditions(found), _OPEN, tasks.c.task_id <= upper_bound)
    if cursor is not None:
        query = query.where(tasks.c.task_id > cursor)
    rows = await connection.execute(query.order_by(tasks.c.task_id).limit(limit))
    return [row.task_id for row in rows.fetchall()]
