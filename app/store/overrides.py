"""Moving tasks to another class, and the register of classes that people gave.

The task's place row is locked first, as by everybody who moves a task: a release or a settlement that comes second
finds the new class on the row, one that came first has taken the row away, and whoever wants to move it looks again.
Then come lane, task and override. A flight keeps the class whose seat it holds; `next_class` is where it comes back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.lifecycle import FINAL
from app.store.lanes import HOLD_LANES, lane_arrays

_ENDED = ", ".join(f"'{status}'" for status in sorted(FINAL))
_KEY = "task_id, priority_class, tenant_id, task_type, task_group"
_HOLD = text(f"""
WITH waiting AS MATERIALIZED (SELECT {_KEY} FROM ready WHERE task_id = :task_id FOR UPDATE),
put_off AS MATERIALIZED (SELECT {_KEY} FROM delayed WHERE task_id = :task_id FOR UPDATE),
asleep AS MATERIALIZED (SELECT {_KEY} FROM suspended WHERE task_id = :task_id FOR UPDATE),
flying AS MATERIALIZED (SELECT {_KEY} FROM flights WHERE task_id = :task_id FOR UPDATE)
SELECT 'ready' AS place, * FROM waiting UNION ALL SELECT 'delayed', * FROM put_off
UNION ALL SELECT 'suspended', * FROM asleep UNION ALL SELECT 'flights', * FROM flying
""")
_HOLD_TASK = text("SELECT 1 FROM tasks WHERE task_id = :task_id AND status = 'dead_lettered' FOR UPDATE")


async def hold_place(connection: AsyncConnection, task_id: str) -> Row[Any] | None:
    """Lock the place of a task; None when it has none, or is between two of them at this moment."""
    return (await connection.execute(_HOLD, {"task_id": task_id})).first()


async def hold_dead(connection: AsyncConnection, task_id: str) -> bool:
    """Lock a dead-lettered task, which has no place and may get one again; tells whether it is one."""
    return (await connection.execute(_HOLD_TASK, {"task_id": task_id})).first() is not None


_ORDER = "order_at = order_at + CAST(:shift_seconds AS float8) * interval '1 second'"
_MOVE = {
    "ready": text(f"""
        UPDATE ready SET priority_class = :priority_class, {_ORDER}, lane_id = (
            SELECT l.lane_id FROM lanes l WHERE l.priority_class = :priority_class AND l.tenant_id = ready.tenant_id
            AND l.task_type = ready.task_type AND l.task_group = ready.task_group)
        WHERE task_id = :task_id"""),
    "delayed": text(f"UPDATE delayed SET priority_class = :priority_class, {_ORDER} WHERE task_id = :task_id"),
    "suspended": text(f"UPDATE suspended SET priority_class = :priority_class, {_ORDER} WHERE task_id = :task_id"),
    "flights": text(f"""
        UPDATE flights SET next_class = NULLIF(CAST(:priority_class AS text), priority_class), {_ORDER}
        WHERE task_id = :task_id"""),
}


async def move(connection: AsyncConnection, held: Row[Any], priority_class: str, *, shift_seconds: float) -> None:
    """Put the held place of a task into another class, its turn by that class's target."""
    if held.place == "ready":
        key = (priority_class, held.tenant_id, held.task_type, held.task_group)
        await connection.execute(HOLD_LANES, lane_arrays([key]))
    values = {"task_id": held.task_id, "priority_class": priority_class, "shift_seconds": shift_seconds}
    await connection.execute(_MOVE[held.place], values)


@dataclass(frozen=True, slots=True)
class Reclassified:
    """What a task's row and history say of a move; `detail` is JSON text with the class and code before it."""

    task_id: str
    priority_class: str
    reason_code: str
    kind: str
    reason: str | None
    actor: str | None
    detail: str


_WRITE = text("""
WITH told AS (
    INSERT INTO events (task_id, at, kind, reason, actor, detail)
    VALUES (:task_id, clock_timestamp(), :kind, :reason, :actor, :detail)
)
UPDATE tasks SET priority_class = :priority_class, reason_code = :reason_code, updated_at = clock_timestamp()
WHERE task_id = :task_id
""")


