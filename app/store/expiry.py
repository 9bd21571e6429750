"""Expiring what waits: its `valid_until` has passed before it started."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.sql.elements import TextClause

from app.domain.lifecycle import Move
from app.store.cancellations import TALLY_NAME
from app.store.database import Database
from app.store.tallies import tally_sql
from app.store.tasks import move_sql


def _sql(place: str, also: str = "") -> TextClause:
    """Render the statement for one place; rows that somebody else holds are left for the next turn."""
    tally = f""",
tally AS (
    {tally_sql("gone", ":tally_name")}
)"""
    return text(f"""
WITH over AS MATERIALIZED (
    SELECT task_id FROM {place} WHERE valid_until <= clock_timestamp() {also}
    ORDER BY valid_until LIMIT :limit FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM {place} p USING over o WHERE p.task_id = o.task_id {also}
    RETURNING p.task_id, p.priority_class, p.task_type
),
moved AS (
    {move_sql(Move.EXPIRE, "gone", "finished_at = clock_timestamp(), next_attempt_at = NULL")}
    RETURNING t.task_id, t.valid_until
),
told AS (
    INSERT INTO events (task_id, at, kind, reason) SELECT task_id, clock_timestamp(), 'expired', 'valid_until' FROM moved
){tally if place == "flights" else ""}
SELECT g.task_id, g.priority_class, g.task_type FROM gone g JOIN moved m ON m.task_id = g.task_id
""")


_EXPIRE = (_sql("ready"), _sql("delayed"), _sql("suspended"), _sql("flights", "AND fence IS NULL"))


async def expire(database: Database, limit: int) -> Sequence[Row[Any]]:
    """Expire up to `limit` waiting tasks of each place: due, delayed, suspended, and released but unclaimed."""
    found: list[Row[Any]] = []
    for statement in _EXPIRE:
        values: dict[str, object] = {"limit": limit}
        if statement is _EXPIRE[-1]:
            values["tally_name"] = TALLY_NAME
        found += await database.execute_hot(statement, values, retry_for_seconds=0.0)
    return found
