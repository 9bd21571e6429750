"""Flights: what was released and has not been settled. Release puts a row here, claim gives it an owner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.lifecycle import Move
from app.store.database import Database
from app.store.hot import HotRow
from app.store.leaders import LEADS_SQL
from app.store.places import CLASS_OF_RETURN, PLACE, place_of
from app.store.tallies import tally_sql
from app.store.tasks import move_sql

# One round of the leader in one statement: the proof of leadership, the move of the rows, the round's record, the
# virtual times. A former leader whose lease is over moves nothing, whatever it has planned.
RELEASE = text(f"""
WITH {LEADS_SQL},
given AS MATERIALIZED (
    SELECT g.task_id FROM unnest(CAST(:ids AS text[])) AS g(task_id) WHERE EXISTS (SELECT 1 FROM leads)
),
round AS (
    INSERT INTO release_rounds (at, epoch, policy_version, figures)
    SELECT clock_timestamp(), :epoch, :policy_version, :figures WHERE EXISTS (SELECT 1 FROM leads)
    RETURNING round_id
),
gone AS (DELETE FROM ready r USING given g WHERE r.task_id = g.task_id RETURNING r.*),
turns AS (
    UPDATE lanes l SET virtual_time = v.virtual_time
    FROM unnest(CAST(:turn_classes AS text[]), CAST(:turn_tenants AS text[]), CAST(:turn_times AS float8[]))
         AS v(priority_class, tenant_id, virtual_time)
    WHERE l.priority_class = v.priority_class AND l.tenant_id = v.tenant_id AND l.virtual_time < v.virtual_time
      AND EXISTS (SELECT 1 FROM leads)
),
clocks AS (
    INSERT INTO class_clocks (priority_class, virtual_time)
    SELECT * FROM unnest(CAST(:clock_classes AS text[]), CAST(:clock_times AS float8[]))
    ON CONFLICT (priority_class) DO UPDATE SET virtual_time = GREATEST(class_clocks.virtual_time, excluded.virtual_time)
)
INSERT INTO flights ({PLACE}, released_at, round_id)
SELECT {place_of("g")}, clock_timestamp(), round.round_id FROM gone g, round
RETURNING task_id, priority_class, task_type, tenant_id, task_group, attempt, dispatch, submitted_at, queued_at, released_at,
          traceparent, tracestate
""")


# Give released but unclaimed rows back to the waiting, as a new stay in the queue: an old message becomes stale.
HAND_BACK = text(f"""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:dispatches AS int[])) AS g(task_id, dispatch)
),
gone AS (
    DELETE FROM flights f USING given g
    WHERE f.task_id = g.task_id AND f.dispatch = g.dispatch AND f.fence IS NULL RETURNING f.*
),
tally AS (
    {tally_sql("gone", ":worker_id")}
)
INSERT INTO delayed ({PLACE}, due_at, why)
SELECT {place_of("g", priority_class=CLASS_OF_RETURN, dispatch="g.dispatch + 1")}, clock_timestamp(), :why FROM gone g
RETURNING task_id
""")


async def hand_back(
    database: Database,
    rows: Sequence[tuple[str, int]],
    *,
    worker_id: str,
    why: str,
    retry_for_seconds: float | None = None,
) -> set[str]:
    """Return (task_id, dispatch) flights that nobody claimed to the waiting; tells which were."""
    ordered = sorted(rows)
    back = await database.execute_hot(
        HAND_BACK,
        {"ids": [r[0] for r in ordered], "dispatches": [r[1] for r in ordered], "worker_id": worker_id, "why": why},
        retry_for_seconds=retry_for_seconds,
    )
    return {row.task_id for row in back}


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A task that this worker owns until `lease_until`, by `fence`. JSON fields hold exact JSON text.

    `attempt` counts this run; `crashes` counts workers that were lost while it ran.
    """

    task_id: str
    fence: int
    attempt: int
    max_attempts: int
    type: str
    tenant_id: str
    task_group: str
    priority_class: str
    timeout_seconds: float
    crashes: int
    input: str | None
    input_ref: str | None
    metadata: str | None
    submitted_at: datetime
    queued_at: datetime
    released_at: datetime
    claimed_at: datetime
    due_at: datetime | None
    valid_until: datetime | None
    traceparent: str | None
    tracestate: str | None
    dispatch: int


