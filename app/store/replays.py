"""Reading a span of the past as a load: when each task came, from whom, and how long it ran. No inputs, no results."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

# Ids are time-ordered, so a span of time is a range of the primary key, and a batch begins where the last one ended.
_BATCH = text("""
SELECT t.task_id, t.tenant_id, t.type, COALESCE(t.task_group, '') AS task_group, t.cost_class, t.preemptible,
       t.timeout_seconds, t.submitted_at, t.not_before, t.due_at, t.valid_until,
       COALESCE(n.service_class, 'standard') AS service_class, COALESCE(n.weight, 1) AS weight,
       a.run_seconds, a.ended, a.failed
FROM tasks t
LEFT JOIN tenants n ON n.tenant_id = t.tenant_id
CROSS JOIN LATERAL (
    SELECT max(extract(epoch FROM a.finished_at - a.started_at))::float8 AS run_seconds, count(*) AS ended,
           count(*) FILTER (WHERE a.spent AND a.error_type IS NOT NULL) AS failed
    FROM attempts a WHERE a.task_id = t.task_id) a
WHERE t.task_id >= :first AND t.task_id < :past AND t.task_id > :after
ORDER BY t.task_id LIMIT :batch
""")


async def batch(connection: AsyncConnection, *, first: str, past: str, after: str, size: int) -> Sequence[Row[Any]]:
    """Read up to `size` tasks with ids from `first` to before `past`, those after `after`."""
    values = {"first": first, "past": past, "after": after, "batch": size}
    return (await connection.execute(_BATCH, values)).fetchall()