async def write(connection: AsyncConnection, new: Reclassified) -> None:
    """Write the class down in the task and its history; its place must be held."""
    await connection.execute(_WRITE, {name: getattr(new, name) for name in Reclassified.__dataclass_fields__})


# Approvals are held before places, so that this is a statement of its own, after the move.
_ASKED = text("""
UPDATE approvals a SET priority_class = t.priority_class FROM tasks t
WHERE a.task_id = :task_id AND t.task_id = a.task_id AND a.state = 'pending' AND a.priority_class <> t.priority_class
""")


async def let_approvals_follow(connection: AsyncConnection, task_id: str) -> None:
    """Give the pending approvals of a task its class."""
    await connection.execute(_ASKED, {"task_id": task_id})


# --- the register ------------------------------------------------------------------------------------------------

_COLUMNS = (
    "override_id, task_id, tenant_id, type, priority_class, from_class, derived_class, derived_reason_code, reason, "
    "created_by, created_at, expires_at, ended_at, ended_why"
)
_LASTING = text(f"SELECT {_COLUMNS} FROM overrides WHERE task_id = :task_id AND ended_at IS NULL FOR UPDATE")
_GET = text(f"SELECT {_COLUMNS} FROM overrides WHERE override_id = :override_id")
_END = text("""
UPDATE overrides SET ended_at = clock_timestamp(), ended_why = :why WHERE override_id = :override_id AND ended_at IS NULL
""")
_ADD = text(f"""
INSERT INTO overrides (override_id, task_id, tenant_id, type, priority_class, from_class, derived_class,
                       derived_reason_code, reason, created_by, created_at, expires_at)
VALUES (:override_id, :task_id, :tenant_id, :type, :priority_class, :from_class, :derived_class, :derived_reason_code,
        :reason, :created_by, clock_timestamp(), :expires_at)
RETURNING {_COLUMNS}
""")


@dataclass(frozen=True, slots=True)
class NewOverride:
    """A class given by hand. `derived_class` with its code is what the rules gave, and what comes back at the end."""

    override_id: str
    task_id: str
    tenant_id: str
    type: str
    priority_class: str
    from_class: str
    derived_class: str
    derived_reason_code: str
    reason: str
    created_by: str
    expires_at: datetime


async def lasting(connection: AsyncConnection, task_id: str) -> Row[Any] | None:
    """Read and lock the override that lasts for a task, whose place must be held."""
    return (await connection.execute(_LASTING, {"task_id": task_id})).first()


async def get(connection: AsyncConnection, override_id: str) -> Row[Any] | None:
    """Read one override."""
    return (await connection.execute(_GET, {"override_id": override_id})).first()


async def end(connection: AsyncConnection, override_id: str, why: str) -> None:
    """Close an override."""
    await connection.execute(_END, {"override_id": override_id, "why": why})


async def add(connection: AsyncConnection, new: NewOverride) -> Row[Any]:
    """Enter an override; the one before must have been ended."""
    values = {name: getattr(new, name) for name in NewOverride.__dataclass_fields__}
    return (await connection.execute(_ADD, values)).one()


_OVER = text("""
SELECT override_id, task_id, clock_timestamp() AS now FROM overrides
WHERE ended_at IS NULL AND expires_at <= clock_timestamp() ORDER BY expires_at, override_id LIMIT :limit
""")


async def over(connection: AsyncConnection, limit: int) -> Sequence[Row[Any]]:
    """Read overrides whose time is over and that nobody has ended yet."""
    return (await connection.execute(_OVER, {"limit": limit})).fetchall()


_COUNT = text("""
SELECT o.priority_class, count(*) AS n FROM overrides o WHERE o.ended_at IS NULL GROUP BY o.priority_class
""")


async def counts(connection: AsyncConnection) -> dict[str, int]:
    """Count the overrides that last, by the class that they give."""
    return {row.priority_class: row.n for row in (await connection.execute(_COUNT)).fetchall()}


