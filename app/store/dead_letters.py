"""The dead letters: read them, put their tasks back, record what never was a task, remove them.

The dead letter is the place of a dead task: whoever deletes the row owns the move. `task_id` is null for a message
that could not be read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.lifecycle import Move
from app.store.cancellations import TALLY_NAME
from app.store.filters import DeadLetterFilter, dead_letter_conditions
from app.store.places import PLACE
from app.store.schema import dead_letters
from app.store.tallies import tally_sql
from app.store.tasks import move_sql

_TABLE = dead_letters.c


def _seen_by(tenant_id: str | None) -> list[ColumnElement[bool]]:
    return [] if tenant_id is None else [_TABLE.tenant_id == tenant_id]


async def page(
    connection: AsyncConnection, found: DeadLetterFilter, *, tenant_id: str | None, before: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Read dead letters, newest first, from below the id `before`; a tenant sees its own only."""
    query = select(dead_letters).where(*dead_letter_conditions(found), *_seen_by(tenant_id))
    if before is not None:
        query = query.where(_TABLE.dead_letter_id < before)
    return (await connection.execute(query.order_by(_TABLE.dead_letter_id.desc()).limit(limit))).fetchall()


async def get(connection: AsyncConnection, either_id: str) -> Row[Any] | None:
    """Read the dead letter with this dead-letter id or of this task."""
    column = _TABLE.task_id if either_id.startswith("task_") else _TABLE.dead_letter_id
    return (await connection.execute(select(dead_letters).where(column == either_id))).first()


async def sample(
    connection: AsyncConnection, found: DeadLetterFilter, *, tenant_id: str | None, n: int
) -> Sequence[Row[Any]]:
    """Draw `n` dead letters at random."""
    query = select(dead_letters).where(*dead_letter_conditions(found), *_seen_by(tenant_id))
    return (await connection.execute(query.order_by(func.random()).limit(n))).fetchall()


_SUMMARY = text("""
SELECT error_type, type, count(*) AS n, min(failed_at) AS oldest_failed_at, max(failed_at) AS newest_failed_at,
       count(*) FILTER (WHERE failed_at > clock_timestamp() - interval '1 hour') AS last_hour,
       count(*) FILTER (WHERE failed_at > clock_timestamp() - interval '7 days') AS last_7_days
FROM dead_letters WHERE CAST(:tenant_id AS text) IS NULL OR tenant_id = :tenant_id
GROUP BY error_type, type ORDER BY count(*) DESC, error_type, type
""")


async def summary(connection: AsyncConnection, *, tenant_id: str | None) -> Sequence[Row[Any]]:
    """Count the dead letters that lie here by error type and task type, the last hour and the last 7 days apart."""
    return (await connection.execute(_SUMMARY, {"tenant_id": tenant_id})).fetchall()


async def count(connection: AsyncConnection, found: DeadLetterFilter, *, tasks_only: bool) -> tuple[int, str | None]:
    """Count what a filter matches and name the highest id among it: where a bulk action over it ends."""
    query = select(func.count(), func.max(_TABLE.dead_letter_id)).where(*dead_letter_conditions(found))
    if tasks_only:
        query = query.where(_TABLE.task_id.is_not(None))
    row = (await connection.execute(query)).one()
    return int(row[0]), row[1]


async def after(
    connection: AsyncConnection,
    found: DeadLetterFilter,
    *,
    cursor: str | None,
    upper_bound: str,
    limit: int,
    tasks_only: bool,
) -> list[str]:
    """Read the ids of the next dead letters of a bulk action, in order: above `cursor`, up to `upper_bound`."""
    query = select(_TABLE.dead_letter_id).where(*dead_letter_conditions(found), _TABLE.dead_letter_id <= upper_bound)
    if cursor is not None:
        query = query.where(_TABLE.dead_letter_id > cursor)
    if tasks_only:
        query = query.where(_TABLE.task_id.is_not(None))
    rows = await connection.execute(query.order_by(_TABLE.dead_letter_id).limit(limit))
    return [row.dead_letter_id for row in rows.fetchall()]


@dataclass(frozen=True, slots=True)
class Terms:
    """What the place of a task that comes back is computed from: weights by cost class, seconds by priority class."""

    cost_weights: Mapping[str, float]
    start_within_seconds: Mapping[str, float]


