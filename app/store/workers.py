"""The register of live workers: who they are, what they serve, and what they have claimed and let go of so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.database import Database

_BEAT = text("""
INSERT INTO workers (worker_id, pool, classes, task_types, slots, draining, host, pid, version, started_at, heartbeat_at, alive_until)
VALUES (:worker_id, :pool, CAST(:classes AS text[]), CAST(:task_types AS text[]), :slots, :draining, :host, :pid, :version,
        clock_timestamp(), clock_timestamp(), clock_timestamp() + CAST(:alive_seconds AS float8) * interval '1 second')
ON CONFLICT (worker_id) DO UPDATE SET heartbeat_at = clock_timestamp(), alive_until = excluded.alive_until,
    draining = excluded.draining, slots = excluded.slots, classes = excluded.classes
""")
_LEAVE = text("DELETE FROM workers WHERE worker_id = :worker_id")
_LIVE = text("""
SELECT worker_id, pool, classes, task_types, slots, draining, host, pid, version, started_at, heartbeat_at
FROM workers WHERE alive_until > clock_timestamp() ORDER BY worker_id
""")
_FORGET = text("""
WITH gone AS (DELETE FROM workers WHERE alive_until < clock_timestamp() - interval '1 minute' RETURNING worker_id)
SELECT worker_id FROM gone
""")
_FORGET_TALLIES = text("""
DELETE FROM tallies t WHERE NOT EXISTS (SELECT 1 FROM workers w WHERE w.worker_id = t.worker_id)
AND NOT EXISTS (SELECT 1 FROM flights f WHERE f.worker_id = t.worker_id)
""")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a worker says of itself. `classes` is never empty: a worker that serves all names them all."""

    worker_id: str
    pool: str
    classes: tuple[str, ...]
    task_types: tuple[str, ...]
    slots: int
    host: str
    pid: int
    version: str


async def beat(database: Database, identity: Identity, *, draining: bool, alive_seconds: float) -> None:
    """Register or renew a worker for `alive_seconds`."""
    await database.execute_hot(
        _BEAT,
        {
            "worker_id": identity.worker_id,
            "pool": identity.pool,
            "classes": list(identity.classes),
            "task_types": list(identity.task_types),
            "slots": identity.slots,
            "draining": draining,
            "host": identity.host,
            "pid": identity.pid,
            "version": identity.version,
            "alive_seconds": alive_seconds,
        },
        retry_for_seconds=0.0,
    )


async def leave(database: Database, worker_id: str) -> None:
    """Take a worker off the register."""
    await database.execute_hot(_LEAVE, {"worker_id": worker_id}, retry_for_seconds=1.0)


async def live(connection: AsyncConnection) -> Sequence[Row[Any]]:
    """Read the workers whose heartbeat is fresh."""
    return (await connection.execute(_LIVE)).fetchall()


async def forget_dead(connection: AsyncConnection) -> list[str]:
    """Delete workers that have been silent for a minute, and tallies that nobody adds to any more."""
    gone = [row.worker_id for row in (await connection.execute(_FORGET)).fetchall()]
    await connection.execute(_FORGET_TALLIES)
    return gone
