"""Cancelling and hurrying: both take the task's place row first, so that they cannot pass a claim or a settlement.

What waits is cancelled at once; what runs is asked to stop, and its worker (or the rescuer) makes the move.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.lifecycle import Move
from app.store.tallies import tally_sql
from app.store.tasks import move_sql

# Deletions that a service makes in `flights` count as departures under this name, so that the sums stay right.
TALLY_NAME = "services"

_ENDED = "finished_at = clock_timestamp(), cancel_requested_at = clock_timestamp(), next_attempt_at = NULL"

# The place decides. What was asked about a cancelled task is withdrawn by itself: no approval is touched here, because
# whoever decides one holds it before the place.
_CANCEL = text(f"""
WITH waiting AS MATERIALIZED (
    SELECT task_id FROM ready WHERE task_id = ANY(CAST(:ids AS text[])) ORDER BY task_id FOR UPDATE
),
put_off AS MATERIALIZED (
    SELECT task_id FROM delayed WHERE task_id = ANY(CAST(:ids AS text[])) ORDER BY task_id FOR UPDATE
),
asleep AS MATERIALIZED (
    SELECT task_id FROM suspended WHERE task_id = ANY(CAST(:ids AS text[])) ORDER BY task_id FOR UPDATE
),
flying AS MATERIALIZED (
    SELECT task_id, fence FROM flights WHERE task_id = ANY(CAST(:ids AS text[])) ORDER BY task_id FOR UPDATE
),
from_ready AS (DELETE FROM ready r USING waiting w WHERE r.task_id = w.task_id RETURNING r.task_id),
from_delayed AS (DELETE FROM delayed d USING put_off p WHERE d.task_id = p.task_id RETURNING d.task_id),
from_suspended AS (DELETE FROM suspended s USING asleep a WHERE s.task_id = a.task_id RETURNING s.task_id),
from_flights AS (
    DELETE FROM flights f USING flying y WHERE f.task_id = y.task_id AND y.fence IS NULL
    RETURNING f.task_id, f.priority_class
),
asked AS (
    UPDATE flights f SET cancel_requested_at = COALESCE(f.cancel_requested_at, clock_timestamp())
    FROM flying y WHERE f.task_id = y.task_id AND y.fence IS NOT NULL
    RETURNING f.task_id, f.cancel_requested_at
),
free AS MATERIALIZED (
    SELECT task_id FROM from_ready UNION ALL SELECT task_id FROM from_delayed
    UNION ALL SELECT task_id FROM from_suspended UNION ALL SELECT task_id FROM from_flights
),
moved AS (
    {move_sql(Move.CANCEL, "free", _ENDED)}
    RETURNING t.task_id
),
noted AS (
    UPDATE tasks t SET cancel_requested_at = a.cancel_requested_at, updated_at = clock_timestamp()
    FROM asked a WHERE t.task_id = a.task_id AND t.cancel_requested_at IS NULL
    RETURNING t.task_id
),
told AS (
    INSERT INTO events (task_id, at, kind, reason, actor)
    SELECT task_id, clock_timestamp(), 'cancelled', :reason, :actor FROM moved
    UNION ALL SELECT task_id, clock_timestamp(), 'cancel_requested', :reason, :actor FROM noted
),
tally AS (
    {tally_sql("from_flights", ":tally_name")}
)
SELECT task_id, true AS cancelled FROM moved UNION ALL SELECT task_id, false FROM asked
""")


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What one statement did: tasks that are cancelled now, and running ones that were asked to stop."""

    cancelled: frozenset[str]
    requested: frozenset[str]


async def cancel(connection: AsyncConnection, task_ids: Sequence[str], *, actor: str, reason: str | None) -> Cancelled:
    """Cancel what waits and ask what runs to stop.

    A task that is in neither answer is final, or was between two places at that moment: look, and ask again.
    """
    rows = (
        await connection.execute(
            _CANCEL, {"ids": sorted(task_ids), "actor": actor, "reason": reason, "tally_name": TALLY_NAME}
        )
    ).fetchall()
    return Cancelled(
        frozenset(row.task_id for row in rows if row.cancelled),
        frozenset(row.task_id for row in rows if not row.cancelled),
    )


# Only the time moves; the dispatcher's next look takes the row to the waiting, as for any other row that came due.
_HURRY = text("""
WITH due AS (
    UPDATE delayed d SET due_at = LEAST(d.due_at, clock_timestamp()), why = 'retry_now'
    WHERE d.task_id = :task_id RETURNING d.task_id, d.due_at
),
noted AS (
    UPDATE tasks t SET updated_at = clock_timestamp(),
           next_attempt_at = CASE WHEN t.status = 'failed_retryable' THEN d.due_at ELSE t.next_attempt_at END
    FROM due d WHERE t.task_id = d.task_id
),
told AS (
    INSERT INTO events (task_id, at, kind, actor) SELECT task_id, clock_timestamp(), 'retry_now', :actor FROM due
)
SELECT task_id FROM due
""")


async def hurry(connection: AsyncConnection, task_id: str, *, actor: str) -> bool:
    """Make a delayed task due at once; tells whether it was delayed."""
    return (await connection.execute(_HURRY, {"task_id": task_id, "actor": actor})).first() is not None
