"""How dependencies stand, and which worker holds which slices of their limits.

A slice is renewed in one short transaction under the dependency's row lock: what workers hold together can then never
be more than the limit, and what one of them learned (an outage, a Retry-After) is there for all with the next renewal.
The arithmetic is `domain.dependencies.renew`. Rows hold JSON, because nothing but that function reads them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.breaker import Outcomes
from app.domain.dependencies import Ask, Dependency, Others, Renewal, Slice, Standing, renew
from app.store.database import Database

_EPOCH = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS float8)"
STANDINGS = f"SELECT name, standing, {_EPOCH} AS now FROM dependencies"
_ENSURE = text("""
INSERT INTO dependencies (name, standing, updated_at) VALUES (:name, '{}', clock_timestamp()) ON CONFLICT DO NOTHING
""")
# Its own statement: the slices must be read by a snapshot that is taken after the lock was granted.
_LOCK = text(f"SELECT standing, {_EPOCH} AS now FROM dependencies WHERE name = :name FOR UPDATE")
_OTHERS = text("""
SELECT slices, probes FROM dependency_slices
WHERE dependency = :name AND worker_id <> :worker_id AND expires_at > clock_timestamp() ORDER BY worker_id
""")
_WRITE = text("""
WITH stands AS (UPDATE dependencies SET standing = :standing, updated_at = clock_timestamp() WHERE name = :name)
INSERT INTO dependency_slices (dependency, worker_id, slices, probes, in_use, waiting, expires_at)
VALUES (:name, :worker_id, :slices, :probes, :in_use, :waiting,
        clock_timestamp() + CAST(:kept_seconds AS float8) * interval '1 second')
ON CONFLICT (dependency, worker_id) DO UPDATE SET slices = excluded.slices, probes = excluded.probes,
    in_use = excluded.in_use, waiting = excluded.waiting, expires_at = excluded.expires_at
""")
_FORGET_WORKER = text("DELETE FROM dependency_slices WHERE worker_id = :worker_id")
_FORGET_EXPIRED = text("DELETE FROM dependency_slices WHERE expires_at < clock_timestamp() - interval '1 minute'")
_IN_USE = text("""
SELECT dependency, sum(in_use) AS in_use, sum(waiting) AS waiting, count(*) AS workers FROM dependency_slices
WHERE expires_at > clock_timestamp() GROUP BY dependency
""")
_ALL = text(STANDINGS)

_encode = msgspec.json.Encoder().encode
_standing_of = msgspec.json.Decoder(Standing).decode
_slices_of = msgspec.json.Decoder(list[Slice]).decode


@dataclass(frozen=True, slots=True)
class Report:
    """What one worker says of one dependency when it asks for its next slice."""

    asks: Sequence[Ask]
    outcomes: Outcomes
    probing: int
    in_use: int
    waiting: int


def standing_of(document: str) -> Standing:
    """Read a standing as it is kept."""
    return _standing_of(document)


async def renew_slice(
    database: Database, dependency: Dependency, worker_id: str, report: Report, *, kept_seconds: float
) -> tuple[Renewal, float]:
    """Report and get the next slice, which lasts `kept_seconds`; returns it with the database's time in seconds.

    It is not repeated on an error: the caller reports what was not taken in with its next.
    """
    name = dependency.name

    async def once(connection: AsyncConnection) -> tuple[Renewal, float]:
        locked = (await connection.execute(_LOCK, {"name": name})).one_or_none()
        if locked is None:
            await connection.execute(_ENSURE, {"name": name})
            locked = (await connection.execute(_LOCK, {"name": name})).one()
        rows = (await connection.execute(_OTHERS, {"name": name, "worker_id": worker_id})).fetchall()
        others = Others(tuple(one for row in rows for one in _slices_of(row.slices)), sum(row.probes for row in rows))
        renewal = renew(
            dependency, _standing_of(locked.standing), others, report.asks,
            outcomes=report.outcomes, probing=report.probing, now=locked.now, kept_seconds=kept_seconds,
        )  # fmt: skip
        await connection.execute(
            _WRITE,
            {
                "name": name,
                "worker_id": worker_id,
                "standing": _encode(renewal.standing).decode(),
                "slices": _encode(renewal.slices).decode(),
                "probes": renewal.probes,
                "in_use": report.in_use,
                "waiting": report.waiting,
                "kept_seconds": kept_seconds,
            },
        )
        return renewal, float(locked.now)

    return await database.run(once, retry_for_seconds=0.0)


async def forget_worker(database: Database, worker_id: str) -> None:
    """Give up every slice of a worker that ends in good order."""
    await database.execute_hot(_FORGET_WORKER, {"worker_id": worker_id}, retry_for_seconds=0.0)


async def forget_expired(connection: AsyncConnection) -> int:
    """Remove slices that nobody has renewed for a minute."""
    return (await connection.execute(_FORGET_EXPIRED)).rowcount


async def standings(connection: AsyncConnection) -> tuple[dict[str, Standing], float]:
    """Read how every dependency stands that was ever called, with the database's time in seconds."""
    rows = (await connection.execute(_ALL)).fetchall()
    return {row.name: _standing_of(row.standing) for row in rows}, rows[0].now if rows else 0.0


async def in_use(connection: AsyncConnection) -> dict[str, Row[Any]]:
    """Read how many calls are under way and wait, and how many workers hold slices, by dependency."""
    return {row.dependency: row for row in (await connection.execute(_IN_USE)).fetchall()}
