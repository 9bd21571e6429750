"""How one task and each class stand right now: the flight, the round that released it, what waits and runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

_FLIGHT = text("""
SELECT attempt, dispatch, fence, worker_id, queued_at, released_at, claimed_at, cancel_requested_at, round_id
FROM flights WHERE task_id = :task_id
""")
_DELAYED = text("SELECT due_at, why FROM delayed WHERE task_id = :task_id")
_SUSPENDED = text("""
SELECT s.approval_id, s.suspended_at, a.action, a.due_at, a.expires_at
FROM suspended s LEFT JOIN approvals a ON a.approval_id = s.approval_id WHERE s.task_id = :task_id
""")
_VIRTUAL_TIME = text("""
SELECT l.virtual_time FROM ready r JOIN lanes l ON l.lane_id = r.lane_id WHERE r.task_id = :task_id
""")
_ROUNDS = text("""
SELECT round_id, at, policy_version, figures FROM release_rounds WHERE round_id = ANY(CAST(:ids AS bigint[]))
""")
_LATEST_ROUND = text("SELECT round_id, at, policy_version, figures FROM release_rounds ORDER BY round_id DESC LIMIT 1")
_FIGURES = text("SELECT priority_class, at, figures FROM class_figures")
_WAITING_OF = text("""
SELECT l.priority_class, count(*) AS waiting FROM lanes l JOIN ready r ON r.lane_id = l.lane_id
WHERE CAST(:tenant_id AS text) IS NULL OR l.tenant_id = :tenant_id GROUP BY l.priority_class
""")
_FLYING_OF = text("""
SELECT priority_class, count(*) FILTER (WHERE fence IS NULL) AS released, count(fence) AS running FROM flights
WHERE CAST(:tenant_id AS text) IS NULL OR tenant_id = :tenant_id GROUP BY priority_class
""")
_RUNNING_BY_WORKER = text("""
SELECT worker_id, array_agg(task_id ORDER BY task_id) AS task_ids FROM flights
WHERE fence IS NOT NULL GROUP BY worker_id
""")


async def flight_of(connection: AsyncConnection, task_id: str) -> Row[Any] | None:
    """Read the flight of a task that is released or running."""
    return (await connection.execute(_FLIGHT, {"task_id": task_id})).one_or_none()


async def delayed_of(connection: AsyncConnection, task_id: str) -> Row[Any] | None:
    """Read until when a task waits, and why."""
    return (await connection.execute(_DELAYED, {"task_id": task_id})).one_or_none()


async def suspended_of(connection: AsyncConnection, task_id: str) -> Row[Any] | None:
    """Read which approval a task waits for."""
    return (await connection.execute(_SUSPENDED, {"task_id": task_id})).one_or_none()


async def virtual_time_of(connection: AsyncConnection, task_id: str) -> float | None:
    """Read where a waiting task's tenant stands among those of its class; None when it does not wait for its turn."""
    found: float | None = (await connection.execute(_VIRTUAL_TIME, {"task_id": task_id})).scalar_one_or_none()
    return found


async def rounds(connection: AsyncConnection, round_ids: Sequence[int]) -> Mapping[int, Row[Any]]:
    """Read the records of release rounds; those that retention has removed are left out."""
    found = (await connection.execute(_ROUNDS, {"ids": list(round_ids)})).fetchall()
    return {row.round_id: row for row in found}


async def latest_round(connection: AsyncConnection) -> Row[Any] | None:
    """Read the record of the latest release round."""
    return (await connection.execute(_LATEST_ROUND)).one_or_none()


async def class_figures(connection: AsyncConnection) -> Mapping[str, Row[Any]]:
    """Read what the dispatcher last wrote down of each class."""
    return {row.priority_class: row for row in (await connection.execute(_FIGURES)).fetchall()}


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """Tasks of a class: due and not released, released and not claimed, running."""

    waiting: int = 0
    released: int = 0
    running: int = 0


async def counts_of(connection: AsyncConnection, tenant_id: str | None) -> Mapping[str, ClassCounts]:
    """Count the tasks of each class, of one tenant or of all."""
    waiting = {
        row.priority_class: row.waiting for row in await connection.execute(_WAITING_OF, {"tenant_id": tenant_id})
    }
    flying = {row.priority_class: row for row in await connection.execute(_FLYING_OF, {"tenant_id": tenant_id})}
    return {
        name: ClassCounts(
            waiting.get(name, 0),
            flying[name].released if name in flying else 0,
            flying[name].running if name in flying else 0,
        )
        for name in waiting.keys() | flying.keys()
    }


async def running_by_worker(connection: AsyncConnection) -> Mapping[str, Sequence[str]]:
    """Read which tasks each worker runs."""
    return {row.worker_id: row.task_ids for row in (await connection.execute(_RUNNING_BY_WORKER)).fetchall()}
