"""What waits for a time: scheduled, snoozed, failed and not due yet; and what came back and goes to the waiting again."""

from collections.abc import Sequence

from sqlalchemy import text

from app.domain.lifecycle import Move
from app.store.database import Database
from app.store.hot import HotRow
from app.store.lanes import NEW_LANES_SQL
from app.store.leaders import LEADS_SQL
from app.store.places import PLACE, place_of
from app.store.tasks import move_sql

# Only the dispatcher's leader runs this; it also is the only one who deletes lanes, so a lane read here stays.
# DO UPDATE (to the same value) makes RETURNING give the ids of lanes that exist already.
_DUE = text(f"""
WITH {LEADS_SQL},
due AS MATERIALIZED (
    SELECT task_id FROM delayed WHERE due_at <= clock_timestamp() AND EXISTS (SELECT 1 FROM leads)
    ORDER BY due_at, task_id LIMIT :limit FOR UPDATE SKIP LOCKED
),
gone AS (DELETE FROM delayed d USING due u WHERE d.task_id = u.task_id RETURNING d.*),
keys AS MATERIALIZED (SELECT DISTINCT priority_class, tenant_id, task_type, task_group FROM gone),
lane AS (
    {NEW_LANES_SQL.format(keys="keys k", on_conflict="DO UPDATE SET virtual_time = lanes.virtual_time")}
    RETURNING lane_id, priority_class, tenant_id, task_type, task_group
),
moved AS ({move_sql(Move.DUE, "gone", "next_attempt_at = NULL")} RETURNING t.task_id)
INSERT INTO ready ({PLACE}, lane_id)
SELECT {place_of("g", queued_at="GREATEST(g.queued_at, g.due_at)")}, l.lane_id FROM gone g
JOIN lane l ON l.priority_class = g.priority_class AND l.tenant_id = g.tenant_id AND l.task_type = g.task_type
           AND l.task_group = g.task_group
RETURNING task_id, priority_class, lane_id, order_at
""")


async def come_due(database: Database, *, holder: str, epoch: int, limit: int) -> Sequence[HotRow]:
    """Move up to `limit` rows whose time has come to the waiting; returns their lanes and order."""
    return await database.execute_hot(_DUE, {"holder": holder, "epoch": epoch, "limit": limit}, retry_for_seconds=0.0)