# No CTE is joined with another: the planner joins them by nested loops, whose cost grows with the square of a batch
# (40 µs a task in batches of 400, against 13 µs for what is read from one CTE).
CLAIM = text(f"""
WITH want AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:dispatches AS int[]), CAST(:types AS text[]), CAST(:tenants AS text[]))
    AS w(task_id, dispatch, task_type, tenant_id)
),
mine AS (
    UPDATE flights f SET fence = nextval('fence_seq'), worker_id = :worker_id, claimed_at = clock_timestamp(),
           lease_until = clock_timestamp() + CAST(:lease_seconds AS float8) * interval '1 second'
    FROM want w
    WHERE f.task_id = w.task_id AND f.dispatch = w.dispatch AND f.fence IS NULL AND f.tenant_id = w.tenant_id
      AND f.task_type = w.task_type AND (f.valid_until IS NULL OR f.valid_until > clock_timestamp())
    RETURNING f.*
),
moved AS (
    {move_sql(Move.CLAIM, "mine", "attempts = t.attempts + 1, started_at = COALESCE(t.started_at, m.claimed_at), next_attempt_at = NULL")}
    RETURNING m.task_id, m.fence, t.attempts, t.max_attempts, m.task_type, m.tenant_id, m.task_group, m.priority_class,
              t.timeout_seconds AS run_seconds, t.crashes, t.input, t.input_ref, t.metadata, m.submitted_at, m.queued_at,
              m.released_at, m.claimed_at, t.due_at, m.valid_until, m.traceparent, m.tracestate, m.dispatch
)
SELECT * FROM moved
""")

# The answer to a claim whose COMMIT answer was lost. Fences only grow, and a worker has one claim in flight at a time:
# what it had claimed before (and may be running, for a message that came twice) has a fence that it knows.
_CLAIMED_BY_ME = text("""
SELECT m.task_id, m.fence, v.attempts, v.max_attempts, m.task_type, m.tenant_id, m.task_group, m.priority_class,
       v.timeout_seconds AS run_seconds, v.crashes, v.input, v.input_ref, v.metadata, m.submitted_at, m.queued_at, m.released_at,
       m.claimed_at, v.due_at, m.valid_until, m.traceparent, m.tracestate, m.dispatch
FROM flights m JOIN tasks v ON v.task_id = m.task_id
WHERE m.task_id = ANY(CAST(:ids AS text[])) AND m.worker_id = :worker_id AND m.lease_until > clock_timestamp()
  AND m.fence > :known_fence
""")


def _claimed(row: HotRow) -> Claimed:
    values: tuple[Any, ...] = tuple(row)
    return Claimed(*values)


async def claim(
    database: Database,
    wants: Sequence[tuple[str, int, str, str]],
    *,
    worker_id: str,
    lease_seconds: float,
    retry_for_seconds: float,
    in_doubt_after: int | None = None,
) -> list[Claimed]:
    """Claim (task_id, dispatch, type, tenant_id) flights by compare-and-set; returns those that are now ours.

    After a try whose answer was lost, `in_doubt_after` is the highest fence that this worker knows of: what it owns
    beyond that, the lost try had claimed, and it is returned as well.
    """
    ordered = sorted(wants)
    rows = await database.execute_hot(
        CLAIM,
        {
            "ids": [w[0] for w in ordered],
            "dispatches": [w[1] for w in ordered],
            "types": [w[2] for w in ordered],
            "tenants": [w[3] for w in ordered],
            "worker_id": worker_id,
            "lease_seconds": lease_seconds,
        },
        retry_for_seconds=retry_for_seconds,
    )
    found = [_claimed(row) for row in rows]
    if in_doubt_after is not None and len(found) < len(wants):
        known = {claimed.task_id for claimed in found}
        rest = [w[0] for w in ordered if w[0] not in known]
        rows = await database.execute_hot(
            _CLAIMED_BY_ME,
            {"ids": rest, "worker_id": worker_id, "known_fence": in_doubt_after},
            retry_for_seconds=retry_for_seconds,
        )
        found.extend(_claimed(row) for row in rows)
    return found


# Renew what is held and learn, in the same statement, what is no longer ours and what shall be cancelled.
_RENEW = text("""
UPDATE flights f SET lease_until = clock_timestamp() + CAST(:lease_seconds AS float8) * interval '1 second'
FROM unnest(CAST(:ids AS text[]), CAST(:fences AS bigint[])) AS g(task_id, fence)
WHERE f.task_id = g.task_id AND f.fence = g.fence
RETURNING f.task_id, f.fence, f.cancel_requested_at IS NOT NULL AS cancel
""")
_HELD = text("""
SELECT f.task_id, f.fence, f.cancel_requested_at IS NOT NULL AS cancel
FROM unnest(CAST(:ids AS text[]), CAST(:fences AS bigint[])) AS g(task_id, fence)
JOIN flights f ON f.task_id = g.task_id AND f.fence = g.fence
""")


# Claims whose answer the worker has not read yet, because a handler blocks its loop.
_RENEW_UNREAD = text("""
UPDATE flights SET lease_until = clock_timestamp() + CAST(:lease_seconds AS float8) * interval '1 second'
WHERE worker_id = :worker_id AND fence IS NOT NULL AND task_id <> ALL (CAST(:known AS text[]))
RETURNING task_id
""")


