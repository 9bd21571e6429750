"""What input filters found in a task's documents, as events of its history: kinds and numbers, never text."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import text

from app.store.database import Database


class FilterEvent(msgspec.Struct, frozen=True):
    """One event of one attempt; `detail` is JSON text, `verdict` the strongest of its filters."""

    task_id: str
    fence: int
    verdict: str
    detail: str


# A repeated statement, or a later run that looks at the same document, adds nothing.
_RECORD = text("""
WITH owned AS MATERIALIZED (
    SELECT g.task_id, g.fence, g.verdict, g.detail
    FROM unnest(CAST(:ids AS text[]), CAST(:fences AS bigint[]), CAST(:verdicts AS text[]), CAST(:details AS text[]))
        AS g(task_id, fence, verdict, detail)
    JOIN flights f ON f.task_id = g.task_id AND f.fence = g.fence
    ORDER BY g.task_id FOR KEY SHARE OF f
),
kept AS (
    INSERT INTO events (task_id, at, kind, reason, detail)
    SELECT DISTINCT ON (o.task_id, o.detail) o.task_id, clock_timestamp(), 'input_filtered', o.verdict, o.detail FROM owned o
    WHERE NOT EXISTS (
        SELECT 1 FROM events e WHERE e.task_id = o.task_id AND e.kind = 'input_filtered' AND e.detail = o.detail
    )
)
SELECT DISTINCT task_id, fence FROM owned
""")


async def record(
    database: Database, events: Sequence[FilterEvent], *, retry_for_seconds: float
) -> set[tuple[str, int]]:
    """Record events of attempts that still own their tasks; returns the (task_id, fence) that do. Safe to repeat."""
    ordered = sorted(events, key=lambda one: one.task_id)
    values = {
        "ids": [one.task_id for one in ordered],
        "fences": [one.fence for one in ordered],
        "verdicts": [one.verdict for one in ordered],
        "details": [one.detail for one in ordered],
    }
    rows = await database.execute_hot(_RECORD, values, retry_for_seconds=retry_for_seconds)
    return {(row.task_id, row.fence) for row in rows}
