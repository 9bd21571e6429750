"""Schedules: what is to be submitted again and again, and when it is due next."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule before it is stored. `task` is JSON text."""

    schedule_id: str
    tenant_id: str
    name: str
    cron: str
    timezone: str
    task: str
    misfire: str
    next_fire_at: datetime
    created_by: str


_NOW = text("SELECT clock_timestamp() AS now")
_INSERT = text("""
INSERT INTO schedules (schedule_id, tenant_id, name, cron, timezone, task, misfire, next_fire_at, created_by,
                       created_at)
VALUES (:schedule_id, :tenant_id, :name, :cron, :timezone, :task, :misfire, :next_fire_at, :created_by,
        clock_timestamp())
ON CONFLICT (tenant_id, name) DO NOTHING
""")
_GET = text("SELECT * FROM schedules WHERE schedule_id = :schedule_id")
_NAMED = text("SELECT * FROM schedules WHERE tenant_id = :tenant_id AND name = :name")
_PAGE = text("""
SELECT * FROM schedules
WHERE (CAST(:tenant_id AS text) IS NULL OR tenant_id = :tenant_id)
  AND (CAST(:before AS text) IS NULL OR schedule_id < :before)
ORDER BY schedule_id DESC LIMIT :limit
""")
_DELETE = text("DELETE FROM schedules WHERE schedule_id = :schedule_id")


async def now(connection: AsyncConnection) -> datetime:
    """Read the database's clock."""
    moment: datetime = (await connection.execute(_NOW)).scalar_one()
    return moment


async def insert(connection: AsyncConnection, schedule: NewSchedule) -> Row[Any]:
    """Store a schedule; returns the row of that tenant and name, which is an older one where the name was taken."""
    names = NewSchedule.__dataclass_fields__
    await connection.execute(_INSERT, {name: getattr(schedule, name) for name in names})
    return (await connection.execute(_NAMED, {"tenant_id": schedule.tenant_id, "name": schedule.name})).one()


async def get(connection: AsyncConnection, schedule_id: str) -> Row[Any] | None:
    """Read one schedule."""
    return (await connection.execute(_GET, {"schedule_id": schedule_id})).first()


async def page(
    connection: AsyncConnection, *, tenant_id: str | None, before: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Read schedules, newest first."""
    values = {"tenant_id": tenant_id, "before": before, "limit": limit}
    return (await connection.execute(_PAGE, values)).fetchall()


async def delete(connection: AsyncConnection, schedule_id: str) -> None:
    """Remove a schedule; tasks that it made stay."""
    await connection.execute(_DELETE, {"schedule_id": schedule_id})


_DUE = text("""
SELECT s.*, clock_timestamp() AS now, n.service_class, n.weight, n.max_open_tasks
FROM schedules s JOIN tenants n ON n.tenant_id = s.tenant_id
WHERE s.next_fire_at <= clock_timestamp() ORDER BY s.next_fire_at, s.schedule_id LIMIT :limit
""")
# Compare-and-set: of several who fired the same schedule one moves it on.
_MOVE_ON = text("""
UPDATE schedules SET next_fire_at = :next_fire_at, last_error = :last_error,
       last_fired_at = COALESCE(:fired_at, last_fired_at), last_task_id = COALESCE(:task_id, last_task_id)
WHERE schedule_id = :schedule_id AND next_fire_at = :expected
""")


async def due(connection: AsyncConnection, limit: int) -> Sequence[Row[Any]]:
    """Read schedules whose time has come, with their tenants' facts and the database's clock."""
    return (await connection.execute(_DUE, {"limit": limit})).fetchall()


async def move_on(
    connection: AsyncConnection,
    schedule_id: str,
    *,
    expected: datetime,
    next_fire_at: datetime,
    fired_at: datetime | None,
    task_id: str | None,
    last_error: str | None,
) -> None:
    """Set the next due time of a schedule that is still due at `expected`; None keeps what was recorded last."""
    await connection.execute(
        _MOVE_ON,
        {
            "schedule_id": schedule_id,
            "expected": expected,
            "next_fire_at": next_fire_at,
            "fired_at": fired_at,
            "task_id": task_id,
            "last_error": last_error,
        },
    )
