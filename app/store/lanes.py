"""Lanes: which (class, tenant, type, group) combinations have work waiting, and their tenant's virtual time.

A submit holds a KEY SHARE lock on its lane while it inserts; the dispatcher deletes a lane only under FOR UPDATE and
after looking again: a waiting row can therefore never be without its lane.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.database import Database

LaneKey = tuple[str, str, str, str]
"""(priority class, tenant_id, task type, group; "" for none)"""

# A new lane starts at its tenant's virtual time where the tenant has others in the class, else at the class's clock.
NEW_LANES_SQL = """
INSERT INTO lanes (priority_class, tenant_id, task_type, task_group, virtual_time)
SELECT k.priority_class, k.tenant_id, k.task_type, k.task_group,
       COALESCE((SELECT max(l.virtual_time) FROM lanes l
                 WHERE l.priority_class = k.priority_class AND l.tenant_id = k.tenant_id),
                (SELECT c.virtual_time FROM class_clocks c WHERE c.priority_class = k.priority_class), 0)
FROM {keys}
ORDER BY 1, 2, 3, 4
ON CONFLICT (priority_class, tenant_id, task_type, task_group) {on_conflict}
"""

_KEYS = (
    "unnest(CAST(:classes AS text[]), CAST(:tenants AS text[]), CAST(:types AS text[]), CAST(:groups AS text[]))"
    " AS k(priority_class, tenant_id, task_type, task_group)"
)
ENSURE_LANES = text(NEW_LANES_SQL.format(keys=_KEYS, on_conflict="DO NOTHING"))
# Makes and locks: nobody can drop these lanes before the transaction ends.
HOLD_LANES = text(NEW_LANES_SQL.format(keys=_KEYS, on_conflict="DO UPDATE SET virtual_time = lanes.virtual_time"))


def lane_arrays(keys: Iterable[LaneKey]) -> dict[str, list[str]]:
    """Turn lane keys into the array parameters `classes`, `tenants`, `types`, `groups`."""
    ordered = sorted(set(keys))
    return {
        "classes": [key[0] for key in ordered],
        "tenants": [key[1] for key in ordered],
        "types": [key[2] for key in ordered],
        "groups": [key[3] for key in ordered],
    }


@dataclass(frozen=True, slots=True)
class LaneHeads:
    """The first waiting tasks of one lane, in order, as parallel lists. `order_ats` are aware UTC datetimes."""

    lane_id: int
    priority_class: str
    tenant_id: str
    task_type: str
    task_group: str
    virtual_time: float
    weight: float
    task_ids: list[str]
    order_ats: list[datetime]
    costs: list[float]
    timeouts_seconds: list[float]
    preemptibles: list[bool]
    attempts: list[int]


# The lanes with the lowest virtual time of each class that may release something, and the first rows of each; one row
# a lane, because decoding five arrays costs a fifth of decoding a row per task.
# What budgets stop may be thousands: a subquery is hashed, an array that is a parameter is searched from its start
# (10,000 stopped tenants: 9 ms instead of 615).
# `floors` are lower bounds of order_at per lane: what lies before was seen to be gone (see dispatch.Dispatcher._heads).
_FLOOR = """COALESCE((SELECT f.floor_at FROM unnest(CAST(:floor_lanes AS bigint[]), CAST(:floors AS timestamptz[]))
                    AS f(lane_id, floor_at) WHERE f.lane_id = r.lane_id LIMIT 1), '-infinity')"""
_HEADS = text(
    """
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:classes AS text[]), CAST(:budgets AS int[])) AS w(priority_class, budget)
),
turn AS MATERIALIZED (
    SELECT w.priority_class, w.budget, l.lane_id, l.tenant_id, l.task_type, l.task_group, l.virtual_time,
           count(*) OVER (PARTITION BY w.priority_class) AS lanes
    FROM wanted w
    CROSS JOIN LATERAL (
        SELECT * FROM lanes l
        WHERE l.priority_class = w.priority_class
          AND l.task_type <> ALL (CAST(:skip_types AS text[]))
          AND l.tenant_id <> ALL (CAST(:skip_tenants AS text[]))
          AND l.task_group <> ALL (CAST(:skip_groups AS text[]))
          AND l.priority_class || ':' || l.task_type <> ALL (CAST(:skip_class_types AS text[]))
          AND l.tenant_id || ':' || l.task_type NOT IN (SELECT s FROM unnest(CAST(:skip_tenant_types AS text[])) AS s)
          AND (l.tenant_id || ':' || l.task_type NOT IN (SELECT s FROM unnest(CAST(:skip_firsts AS text[])) AS s)
               OR (SELECT bool_or(f.attempt > 1) FROM (
                       SELECT r.attempt FROM ready r WHERE r.lane_id = l.lane_id ORDER BY r.order_at, r.task_id LIMIT 20
                   ) f))
          AND EXISTS (SELECT 1 FROM ready r WHERE r.lane_id = l.lane_id AND r.order_at >= {floor})
        ORDER BY l.virtual_time, l.tenant_id
        LIMIT LEAST(w.budget, :max_lanes)
    ) l
)
SELECT u.lane_id, u.priority_class, u.tenant_id, u.task_type, u.task_group, u.virtual_time, COALESCE(n.weight, 1) AS weight,
       h.task_ids, h.order_ats, h.costs, h.timeouts, h.preemptibles,
       h.attempts
