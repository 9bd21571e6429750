"""Lists of approvals: by class in the order of the policy, then oldest due first, and without offsets."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.elements import TextClause

from app.store.approvals import COLUMNS, STATE


@dataclass(frozen=True, slots=True)
class ApprovalFilter:
    """Which approvals. An empty tuple leaves a field open; several values of a field mean "or"."""

    state: tuple[str, ...] = ()
    priority_class: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    action: tuple[str, ...] = ()
    task_id: tuple[str, ...] = ()
    tenant_id: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page of the list ended: the list goes by class, then by due time, then by id."""

    rank: int
    due_at: datetime
    approval_id: str


# The state is spelled out where only open ones are wanted: the planner then knows the index over those.
def _list_sql(stored: str) -> TextClause:
    return text(f"""
SELECT * FROM (
    SELECT {", ".join(f"a.{name.strip()}" for name in COLUMNS.split(","))}, {STATE} AS state,
           COALESCE(array_position(CAST(:ranked AS text[]), a.priority_class), 1000) AS rank
    FROM approvals a LEFT JOIN tasks t ON t.task_id = a.task_id
    WHERE {stored}
      AND (CAST(:priority_class AS text[]) IS NULL OR a.priority_class = ANY(CAST(:priority_class AS text[])))
      AND (CAST(:type AS text[]) IS NULL OR a.type = ANY(CAST(:type AS text[])))
      AND (CAST(:action AS text[]) IS NULL OR a.action = ANY(CAST(:action AS text[])))
      AND (CAST(:task_id AS text[]) IS NULL OR a.task_id = ANY(CAST(:task_id AS text[])))
      AND (CAST(:tenant_id AS text[]) IS NULL OR a.tenant_id = ANY(CAST(:tenant_id AS text[])))
) found
WHERE (CAST(:state AS text[]) IS NULL OR state = ANY(CAST(:state AS text[])))
  AND (CAST(:after_id AS text) IS NULL OR (rank, due_at, approval_id)
       > (CAST(:after_rank AS int), CAST(:after_due_at AS timestamptz), CAST(:after_id AS text) COLLATE "C"))
ORDER BY rank, due_at, approval_id LIMIT :limit
""")


_LIST_OPEN = _list_sql("a.state = 'pending'")
_LIST = _list_sql("(CAST(:stored AS text[]) IS NULL OR a.state = ANY(CAST(:stored AS text[])))")


async def page(
    connection: AsyncConnection, found: ApprovalFilter, *, classes: Sequence[str], after: Position | None, limit: int
) -> Sequence[Row[Any]]:
    """Read approvals by class (in the order of `classes`), oldest due first; `rank` is the place of the row's class."""
    values: dict[str, Any] = {name: list(getattr(found, name)) or None for name in ApprovalFilter.__dataclass_fields__}
    values |= {
        "ranked": list(classes),
        "after_rank": after.rank if after else None,
        "after_due_at": after.due_at if after else None,
        "after_id": after.approval_id if after else None,
        "limit": limit,
    }
    if set(found.state) == {"pending"}:
        return (await connection.execute(_LIST_OPEN, values)).fetchall()
    # What is shown as expired or withdrawn may still be stored as pending.
    values["stored"] = sorted({*found.state, "pending"}) if found.state else None
    return (await connection.execute(_LIST, values)).fetchall()
