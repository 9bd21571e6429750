"""Removing what has been kept long enough: small statements, each bounded, none of which holds a lock for long.

Final tasks are found by walking their ids, which are ordered by time of submission: no index on what changes is
needed. A final task that is not dead-lettered never changes again, so nobody competes for its row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.lifecycle import FINAL, TaskStatus
from app.ids import least_at
from app.store.database import Database
from app.store.inputs import USE_PROTECTS_SECONDS

_GONE_FINAL = ", ".join(f"'{status}'" for status in sorted(FINAL - {TaskStatus.DEAD_LETTERED}))
_BEFORE = "clock_timestamp() - CAST(:days AS float8) * interval '1 day'"


@dataclass(frozen=True, slots=True)
class Window:
    """One window of the walk over the tasks: its last id (None: nothing is left below the limit), and what went."""

    last: str | None
    seen: int
    removed: int


_TASKS = text(f"""
WITH seen AS MATERIALIZED (
    SELECT task_id, status, finished_at FROM tasks WHERE task_id > :above AND task_id < :below ORDER BY task_id LIMIT :limit
),
gone AS (
    DELETE FROM tasks t USING seen s
    WHERE t.task_id = s.task_id AND s.status IN ({_GONE_FINAL}) AND s.finished_at < {_BEFORE}
      AND t.status IN ({_GONE_FINAL})
    RETURNING t.task_id
),
history AS (DELETE FROM attempts a USING gone g WHERE a.task_id = g.task_id),
asked AS (DELETE FROM approvals a USING gone g WHERE a.task_id = g.task_id),
overruled AS (DELETE FROM overrides o USING gone g WHERE o.task_id = g.task_id),
told AS (DELETE FROM events e USING gone g WHERE e.task_id = g.task_id),
journal AS (DELETE FROM steps s USING gone g WHERE s.task_id = g.task_id),
states AS (DELETE FROM checkpoints c USING gone g WHERE c.task_id = g.task_id),
answers AS (
    UPDATE llm_calls c SET response = NULL FROM gone g WHERE c.task_id = g.task_id AND c.response IS NOT NULL
),
addresses AS (DELETE FROM callbacks c USING gone g WHERE c.task_id = g.task_id),
hooks AS (DELETE FROM webhooks w USING gone g WHERE w.task_id = g.task_id RETURNING w.webhook_id),
tries AS (DELETE FROM webhook_tries y USING hooks h WHERE y.webhook_id = h.webhook_id)
SELECT (SELECT max(task_id) FROM seen) AS last, (SELECT count(*) FROM seen) AS seen, (SELECT count(*) FROM gone) AS removed
""")


async def remove_tasks(database: Database, *, above: str, now: datetime, days: float, limit: int) -> Window:
    """Look at the next `limit` tasks above an id and remove those that ended more than `days` ago, with their history.

    Tasks that were submitted after that moment cannot have ended before it: the walk ends there. Dead-lettered tasks
    go with their dead letters.
    """
    below = least_at("task", now - timedelta(days=days))
    values = {"above": above, "below": below, "days": days, "limit": limit}
    (row,) = await database.execute_hot(_TASKS, values, retry_for_seconds=0.0)
    return Window(row.last, row.seen, row.removed)


_DEAD_LETTERS = text(f"""
SELECT dead_letter_id FROM dead_letters
WHERE failed_at < {_BEFORE} AND CASE WHEN CAST(:error_type AS text) IS NULL
      THEN error_type <> ALL (CAST(:others AS text[])) ELSE error_type = :error_type END
