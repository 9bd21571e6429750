"""Callback addresses: issued and read by the attempt that owns the task, called by whoever knows the token.

A call takes the task's place row first, as cancelling does, so that it cannot pass a claim or a settlement: what
waits comes due at once, and what is about to snooze finds in its flight that it was woken.
"""

from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.callbacks import Callback, CallbackOutcome
from app.store.database import Database

_MINE = "SELECT f.task_id FROM flights f WHERE f.task_id = :task_id AND f.fence = :fence FOR KEY SHARE"

# Repeated with the same token it says the same: the answer to the first try may have been lost.
_ISSUE = text(f"""
WITH mine AS MATERIALIZED ({_MINE})
INSERT INTO callbacks (token_sha256, task_id, attempt, issued_at)
SELECT :token_sha256, task_id, :attempt, clock_timestamp() FROM mine
ON CONFLICT (token_sha256) DO UPDATE SET attempt = callbacks.attempt
RETURNING task_id
""")
_PROMISED = text(f"""
WITH mine AS MATERIALIZED ({_MINE})
UPDATE callbacks c SET expires_at = COALESCE(c.expires_at,
       clock_timestamp() + CAST(:seconds AS float8) * interval '1 second')
FROM mine WHERE c.token_sha256 = :token_sha256 AND c.task_id = mine.task_id
RETURNING c.task_id
""")
_READ = text("""
SELECT token_sha256, CAST(EXTRACT(epoch FROM expires_at - clock_timestamp()) AS float8) AS left_seconds,
       called_at IS NOT NULL AS called, read_at IS NOT NULL AS read, closed_at IS NOT NULL AS closed,
       result, error_type, error_message, error_retryable
FROM callbacks WHERE task_id = :task_id ORDER BY issued_at DESC
""")
# An error, and that nobody called, each count for one attempt: the next one must not find it again. A result stays.
_HEARD = text(f"""
WITH mine AS MATERIALIZED ({_MINE}),
noted AS (
    UPDATE callbacks c SET read_at = clock_timestamp()
    FROM mine WHERE c.task_id = mine.task_id AND c.read_at IS NULL AND c.result IS NULL
      AND (c.called_at IS NOT NULL OR c.expires_at <= clock_timestamp())
)
SELECT task_id FROM mine
""")


async def issue(database: Database, *, task_id: str, fence: int, attempt: int, token_sha256: bytes) -> bool:
    """Make an address known; tells whether the attempt still owns its task."""
    values = {"task_id": task_id, "fence": fence, "attempt": attempt, "token_sha256": token_sha256}
    return bool(await database.execute_hot(_ISSUE, values))


async def promised(database: Database, *, task_id: str, fence: int, token_sha256: bytes, seconds: float) -> bool:
    """Note that the endpoint will call within `seconds` from now; tells whether the attempt still owns its task."""
    values = {"task_id": task_id, "fence": fence, "token_sha256": token_sha256, "seconds": seconds}
    return bool(await database.execute_hot(_PROMISED, values))


async def of_task(database: Database, task_id: str) -> list[Callback]:
    """Read the addresses of a task, the newest first; those of an earlier life are closed."""
    return [
        Callback(
            bytes(row.token_sha256),
            row.left_seconds,
            row.called,
            row.read,
            CallbackOutcome(row.result, row.error_type, row.error_message or "", bool(row.error_retryable)),
            row.closed,
        )
        for row in await database.execute_hot(_READ, {"task_id": task_id})
    ]


async def heard(database: Database, *, task_id: str, fence: int) -> bool:
    """Note that this attempt takes up the error, or that nobody called; tells whether it still owns its task."""
    return bool(await database.execute_hot(_HEARD, {"task_id": task_id, "fence": fence}))


_SEEN = text("""
SELECT c.task_id, c.called_at IS NOT NULL AS called, c.closed_at IS NOT NULL AS closed, t.status, t.priority_class, t.type
FROM callbacks c JOIN tasks t ON t.task_id = c.task_id WHERE c.token_sha256 = :token_sha256
""")


async def seen(connection: AsyncConnection, token_sha256: bytes) -> Row[Any] | None:
    """Read an address with its task's status; None where there is none."""
    return (await connection.execute(_SEEN, {"token_sha256": token_sha256})).first()


# Locked by statements of their own: what follows then looks with a snapshot that has what was waited for.
_LOCKS = tuple(
    text(f"SELECT task_id FROM {place} WHERE task_id = :task_id FOR UPDATE")
    for place in ("delayed", "ready", "flights")
)
_TAKE = text("""
WITH taken AS (
    UPDATE callbacks c SET called_at = clock_timestamp(), read_at = NULL, result = :result, error_type = :error_type,
           error_message = :error_message, error_retryable = :error_retryable
    WHERE c.token_sha256 = :token_sha256 AND c.called_at IS NULL AND c.closed_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM callbacks o WHERE o.task_id = c.task_id AND o.called_at IS NOT NULL AND o.read_at IS NULL)
    RETURNING c.task_id
),
due AS (
    UPDATE delayed d SET due_at = LEAST(d.due_at, clock_timestamp()), why = 'called_back'
    FROM taken k WHERE d.task_id = k.task_id RETURNING d.task_id, d.due_at
),
woken AS (UPDATE flights f SET woken_at = clock_timestamp() FROM taken k WHERE f.task_id = k.task_id),
noted AS (
    UPDATE tasks t SET updated_at = clock_timestamp(), next_attempt_at = d.due_at FROM due d WHERE t.task_id = d.task_id
),
told AS (
    INSERT INTO events (task_id, at, kind, reason)
    SELECT task_id, clock_timestamp(), 'called_back', CAST(:reason AS text) FROM taken
)
SELECT task_id FROM taken
""")


async def hold_place(connection: AsyncConnection, task_id: str) -> bool:
    """Lock the task's place; False where it has none, being final or on its way from one to another."""
    for lock in _LOCKS:
        if (await connection.execute(lock, {"task_id": task_id})).first() is not None:
            return True
    return False


async def take(connection: AsyncConnection, token_sha256: bytes, outcome: CallbackOutcome) -> bool:
    """Record a call and wake its task, whose place is held; False where another call was first."""
    values = {
        "token_sha256": token_sha256,
        "result": outcome.result,
        "error_type": outcome.error_type,
        "error_message": outcome.error_message if outcome.error_type is not None else None,
        "error_retryable": outcome.retryable if outcome.error_type is not None else None,
        "reason": "result" if outcome.error_type is None else "error",
    }
    return (await connection.execute(_TAKE, values)).first() is not None