FROM turn u
LEFT JOIN tenants n ON n.tenant_id = u.tenant_id
CROSS JOIN LATERAL (
    SELECT array_agg(r.task_id) AS task_ids, array_agg(r.order_at) AS order_ats, array_agg(r.cost) AS costs,
           array_agg(r.timeout_seconds) AS timeouts, array_agg(r.preemptible) AS preemptibles,
           array_agg(r.attempt) AS attempts
    FROM (
        SELECT r.task_id, r.order_at, r.cost, r.timeout_seconds, r.preemptible, r.attempt
        FROM ready r
        WHERE r.lane_id = u.lane_id
          AND r.order_at >= {floor}
        ORDER BY r.order_at, r.task_id
        LIMIT CASE WHEN u.lanes = 1 THEN u.budget ELSE CEIL(2.0 * u.budget / u.lanes) END
    ) r
) h
WHERE h.task_ids IS NOT NULL
""".replace("{floor}", _FLOOR)
)


async def heads(
    database: Database,
    *,
    budgets: Mapping[str, int],
    skip_types: Sequence[str],
    skip_tenants: Sequence[str],
    skip_groups: Sequence[str],
    floors: Mapping[int, datetime],
    max_lanes: int,
    skip_class_types: Sequence[str] = (),
    skip_tenant_types: Sequence[str] = (),
    skip_firsts: Sequence[str] = (),
) -> list[LaneHeads]:
    """Read the heads of the lanes whose turn it is; empty lanes and those to skip are passed over.

    `skip_class_types` has `class:type`, `skip_tenant_types` and `skip_firsts` have `tenant:type`; of the last, lanes
    are read that have a retry near their front.
    """
    rows = await database.execute_hot(
        _HEADS,
        {
            "classes": list(budgets),
            "budgets": list(budgets.values()),
            "skip_types": list(skip_types),
            "skip_tenants": list(skip_tenants),
            "skip_groups": list(skip_groups),
            "skip_class_types": list(skip_class_types),
            "skip_tenant_types": list(skip_tenant_types),
            "skip_firsts": list(skip_firsts),
            "floor_lanes": list(floors),
            "floors": list(floors.values()),
            "max_lanes": max_lanes,
        },
        retry_for_seconds=0.0,
    )
    return [LaneHeads(*row) for row in rows]


_EMPTY = text("SELECT lane_id FROM lanes l WHERE NOT EXISTS (SELECT 1 FROM ready r WHERE r.lane_id = l.lane_id)")


async def empty(connection: AsyncConnection) -> set[int]:
    """Name the lanes without waiting work."""
    return {row.lane_id for row in (await connection.execute(_EMPTY)).fetchall()}


_LOCK_EMPTY = text("SELECT lane_id FROM lanes WHERE lane_id = ANY(CAST(:ids AS bigint[])) FOR UPDATE SKIP LOCKED")
_DROP_EMPTY = text("""
DELETE FROM lanes l WHERE l.lane_id = ANY(CAST(:ids AS bigint[]))
AND NOT EXISTS (SELECT 1 FROM ready r WHERE r.lane_id = l.lane_id) RETURNING l.lane_id
""")


async def drop_empty(connection: AsyncConnection, lane_ids: Sequence[int]) -> list[int]:
    """Delete those of these lanes that are empty and that no submit is about to use; returns the deleted ids.

    The lock and the look are two statements: the look must see what committed before the lock was granted.
    """
    locked = [row.lane_id for row in (await connection.execute(_LOCK_EMPTY, {"ids": list(lane_ids)})).fetchall()]
    if not locked:
        return []
    return [row.lane_id for row in (await connection.execute(_DROP_EMPTY, {"ids": locked})).fetchall()]


async def read_clocks(connection: AsyncConnection) -> dict[str, float]:
    """Read the virtual time of every class."""
    rows = (await connection.execute(text("SELECT priority_class, virtual_time FROM class_clocks"))).fetchall()
    return {row.priority_class: row.virtual_time for row in rows}
