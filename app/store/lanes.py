"""Lanes: which (class, tenant, type, group) combinations have work waiting, and their tenant's virtual time.

A submit holds a KEY SHARE lock on its lane while it inserts; the dispatcher deletes a lane only under FOR UPDATE and
after looking again: a waiting row can therefore never be without its lane.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

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

ENSURE_LANES = text(
    NEW_LANES_SQL.format(
        keys="unnest(CAST(:classes AS text[]), CAST(:tenants AS text[]), CAST(:types AS text[]), CAST(:groups AS text[]))"
        " AS k(priority_class, tenant_id, task_type, task_group)",
        on_conflict="DO NOTHING",
    )
)


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
class LaneHead:
    """One waiting task at the head of its lane, as the planner needs it. Times are aware UTC datetimes."""

    task_id: str
    lane_id: int
    priority_class: str
    tenant_id: str
    task_type: str
    task_group: str
    order_at: Any
    cost: float
    timeout_seconds: float
    preemptible: bool
    virtual_time: float
    weight: float


# The lanes with the lowest virtual time of each class that may release something, and the first rows of each.
# `floors` are lower bounds of order_at per lane: what lies before was seen to be gone (see dispatch.HeadCursor).
_HEADS = text("""
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
        ORDER BY l.virtual_time, l.tenant_id
        LIMIT LEAST(w.budget, :max_lanes)
    ) l
)
SELECT u.priority_class, u.lane_id, u.tenant_id, u.task_type, u.task_group, u.virtual_time, n.weight,
       r.task_id, r.order_at, r.cost, r.timeout_seconds, r.preemptible
FROM turn u
LEFT JOIN tenants n ON n.tenant_id = u.tenant_id
LEFT JOIN LATERAL (
    SELECT r.task_id, r.order_at, r.cost, r.timeout_seconds, r.preemptible
    FROM ready r
    WHERE r.lane_id = u.lane_id
      AND r.order_at >= COALESCE((SELECT f.floor_at FROM unnest(CAST(:floor_lanes AS bigint[]),
                                     CAST(:floors AS timestamptz[])) AS f(lane_id, floor_at)
                                  WHERE f.lane_id = u.lane_id LIMIT 1), '-infinity')
    ORDER BY r.order_at, r.task_id
    LIMIT CEIL(2.0 * u.budget / u.lanes)
) r ON true
""")


async def heads(
    connection: AsyncConnection,
    *,
    budgets: Mapping[str, int],
    skip_types: Sequence[str],
    skip_tenants: Sequence[str],
    skip_groups: Sequence[str],
    floors: Mapping[int, Any],
    max_lanes: int,
) -> tuple[list[LaneHead], list[int]]:
    """Read the heads of the lanes whose turn it is, and the ids of looked-at lanes that turned out empty."""
    rows = (
        await connection.execute(
            _HEADS,
            {
                "classes": list(budgets),
                "budgets": list(budgets.values()),
                "skip_types": list(skip_types),
                "skip_tenants": list(skip_tenants),
                "skip_groups": list(skip_groups),
                "floor_lanes": list(floors),
                "floors": list(floors.values()),
                "max_lanes": max_lanes,
            },
        )
    ).fetchall()
    found: list[LaneHead] = []
    empty: list[int] = []
    for row in rows:
        if row.task_id is None:
            empty.append(row.lane_id)
            continue
        found.append(
            LaneHead(
                row.task_id, row.lane_id, row.priority_class, row.tenant_id, row.task_type, row.task_group, row.order_at,
                row.cost, row.timeout_seconds, row.preemptible, row.virtual_time, row.weight or 1.0,
            )
        )  # fmt: skip
    return found, empty


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


_ADVANCE = text("""
UPDATE lanes l SET virtual_time = v.virtual_time
FROM unnest(CAST(:classes AS text[]), CAST(:tenants AS text[]), CAST(:times AS float8[])) AS v(priority_class, tenant_id, virtual_time)
WHERE l.priority_class = v.priority_class AND l.tenant_id = v.tenant_id AND l.virtual_time < v.virtual_time
""")
_CLOCKS = text("""
INSERT INTO class_clocks (priority_class, virtual_time)
SELECT * FROM unnest(CAST(:classes AS text[]), CAST(:times AS float8[]))
ON CONFLICT (priority_class) DO UPDATE SET virtual_time = GREATEST(class_clocks.virtual_time, excluded.virtual_time)
""")


async def advance(
    connection: AsyncConnection, virtual_times: Mapping[tuple[str, str], float], clocks: Mapping[str, float]
) -> None:
    """Write the virtual times of (class, tenant) pairs that were served, and the class clocks."""
    if virtual_times:
        await connection.execute(
            _ADVANCE,
            {
                "classes": [key[0] for key in virtual_times],
                "tenants": [key[1] for key in virtual_times],
                "times": list(virtual_times.values()),
            },
        )
    if clocks:
        await connection.execute(_CLOCKS, {"classes": list(clocks), "times": list(clocks.values())})


async def read_clocks(connection: AsyncConnection) -> dict[str, float]:
    """Read the virtual time of every class."""
    rows = (await connection.execute(text("SELECT priority_class, virtual_time FROM class_clocks"))).fetchall()
    return {row.priority_class: row.virtual_time for row in rows}