# A fresh budget: attempts and crashes begin at nothing, the history stays. A person has decided that the work is still
# wanted: a validity that has run out begins again with its old length; one that still lasts stays. The stay's number
# only keeps old messages apart, and `claim` makes those harmless, so the number of runs so far is good enough for it.
_REPROCESS = text(f"""
WITH held AS MATERIALIZED (
    SELECT dead_letter_id FROM dead_letters WHERE dead_letter_id = ANY(CAST(:ids AS text[])) AND task_id IS NOT NULL
    ORDER BY dead_letter_id FOR UPDATE
),
gone AS (
    DELETE FROM dead_letters d USING held h WHERE d.dead_letter_id = h.dead_letter_id RETURNING d.task_id
),
moved AS (
    {
    move_sql(
        Move.REPROCESS,
        "gone",
        "attempts = 0, crashes = 0, started_at = NULL, finished_at = NULL, next_attempt_at = NULL, progress = NULL, "
        "cancel_requested_at = NULL, error_type = NULL, error_message = NULL, error_retryable = NULL, "
        "valid_until = CASE WHEN t.valid_until <= clock_timestamp() "
        "THEN clock_timestamp() + (t.valid_until - t.submitted_at) ELSE t.valid_until END",
    )
}
    RETURNING t.*
),
addresses AS (
    UPDATE callbacks c SET closed_at = clock_timestamp() FROM moved m
    WHERE c.task_id = m.task_id AND c.result IS NULL AND c.closed_at IS NULL
),
told AS (
    INSERT INTO events (task_id, at, kind, reason, actor)
    SELECT task_id, clock_timestamp(), 'reprocessed', :reason, :actor FROM moved
)
INSERT INTO delayed ({PLACE}, due_at, why)
SELECT m.task_id, m.priority_class, m.tenant_id, m.type, COALESCE(m.task_group, ''),
       COALESCE(m.due_at, clock_timestamp() + COALESCE(w.seconds, 0) * interval '1 second'), clock_timestamp(),
       m.valid_until,
       COALESCE(c.weight, 1), m.timeout_seconds, m.preemptible, 1,
       1 + (SELECT count(*) FROM attempts a WHERE a.task_id = m.task_id), m.submitted_at, m.traceparent, m.tracestate,
       clock_timestamp(), 'reprocess'
FROM moved m
LEFT JOIN unnest(CAST(:costs AS text[]), CAST(:weights AS float4[])) AS c(name, weight) ON c.name = m.cost_class
LEFT JOIN unnest(CAST(:classes AS text[]), CAST(:seconds AS float8[])) AS w(name, seconds) ON w.name = m.priority_class
RETURNING task_id
""")


async def reprocess(
    connection: AsyncConnection, dead_letter_ids: Sequence[str], *, terms: Terms, actor: str, reason: str
) -> set[str]:
    """Put dead tasks back to the waiting with a fresh attempt budget; returns the ids of those tasks."""
    rows = await connection.execute(
        _REPROCESS,
        {
            "ids": list(dead_letter_ids),
            "actor": actor,
            "reason": reason,
            "costs": list(terms.cost_weights),
            "weights": list(terms.cost_weights.values()),
            "classes": list(terms.start_within_seconds),
            "seconds": list(terms.start_within_seconds.values()),
        },
    )
    return {row.task_id for row in rows.fetchall()}


# What is gone with a task; its idempotency key runs out by itself, its audit rows stay.
_PURGE = text("""
WITH held AS MATERIALIZED (
    SELECT dead_letter_id FROM dead_letters WHERE dead_letter_id = ANY(CAST(:ids AS text[]))
    ORDER BY dead_letter_id FOR UPDATE
),
gone AS (
    DELETE FROM dead_letters d USING held h WHERE d.dead_letter_id = h.dead_letter_id
    RETURNING d.dead_letter_id, d.task_id
),
removed AS (
    DELETE FROM tasks t USING gone g WHERE t.task_id = g.task_id AND t.status = 'dead_lettered' RETURNING t.task_id
),
history AS (DELETE FROM attempts a USING removed r WHERE a.task_id = r.task_id),
asked AS (DELETE FROM approvals a USING removed r WHERE a.task_id = r.task_id),
overruled AS (DELETE FROM overrides o USING removed r WHERE o.task_id = r.task_id),
told AS (DELETE FROM events e USING removed r WHERE e.task_id = r.task_id),
journal AS (DELETE FROM steps s USING removed r WHERE s.task_id = r.task_id),
states AS (DELETE FROM checkpoints c USING removed r WHERE c.task_id = r.task_id),
answers AS (
    UPDATE llm_calls c SET response = NULL FROM removed r WHERE c.task_id = r.task_id AND c.response IS NOT NULL
),
addresses AS (DELETE FROM callbacks c USING removed r WHERE c.task_id = r.task_id),
hooks AS (DELETE FROM webhooks w USING removed r WHERE w.task_id = r.task_id RETURNING w.webhook_id),
tries AS (DELETE FROM webhook_tries y USING hooks h WHERE y.webhook_id = h.webhook_id)
SELECT dead_letter_id FROM gone
""")


