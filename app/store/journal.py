"""The journals of tasks: what their steps returned, and the last state that each saved of itself.

Writers prove with the flight's fence that the attempt is theirs; the flight is locked meanwhile, so that a takeover
waits for them and then sees all that they wrote. Values are exact JSON text.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.database import Database


class Step(msgspec.Struct, frozen=True):
    """One result to keep. `position` counts the steps of a task in the order in which they ended."""

    task_id: str
    fence: int
    name: str
    fingerprint: bytes
    position: int
    value: str
    size_bytes: int


class Checkpoint(msgspec.Struct, frozen=True):
    """One state to keep."""

    task_id: str
    fence: int
    state: str
    size_bytes: int


class Kept(msgspec.Struct, frozen=True):
    """One thing that a task has kept: a step, or (without a name) its state. No value: it has to be read by itself."""

    task_id: str
    name: str | None
    fingerprint: bytes | None
    size_bytes: int
    value: str | None


# The first result of a step stays: a repeated statement, or a run that is over, replaces nothing.
_STORE = text("""
WITH owned AS MATERIALIZED (
    SELECT g.* FROM unnest(CAST(:ids AS text[]), CAST(:fences AS bigint[]), CAST(:names AS text[]),
        CAST(:fingerprints AS bytea[]), CAST(:positions AS int[]), CAST(:sizes AS int[]), CAST(:texts AS text[]))
        AS g(task_id, fence, name, fingerprint, position, size_bytes, value)
    JOIN flights f ON f.task_id = g.task_id AND f.fence = g.fence
    ORDER BY g.task_id, g.position FOR KEY SHARE OF f
),
kept AS (
    INSERT INTO steps (task_id, fence, name, fingerprint, position, size_bytes, value, stored_at)
    SELECT task_id, fence, name, fingerprint, position, size_bytes, value, clock_timestamp() FROM owned
    ON CONFLICT (task_id, name, fingerprint) DO NOTHING
)
SELECT DISTINCT task_id, fence FROM owned
""")
_SAVE = text("""
WITH owned AS MATERIALIZED (
    SELECT g.* FROM unnest(CAST(:ids AS text[]), CAST(:fences AS bigint[]), CAST(:sizes AS int[]), CAST(:texts AS text[]))
        AS g(task_id, fence, size_bytes, state)
    JOIN flights f ON f.task_id = g.task_id AND f.fence = g.fence
    ORDER BY g.task_id FOR KEY SHARE OF f
),
kept AS (
    INSERT INTO checkpoints (task_id, fence, size_bytes, state, stored_at)
    SELECT task_id, fence, size_bytes, state, clock_timestamp() FROM owned
    ON CONFLICT (task_id) DO UPDATE SET fence = excluded.fence, size_bytes = excluded.size_bytes, state = excluded.state,
        stored_at = excluded.stored_at
)
SELECT task_id, fence FROM owned
""")


async def store(database: Database, steps: Sequence[Step], *, retry_for_seconds: float) -> set[tuple[str, int]]:
    """Keep results of attempts that still own their tasks; returns the (task_id, fence) that do.

    Safe to repeat.
    """
    ordered = sorted(steps, key=lambda step: (step.task_id, step.position))
    values = {
        **_common(ordered),
        "names": [step.name for step in ordered],
        "fingerprints": [step.fingerprint for step in ordered],
        "positions": [step.position for step in ordered],
        "texts": [step.value for step in ordered],
    }
    rows = await database.execute_hot(_STORE, values, retry_for_seconds=retry_for_seconds)
    return {(row.task_id, row.fence) for row in rows}


async def save(database: Database, states: Sequence[Checkpoint], *, retry_for_seconds: float) -> set[tuple[str, int]]:
    """Keep states, at most one of a task, of attempts that still own it; returns the (task_id, fence) that do.

    Safe to repeat.
    """
    ordered = sorted(states, key=lambda one: one.task_id)
    values = {**_common(ordered), "texts": [one.state for one in ordered]}
    rows = await database.execute_hot(_SAVE, values, retry_for_seconds=retry_for_seconds)
    return {(row.task_id, row.fence) for row in rows}


def _common(ordered: Sequence[Step] | Sequence[Checkpoint]) -> dict[str, Any]:
    return {
        "ids": [one.task_id for one in ordered],
        "fences": [one.fence for one in ordered],
        "sizes": [one.size_bytes for one in ordered],
    }


# Everything that a task has kept, with the values of its first steps up to a size: the others are read when they are
# asked for, so that a run that needs none of them does not carry them.
_LOAD = text("""
SELECT task_id, CAST(NULL AS text) AS name, CAST(NULL AS bytea) AS fingerprint, size_bytes, state AS value
FROM checkpoints WHERE task_id = ANY(CAST(:ids AS text[]))
UNION ALL
SELECT s.task_id, s.name, s.fingerprint, s.size_bytes,
       CASE WHEN sum(s.size_bytes) OVER (PARTITION BY s.task_id ORDER BY s.position, s.name) <= :ahead_bytes
            THEN s.value END
FROM steps s WHERE s.task_id = ANY(CAST(:ids AS text[]))
""")
_READ = text("""
SELECT value FROM steps WHERE task_id = :task_id AND name = :name AND fingerprint = :fingerprint
""")


async def load(
    database: Database, task_ids: Sequence[str], *, ahead_bytes: int, retry_for_seconds: float
) -> dict[str, list[Kept]]:
    """Read what these tasks have kept; values of steps only up to `ahead_bytes` a task."""
    values = {"ids": sorted(task_ids), "ahead_bytes": ahead_bytes}
    found: dict[str, list[Kept]] = {task_id: [] for task_id in task_ids}
    for row in await database.execute_hot(_LOAD, values, retry_for_seconds=retry_for_seconds):
        found[row.task_id].append(Kept(*tuple(row)))
    return found


async def read(
    database: Database, task_id: str, name: str, fingerprint: bytes, *, retry_for_seconds: float
) -> str | None:
    """Read the value of one step; None when it was not kept."""
    values = {"task_id": task_id, "name": name, "fingerprint": fingerprint}
    rows = await database.execute_hot(_READ, values, retry_for_seconds=retry_for_seconds)
    return rows[0].value if rows else None


_LISTED = text("""
SELECT stored_at, 'step_kept' AS kind, name, size_bytes, fence FROM steps WHERE task_id = :task_id
UNION ALL
SELECT stored_at, 'checkpoint_kept', NULL, size_bytes, fence FROM checkpoints WHERE task_id = :task_id
ORDER BY stored_at DESC LIMIT :limit
""")


async def listed(connection: AsyncConnection, task_id: str, limit: int) -> Sequence[Row[Any]]:
    """List what a task has kept, the newest first: names and sizes, no values."""
    return (await connection.execute(_LISTED, {"task_id": task_id, "limit": limit})).fetchall()