async def hold_unread(database: Database, *, worker_id: str, known: Sequence[str], renew_seconds: float) -> None:
    """Renew what a worker has claimed and does not know of yet; `known` are the task_ids that it does know of."""
    values = {"worker_id": worker_id, "known": list(known), "lease_seconds": renew_seconds}
    await database.execute_hot(_RENEW_UNREAD, values, retry_for_seconds=1.0)


@dataclass(frozen=True, slots=True)
class Held:
    """Which (task_id, fence) pairs are still owned, and which of them somebody asked to cancel."""

    owned: frozenset[tuple[str, int]]
    cancel: frozenset[tuple[str, int]]


async def hold(
    database: Database, pairs: Sequence[tuple[str, int]], *, renew_seconds: float | None, retry_for_seconds: float = 0.0
) -> Held:
    """Look at (task_id, fence) pairs, renewing their leases to `renew_seconds` from now where it is given."""
    ordered = sorted(pairs)
    values: dict[str, Any] = {"ids": [p[0] for p in ordered], "fences": [p[1] for p in ordered]}
    if renew_seconds is not None:
        values["lease_seconds"] = renew_seconds
    rows = await database.execute_hot(
        _RENEW if renew_seconds is not None else _HELD, values, retry_for_seconds=retry_for_seconds
    )
    return Held(
        frozenset((row.task_id, row.fence) for row in rows),
        frozenset((row.task_id, row.fence) for row in rows if row.cancel),
    )


# Right after the server's start no lease counts as over: whoever holds one could not renew it while the server was away.
# While the server was away no worker could renew: they have this long after its start before a lease that is over counts.
SERVER_UP_SECONDS = 5
_LOST = text(f"""
SELECT f.task_id, f.fence, f.worker_id, f.priority_class, f.task_type, f.tenant_id, f.queued_at, f.claimed_at, f.traceparent,
       t.attempts, t.max_attempts, t.crashes, f.cancel_requested_at IS NOT NULL AS cancel, clock_timestamp() AS now
FROM flights f JOIN tasks t ON t.task_id = f.task_id
WHERE f.fence IS NOT NULL AND f.lease_until < clock_timestamp()
  AND pg_postmaster_start_time() < clock_timestamp() - interval '{SERVER_UP_SECONDS} seconds'
ORDER BY f.task_id LIMIT :limit
""")


async def lost(connection: AsyncConnection, limit: int) -> Sequence[Row[Any]]:
    """Read claimed flights whose lease is over."""
    return (await connection.execute(_LOST, {"limit": limit})).fetchall()


_UNCLAIMED = text("""
SELECT task_id, priority_class, task_type, tenant_id, attempt, dispatch, submitted_at, traceparent, tracestate
FROM flights
WHERE fence IS NULL AND COALESCE(published_at, released_at) < clock_timestamp() - CAST(:seconds AS float8) * interval '1 second'
  AND priority_class = ANY(CAST(:classes AS text[]))
ORDER BY task_id LIMIT :limit
""")
_PUBLISHED_AGAIN = text("UPDATE flights SET published_at = clock_timestamp() WHERE task_id = ANY(CAST(:ids AS text[]))")


async def unclaimed(
    connection: AsyncConnection, *, classes: Sequence[str], older_than_seconds: float, limit: int
) -> Sequence[Row[Any]]:
    """Read released flights that nobody claimed for a while, and mark them as published again now."""
    rows = (
        await connection.execute(_UNCLAIMED, {"seconds": older_than_seconds, "classes": list(classes), "limit": limit})
    ).fetchall()
    if rows:
        await connection.execute(_PUBLISHED_AGAIN, {"ids": [row.task_id for row in rows]})
    return rows


_ALL_UNCLAIMED = text("SELECT task_id, dispatch FROM flights WHERE fence IS NULL ORDER BY task_id")


async def all_unclaimed(connection: AsyncConnection) -> list[tuple[str, int]]:
    """Read every released flight without an owner (for a broker that forgot all its messages)."""
    return [(row.task_id, row.dispatch) for row in (await connection.execute(_ALL_UNCLAIMED)).fetchall()]


_COUNTS = text("""
SELECT priority_class, count(*) AS in_flight FROM flights GROUP BY priority_class
""")
_COUNTS_BY = text("""
SELECT task_type, tenant_id, task_group, count(*) AS n FROM flights GROUP BY task_type, tenant_id, task_group
""")


async def counts(connection: AsyncConnection) -> dict[str, int]:
    """Count flights per class, released and running together."""
    return {row.priority_class: row.in_flight for row in (await connection.execute(_COUNTS)).fetchall()}


async def counts_by_name(connection: AsyncConnection) -> Mapping[tuple[str, str, str], int]:
    """Count flights per (type, tenant, group), for the running caps."""
    return {
        (row.task_type, row.tenant_id, row.task_group): row.n
        for row in (await connection.execute(_COUNTS_BY)).fetchall()
    }