async def purge(connection: AsyncConnection, dead_letter_ids: Sequence[str]) -> set[str]:
    """Remove dead letters together with their tasks, attempts, events and journals; tells which ones were there."""
    rows = await connection.execute(_PURGE, {"ids": list(dead_letter_ids)})
    return {row.dead_letter_id for row in rows.fetchall()}


# Delivered for the first time: it counts. Delivered again: it counts unless its body was recorded lately, because then
# only the acknowledgement was lost.
_RECORD_MALFORMED = text("""
INSERT INTO dead_letters (dead_letter_id, task_id, tenant_id, type, priority_class, failed_at, error_type,
                          error_message, attempts, body_sha256)
SELECT :dead_letter_id, NULL, NULL, NULL, :priority_class, clock_timestamp(), 'malformed_message', :why, 0,
       :body_sha256
WHERE NOT (:redelivered AND EXISTS (
    SELECT 1 FROM dead_letters WHERE error_type = 'malformed_message' AND body_sha256 = :body_sha256
    AND failed_at > clock_timestamp() - interval '1 day'))
ON CONFLICT (dead_letter_id) DO NOTHING
RETURNING dead_letter_id
""")


async def record_malformed(
    connection: AsyncConnection,
    dead_letter_id: str,
    *,
    priority_class: str | None,
    why: str,
    body_sha256: str,
    redelivered: bool,
) -> bool:
    """Record a message that could not be read; False when it had been recorded already."""
    values = {
        "dead_letter_id": dead_letter_id,
        "priority_class": priority_class,
        "why": why,
        "body_sha256": body_sha256,
        "redelivered": redelivered,
    }
    return (await connection.execute(_RECORD_MALFORMED, values)).first() is not None


# A released task that no worker could take, however often it was delivered.
_BURY_UNCLAIMED = text(f"""
WITH gone AS (
    DELETE FROM flights f WHERE f.task_id = :task_id AND f.dispatch = :dispatch AND f.fence IS NULL RETURNING f.*
),
moved AS (
    {
    move_sql(
        Move.DEAD_LETTER,
        "gone",
        "finished_at = clock_timestamp(), next_attempt_at = NULL, error_type = 'delivery_limit', error_message = :why, "
        "error_retryable = false",
    )
} RETURNING t.task_id, t.attempts
),
tally AS (
    {tally_sql("gone", ":tally_name")}
)
INSERT INTO dead_letters (dead_letter_id, task_id, tenant_id, type, priority_class, task_group, failed_at, error_type,
                          error_message, attempts, traceparent)
SELECT :dead_letter_id, g.task_id, g.tenant_id, g.task_type, g.priority_class, NULLIF(g.task_group, ''),
       clock_timestamp(), 'delivery_limit', :why, m.attempts, g.traceparent
FROM gone g JOIN moved m ON m.task_id = g.task_id
RETURNING task_id
""")


async def bury_unclaimed(
    connection: AsyncConnection, dead_letter_id: str, *, task_id: str, dispatch: int, why: str
) -> bool:
    """Dead-letter a released task that nobody claimed, as `delivery_limit`; False when its place was another one."""
    values = {
        "dead_letter_id": dead_letter_id,
        "task_id": task_id,
        "dispatch": dispatch,
        "why": why,
        "tally_name": TALLY_NAME,
    }
    return (await connection.execute(_BURY_UNCLAIMED, values)).first() is not None
