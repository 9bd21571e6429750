"""Expires tasks whose `valid_until` has passed while they waited."""

from collections import Counter

from app.runtime import Runtime
from app.store.expiry import expire

INTERVAL_SECONDS = 0.5
_BATCH = 500
_BATCHES_PER_TURN = 20


async def run_once(runtime: Runtime) -> int:
    """Expire what is over, in small batches; returns how many tasks."""
    expired = 0
    for _ in range(_BATCHES_PER_TURN):
        rows = await expire(runtime.database, _BATCH)
        for (priority_class, task_type), count in Counter((row.priority_class, row.task_type) for row in rows).items():
            runtime.metrics.tasks_expired(priority_class, task_type, count)
        runtime.tell_ended([row.task_id for row in rows])
        expired += len(rows)
        if len(rows) < _BATCH:
            break
    return expired
