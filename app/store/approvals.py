"""Approvals and the place of the tasks that wait for one: asking, deciding, expiring.

Locks are taken in this order: flight, approval, suspended place, task. Whoever decides holds the approval and then, in
a second statement with a fresh look, takes the suspended place. The settlement that suspends holds the approval as
well: it comes first, and its place is seen; or it comes second, sees the decision, and lets the task come back at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.lifecycle import FINAL, Move
from app.store.database import Database
from app.store.hot import HotRow
from app.store.places import PLACE, place_of
from app.store.tasks import move_sql

_ENDED = ", ".join(f"'{status}'" for status in sorted(FINAL))
COLUMNS = (
    "approval_id, task_id, tenant_id, type, priority_class, action, detail, submitted_by, asked_at, due_at, expires_at, "
    "decided_at, decided_by, comment"
)
# What nobody has decided in time has expired, whether the sweep has been there or not; what no task asks for any more
# is withdrawn.
STATE = f"""CASE WHEN a.state <> 'pending' THEN a.state
     WHEN t.task_id IS NULL OR t.status IN ({_ENDED})
         THEN 'withdrawn'
     WHEN a.expires_at <= clock_timestamp() THEN 'expired' ELSE 'pending' END"""


def _z(column: str) -> str:
    """Spell a time for a text of JSON."""
    return f"""to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


# Repeatable: what is there stays, but a question that was withdrawn (its task had ended, and was reprocessed) is asked
# again. No row comes back to whoever does not own the flight; `state` is null where another asks the same right now.
_ASK = text(f"""
WITH mine AS MATERIALIZED (
    SELECT task_id, tenant_id, task_type, COALESCE(next_class, priority_class) AS priority_class FROM flights
    WHERE task_id = :task_id AND fence = :fence FOR KEY SHARE
),
known AS MATERIALIZED (
    SELECT a.* FROM approvals a
    WHERE a.task_id = :task_id AND a.action = :action AND a.fingerprint = :fingerprint AND a.state <> 'withdrawn'
),
asked AS (
    INSERT INTO approvals AS a (approval_id, task_id, tenant_id, type, priority_class, action, fingerprint, detail, submitted_by,
                                state, asked_at, due_at, expires_at)
    SELECT :approval_id, m.task_id, m.tenant_id, m.task_type, m.priority_class, :action, :fingerprint, CAST(:detail AS text), t.submitted_by,
           'pending', c.now, c.now + LEAST(CAST(:due_seconds AS float8), CAST(:expires_seconds AS float8)) * interval '1 second',
           c.now + CAST(:expires_seconds AS float8) * interval '1 second'
    FROM mine m JOIN tasks t ON t.task_id = m.task_id CROSS JOIN (SELECT clock_timestamp() AS now) c
    WHERE NOT EXISTS (SELECT 1 FROM known)
    ON CONFLICT (task_id, action, fingerprint) DO UPDATE
    SET state = 'pending', asked_at = excluded.asked_at, due_at = excluded.due_at, expires_at = excluded.expires_at,
        decided_at = NULL
    WHERE a.state = 'withdrawn'
    RETURNING a.*
),
told AS (
    INSERT INTO events (task_id, at, kind, actor, detail)
    SELECT task_id, asked_at, 'approval_asked', 'handler',
           json_build_object('approval_id', approval_id, 'action', action, 'due_at', {_z("due_at")},
                             'expires_at', {_z("expires_at")})::text
    FROM asked
)
SELECT a.approval_id, a.priority_class, a.decided_at, a.decided_by, a.comment, a.approval_id IS NOT DISTINCT FROM :approval_id AS is_new,
       CASE WHEN a.state = 'pending' AND a.expires_at <= clock_timestamp() THEN 'expired' ELSE a.state END AS state
FROM mine m LEFT JOIN (SELECT * FROM known UNION ALL SELECT * FROM asked) a ON a.task_id = m.task_id
""")


@dataclass(frozen=True, slots=True)
class NewApproval:
    """A question of a running attempt. `due_seconds` is the class's target; times count from the database's clock."""

    approval_id: str
    task_id: str
    fence: int
    action: str
    fingerprint: bytes
    detail: str | None
    due_seconds: float
    expires_seconds: float


async def ask(database: Database, new: NewApproval, *, retry_for_seconds: float) -> HotRow | None:
    """Ask, or read what became of the same question; None when the attempt no longer owns its task.

    The `state` of the row is None when the very same question is being asked by somebody else: look again.
    """
    values = {name: getattr(new, name) for name in NewApproval.__dataclass_fields__}
    rows = await database.execute_hot(_ASK, values, retry_for_seconds=retry_for_seconds)
    return rows[0] if rows else None


_APPROVED = text("""
SELECT a.action, a.detail FROM approvals a WHERE a.task_id = :task_id AND a.action = :action AND a.state = 'approved'
""")


async def approved(database: Database, task_id: str, action: str, *, retry_for_seconds: float) -> Sequence[HotRow]:
    """Read action and detail of every yes that a task has to an action."""
    return await database.execute_hot(
        _APPROVED, {"task_id": task_id, "action": action}, retry_for_seconds=retry_for_seconds
    )


_GET = text(f"""
SELECT {", ".join(f"a.{name.strip()}" for name in COLUMNS.split(","))}, {STATE} AS state
FROM approvals a LEFT JOIN tasks t ON t.task_id = a.task_id WHERE a.approval_id = :approval_id
""")
_HOLD = text("SELECT 1 FROM approvals WHERE approval_id = :approval_id FOR UPDATE")


async def get(connection: AsyncConnection, approval_id: str) -> Row[Any] | None:
    """Read one approval."""
    return (await connection.execute(_GET, {"approval_id": approval_id})).first()