ORDER BY dead_letter_id LIMIT :limit
""")


async def old_dead_letters(
    connection: AsyncConnection, *, days: float, by_error_type: Mapping[str, float], limit: int
) -> list[str]:
    """Name up to `limit` dead letters that were kept long enough; error types may have days of their own."""
    found: list[str] = []
    for error_type, kept in (*by_error_type.items(), (None, days)):
        values = {"days": kept, "error_type": error_type, "others": list(by_error_type), "limit": limit - len(found)}
        if limit > len(found):
            found += [row.dead_letter_id for row in (await connection.execute(_DEAD_LETTERS, values)).fetchall()]
    return sorted(found)


# An input stays while a task or a schedule refers to it, and for a moment after somebody looked at it.
_INPUTS = text(f"""
WITH old AS MATERIALIZED (
    SELECT i.input_ref FROM inputs i
    WHERE i.used_at < LEAST({_BEFORE}, clock_timestamp() - {USE_PROTECTS_SECONDS} * interval '1 second')
      AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.input_ref = i.input_ref)
      AND NOT EXISTS (SELECT 1 FROM schedules s WHERE s.task LIKE '%' || i.input_ref || '%')
    ORDER BY i.used_at LIMIT :limit
)
DELETE FROM inputs i USING old o WHERE i.input_ref = o.input_ref
  AND i.used_at < LEAST({_BEFORE}, clock_timestamp() - {USE_PROTECTS_SECONDS} * interval '1 second')
""")


def _by_time(table: str, key: str, column: str, also: str = "") -> str:
    return (
        f"WITH old AS MATERIALIZED (SELECT {key} FROM {table} WHERE {column} < {_BEFORE} {also} "
        f"ORDER BY {column} LIMIT :limit) DELETE FROM {table} g USING old o WHERE "
        + " AND ".join(f"g.{part} = o.{part}" for part in key.split(", "))
    )


_OTHERS = {
    "inputs": _INPUTS,
    "idempotency_keys": text(_by_time("idempotency_keys", "tenant_id, endpoint, key", "created_at")),
    "release_rounds": text(_by_time("release_rounds", "round_id", "at")),
    "spending": text(_by_time("spending", "day, tenant_id, type, shard", "day")),
    "bulk_actions": text(_by_time("bulk_actions", "bulk_action_id", "updated_at", "AND state <> 'running'")),
}
# The audit has no index by time; its ids are ordered by time.
_AUDIT = text(f"""
WITH old AS MATERIALIZED (
    SELECT audit_id FROM audit WHERE audit_id < :below AND at < {_BEFORE} ORDER BY audit_id LIMIT :limit
)
DELETE FROM audit a USING old o WHERE a.audit_id = o.audit_id
""")


# Effects are found by their ids too. What is open or in doubt stays until it is known.
_EFFECTS = text(f"""
WITH old AS MATERIALIZED (
    SELECT effect_id FROM effects
    WHERE effect_id < :below AND state IN ('confirmed', 'not_sent') AND updated_at < {_BEFORE} ORDER BY effect_id LIMIT :limit
)
DELETE FROM effects e USING old o WHERE e.effect_id = o.effect_id AND e.state IN ('confirmed', 'not_sent')
""")


async def remove_effects(connection: AsyncConnection, *, now: datetime, days: float, limit: int) -> int:
    """Remove up to `limit` effects that are known for more than `days`; from then on their keys mean nothing."""
    below = least_at("effect", now - timedelta(days=days))
    return (await connection.execute(_EFFECTS, {"below": below, "days": days, "limit": limit})).rowcount


async def remove_old(connection: AsyncConnection, what: str, *, days: float, limit: int) -> int:
    """Remove up to `limit` rows of `inputs`, `idempotency_keys`, `release_rounds`, `spending` or `bulk_actions`."""
    return (await connection.execute(_OTHERS[what], {"days": days, "limit": limit})).rowcount


_LLM_CALLS = text(f"""
WITH old AS MATERIALIZED (
    SELECT call_id FROM llm_calls WHERE call_id < :below AND started_at < {_BEFORE} ORDER BY call_id LIMIT :limit
)
DELETE FROM llm_calls c USING old o WHERE c.call_id = o.call_id
""")


async def remove_llm_calls(connection: AsyncConnection, *, now: datetime, days: float, limit: int) -> int:
    """Remove up to `limit` model calls that are older than `days`; their answers went with their tasks."""
    below = least_at("call", now - timedelta(days=days))
    return (await connection.execute(_LLM_CALLS, {"below": below, "days": days, "limit": limit})).rowcount


async def remove_audit(connection: AsyncConnection, *, now: datetime, days: float, limit: int) -> int:
    """Remove up to `limit` entries of the audit trail that are older than `days`."""
    below = least_at("audit", now - timedelta(days=days))
    return (await connection.execute(_AUDIT, {"below": below, "days": days, "limit": limit})).rowcount