@dataclass(frozen=True, slots=True)
class OverrideFilter:
    """Which overrides; an empty tuple means all. `lasting` True: those that last; False: those that have ended."""

    lasting: bool | None = None
    task_id: tuple[str, ...] = ()
    priority_class: tuple[str, ...] = ()
    tenant_id: tuple[str, ...] = ()


_PAGE = """
SELECT {columns} FROM (
    SELECT o.*, CASE WHEN o.ended_at IS NOT NULL THEN o.ended_why
                     WHEN t.task_id IS NULL OR t.status IN ({ended}) THEN 'task_ended'
                     WHEN o.expires_at <= clock_timestamp() THEN 'expired' ELSE 'lasting' END AS state
    FROM overrides o LEFT JOIN tasks t ON t.task_id = o.task_id
) o
WHERE {where} ORDER BY override_id DESC LIMIT :limit
"""


async def page(
    connection: AsyncConnection, found: OverrideFilter, *, before: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Read overrides, newest first, below the id `before`."""
    values: dict[str, Any] = {"limit": limit}
    where = ["true"]
    for column in ("task_id", "priority_class", "tenant_id"):
        if wanted := getattr(found, column):
            where.append(f"{column} = ANY(CAST(:{column} AS text[]))")
            values[column] = list(wanted)
    if found.lasting is not None:
        where.append("state = 'lasting'" if found.lasting else "state <> 'lasting'")
    if before is not None:
        where.append("override_id < :before")
        values["before"] = before
    statement = _PAGE.format(columns=f"{_COLUMNS}, state", ended=_ENDED, where=" AND ".join(where))
    return (await connection.execute(text(statement), values)).fetchall()


# --- classes that left the policy ---------------------------------------------------------------------------------

# Lanes are few; what is delayed or suspended is scanned, which the sweep's share of the time bounds.
_STRAYED = text("""
SELECT task_id FROM (
    (SELECT r.task_id FROM lanes l JOIN ready r ON r.lane_id = l.lane_id
     WHERE l.priority_class <> ALL (CAST(:known AS text[])) LIMIT :limit)
    UNION ALL
    (SELECT d.task_id FROM delayed d WHERE d.priority_class <> ALL (CAST(:known AS text[])) LIMIT :limit)
    UNION ALL
    (SELECT s.task_id FROM suspended s WHERE s.priority_class <> ALL (CAST(:known AS text[])) LIMIT :limit)
) s ORDER BY task_id LIMIT :limit
""")
_IN_USE = text("""
SELECT priority_class, CAST(sum(n) AS bigint) AS n FROM (
    SELECT l.priority_class, count(*) AS n FROM lanes l JOIN ready r ON r.lane_id = l.lane_id
    WHERE l.priority_class <> ALL (CAST(:known AS text[])) GROUP BY 1
    UNION ALL SELECT priority_class, count(*) FROM delayed WHERE priority_class <> ALL (CAST(:known AS text[])) GROUP BY 1
    UNION ALL SELECT priority_class, count(*) FROM suspended WHERE priority_class <> ALL (CAST(:known AS text[])) GROUP BY 1
    UNION ALL SELECT COALESCE(next_class, priority_class), count(*) FROM flights
              WHERE COALESCE(next_class, priority_class) <> ALL (CAST(:known AS text[])) GROUP BY 1
) u GROUP BY 1 ORDER BY 1
""")


async def strayed(connection: AsyncConnection, known: Sequence[str], limit: int) -> list[str]:
    """Name tasks that wait in a class that is none of `known`."""
    rows = (await connection.execute(_STRAYED, {"known": list(known), "limit": limit})).fetchall()
    return [row.task_id for row in rows]


async def in_use(connection: AsyncConnection, known: Sequence[str]) -> dict[str, int]:
    """Count the unfinished tasks of every class that is none of `known`."""
    rows = (await connection.execute(_IN_USE, {"known": list(known)})).fetchall()
    return {row.priority_class: row.n for row in rows}