async def hold(connection: AsyncConnection, approval_id: str) -> Row[Any] | None:
    """Lock one approval until the transaction ends, and read it as it is then."""
    await connection.execute(_HOLD, {"approval_id": approval_id})
    return await get(connection, approval_id)


_DECIDE = text("""
UPDATE approvals SET state = :state, decided_at = clock_timestamp(), decided_by = :decided_by, comment = :comment
WHERE approval_id = :approval_id AND state = 'pending'
""")
_TELL = text("""
INSERT INTO events (task_id, at, kind, reason, actor, detail)
SELECT task_id, decided_at, 'approval_' || state, comment, decided_by,
       json_build_object('approval_id', approval_id, 'action', action)::text
FROM approvals WHERE approval_id = ANY(CAST(:ids AS text[])) ORDER BY approval_id
""")


async def decide(
    connection: AsyncConnection, approval_id: str, *, state: str, decided_by: str, comment: str | None
) -> None:
    """Write the decision about a held, pending approval down, in the history too."""
    await connection.execute(
        _DECIDE, {"approval_id": approval_id, "state": state, "decided_by": decided_by, "comment": comment}
    )
    await connection.execute(_TELL, {"ids": [approval_id]})


# The place decides: a task that waits for another approval meanwhile, or has not been suspended yet, is left alone.
_PLACES = """gone AS (
    DELETE FROM suspended s USING (
        SELECT task_id FROM suspended
        WHERE task_id = ANY(CAST(:task_ids AS text[])) AND approval_id = ANY(CAST(:ids AS text[]))
        ORDER BY task_id FOR UPDATE
    ) h WHERE s.task_id = h.task_id AND s.approval_id = ANY(CAST(:ids AS text[])) RETURNING s.*
)"""
_RESUME = text(f"""
WITH {_PLACES},
moved AS ({move_sql(Move.RESUME, "gone", "next_attempt_at = NULL")} RETURNING t.task_id)
INSERT INTO delayed ({PLACE}, due_at, why)
SELECT {place_of("g", dispatch="g.dispatch + 1", queued_at="clock_timestamp()")}, clock_timestamp(), 'approved' FROM gone g
RETURNING task_id
""")
_REJECT = text(f"""
WITH {_PLACES},
moved AS (
    {
    move_sql(
        Move.REJECT,
        "gone",
        "finished_at = clock_timestamp(), next_attempt_at = NULL, progress = NULL, error_type = :error_type, "
        "error_message = :error_message, error_retryable = false",
    )
}
    RETURNING t.task_id, t.priority_class, t.type
)
SELECT task_id, priority_class, type FROM moved
""")


async def resume(connection: AsyncConnection, approval_id: str, task_id: str) -> bool:
    """Let the task that waits for a held approval come back to the waiting; tells whether it did wait."""
    return (await connection.execute(_RESUME, {"ids": [approval_id], "task_ids": [task_id]})).first() is not None


async def reject(
    connection: AsyncConnection, held: Mapping[str, str], *, error_type: str, error_message: str
) -> Sequence[Row[Any]]:
    """End the tasks that wait for held approvals (by approval id) as rejected; returns their ids, classes and types."""
    values = {
        "ids": list(held),
        "task_ids": list(held.values()),
        "error_type": error_type,
        "error_message": error_message,
    }
    return (await connection.execute(_REJECT, values)).fetchall()


_EXPIRE = text("""
WITH over AS MATERIALIZED (
    SELECT approval_id FROM approvals WHERE state = 'pending' AND expires_at <= clock_timestamp()
    ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
UPDATE approvals a SET state = 'expired', decided_at = clock_timestamp() FROM over o
WHERE a.approval_id = o.approval_id AND a.state = 'pending'
RETURNING a.approval_id, a.task_id, a.priority_class
""")


async def expire(connection: AsyncConnection, limit: int) -> Sequence[Row[Any]]:
    """Expire up to `limit` approvals that nobody decided in time, and tell their tasks' histories."""
    rows = (await connection.execute(_EXPIRE, {"limit": limit})).fetchall()
    if rows:
        await connection.execute(_TELL, {"ids": [row.approval_id for row in rows]})
    return rows


# Cancelling and expiring tasks touch no approval (that would turn the order of the locks round): this comes after them.
_WITHDRAW = text(f"""
WITH over AS MATERIALIZED (
    SELECT a.approval_id FROM approvals a JOIN tasks t ON t.task_id = a.task_id
    WHERE a.state = 'pending' AND t.status IN ({_ENDED})
    ORDER BY a.approval_id LIMIT :limit FOR UPDATE OF a SKIP LOCKED
)
UPDATE approvals a SET state = 'withdrawn', decided_at = clock_timestamp() FROM over o
WHERE a.approval_id = o.approval_id AND a.state = 'pending'
""")


async def withdraw(connection: AsyncConnection, limit: int) -> int:
    """Close up to `limit` approvals whose tasks have ended some other way."""
    return (await connection.execute(_WITHDRAW, {"limit": limit})).rowcount


_WAITING = text("""
SELECT s.priority_class, count(*) AS n, min(a.asked_at) AS oldest_at,
       count(*) FILTER (WHERE a.due_at <= clock_timestamp()) AS overdue
FROM suspended s JOIN approvals a ON a.approval_id = s.approval_id WHERE a.state = 'pending' GROUP BY s.priority_class
""")


async def waiting(connection: AsyncConnection) -> Sequence[Row[Any]]:
    """Count the tasks of each class that wait for a person: how many, the oldest question, how many are overdue."""
    return (await connection.execute(_WAITING)).fetchall()
