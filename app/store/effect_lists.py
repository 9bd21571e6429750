"""Looking at effects, a person's word about one in doubt, and finding those that nobody comes back to."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.effects import EffectState
from app.domain.lifecycle import FINAL
from app.store.filters import EffectFilter, effect_conditions
from app.store.schema import effects

_TABLE = effects.c
_FINAL = ", ".join(f"'{status}'" for status in sorted(FINAL))


async def page(
    connection: AsyncConnection, found: EffectFilter, *, before: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Read up to `limit` effects, newest first, from below the id `before`."""
    query = select(effects).where(*effect_conditions(found))
    if found.state == (EffectState.IN_DOUBT,):
        query = query.where(_TABLE.in_doubt_at.is_not(None))  # what its index knows
    if before is not None:
        query = query.where(_TABLE.effect_id < before)
    return (await connection.execute(query.order_by(_TABLE.effect_id.desc()).limit(limit))).fetchall()


async def of_task(connection: AsyncConnection, task_id: str, limit: int) -> Sequence[Row[Any]]:
    """Read the effects that a task reserved last, oldest first."""
    query = select(effects).where(_TABLE.task_id == task_id).order_by(_TABLE.effect_id).limit(limit)
    return (await connection.execute(query)).fetchall()


async def get(connection: AsyncConnection, effect_id: str) -> Row[Any] | None:
    """Read one effect, or None."""
    return (await connection.execute(select(effects).where(_TABLE.effect_id == effect_id))).first()


_RESOLVE = text("""
WITH resolved AS (
    UPDATE effects SET state = :state, external_id = :external_id, in_doubt_at = NULL, resolved_at = clock_timestamp(),
           updated_at = clock_timestamp(), resolved_by = :actor, reason = :reason
    WHERE effect_id = :effect_id AND state = 'in_doubt' RETURNING *
),
told AS (
    INSERT INTO events (task_id, at, kind, reason, actor, detail)
    SELECT r.task_id, clock_timestamp(), 'effect', 'resolved', :actor,
           json_build_object('effect_id', r.effect_id, 'type', r.effect_type, 'outcome', r.state, 'reason', r.reason)::text
    FROM resolved r WHERE EXISTS (SELECT 1 FROM tasks t WHERE t.task_id = r.task_id)
)
SELECT effect_id FROM resolved
""")


async def resolve(
    connection: AsyncConnection, effect_id: str, *, state: EffectState, external_id: str | None, actor: str, reason: str
) -> bool:
    """Record what a person found out about an effect in doubt; False when it is in doubt no longer."""
    values = {
        "effect_id": effect_id,
        "state": state.value,
        "external_id": external_id,
        "actor": actor,
        "reason": reason,
    }
    return (await connection.execute(_RESOLVE, values)).first() is not None


# Dead letters name the effect that they wait for; its key may be shared by several tasks.
_WAITING_FOR = text("""
SELECT d.dead_letter_id, d.task_id, d.tenant_id FROM dead_letters d
WHERE d.error_type = 'effect_in_doubt' AND d.tenant_id = :tenant_id AND d.task_id IS NOT NULL
  AND strpos(d.error_message, CAST(:effect_id AS text)) > 0
ORDER BY d.dead_letter_id LIMIT :limit
""")


async def dead_letters_waiting_for(
    connection: AsyncConnection, *, tenant_id: str, effect_id: str, limit: int
) -> Sequence[Row[Any]]:
    """Name the dead letters of tasks that wait for this effect."""
    values = {"tenant_id": tenant_id, "effect_id": effect_id, "limit": limit}
    return (await connection.execute(_WAITING_FOR, values)).fetchall()


_KNOWN_MEANWHILE = text("""
SELECT d.dead_letter_id, d.task_id, d.tenant_id, e.effect_id
FROM dead_letters d JOIN effects e ON e.effect_id = substring(d.error_message FROM 'effect_[0-9A-Z]{26}')
WHERE d.error_type = 'effect_in_doubt' AND d.task_id IS NOT NULL AND e.tenant_id = d.tenant_id
  AND e.state IN ('confirmed', 'not_sent') AND d.failed_at < clock_timestamp() - interval '2 seconds'
ORDER BY d.dead_letter_id LIMIT :limit
""")


async def known_meanwhile(connection: AsyncConnection, limit: int) -> Sequence[Row[Any]]:
    """Name dead letters that wait for an effect which is in doubt no longer: its answer came late."""
    return (await connection.execute(_KNOWN_MEANWHILE, {"limit": limit})).fetchall()


_LEFT = text(f"""
WITH late AS MATERIALIZED (
    SELECT e.effect_id FROM effect_calls c JOIN effects e ON e.effect_id = c.effect_id
    LEFT JOIN tasks t ON t.task_id = e.task_id
    WHERE c.call_until < clock_timestamp() - CAST(:seconds AS float8) * interval '1 second' AND e.state = 'reserved'
      AND (t.task_id IS NULL OR t.status IN ({_FINAL}))
    ORDER BY e.effect_id LIMIT :limit FOR UPDATE OF e SKIP LOCKED
),
marked AS (
    UPDATE effects e SET state = 'in_doubt', in_doubt_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM late l WHERE e.effect_id = l.effect_id RETURNING e.effect_id, e.effect_type, e.task_id
),
gone AS (DELETE FROM effect_calls c USING marked m WHERE c.effect_id = m.effect_id),
told AS (
    INSERT INTO events (task_id, at, kind, reason, actor, detail)
    SELECT m.task_id, clock_timestamp(), 'effect', 'in_doubt', 'effects sweep',
           json_build_object('effect_id', m.effect_id, 'type', m.effect_type)::text
    FROM marked m WHERE EXISTS (SELECT 1 FROM tasks t WHERE t.task_id = m.task_id)
)
SELECT effect_type FROM marked
""")


async def doubt_left(connection: AsyncConnection, *, after_seconds: float, limit: int) -> list[str]:
    """Put in doubt whose call's end is not known while its task has ended: nobody comes back to find out.

    Returns the types of those effects.
    """
    rows = await connection.execute(_LEFT, {"seconds": after_seconds, "limit": limit})
    return [row.effect_type for row in rows.fetchall()]


_IN_DOUBT = text("SELECT effect_type, count(*) AS n FROM effects WHERE in_doubt_at IS NOT NULL GROUP BY effect_type")
_OPEN = text("SELECT count(*) FROM effect_calls WHERE call_until < clock_timestamp()")


async def in_doubt_by_type(connection: AsyncConnection) -> Mapping[str, int]:
    """Count the effects in doubt."""
    return {row.effect_type: row.n for row in (await connection.execute(_IN_DOUBT)).fetchall()}


async def count_overdue(connection: AsyncConnection) -> int:
    """Count calls whose deadline is over and whose end is not known."""
    return int((await connection.execute(_OPEN)).scalar_one())
