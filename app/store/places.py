"""The columns that travel with a task from place to place (ready, delayed, flights), spelled once."""

PLACE = (
    "task_id, priority_class, tenant_id, task_type, task_group, order_at, queued_at, valid_until, cost, "
    "timeout_seconds, preemptible, attempt, dispatch, submitted_at, traceparent, tracestate"
)


def place_of(alias: str, **instead: str) -> str:
    """Spell the place columns of `alias` for a SELECT, with some computed instead."""
    return ", ".join(instead.get(column, f"{alias}.{column}") for column in PLACE.split(", "))
