"""The columns that travel with a task from place to place (ready, delayed, suspended, flights), spelled once."""

from typing import TypeVar

T = TypeVar("T")

PLACE = (
    "task_id, priority_class, tenant_id, task_type, task_group, order_at, queued_at, valid_until, cost, "
    "timeout_seconds, preemptible, attempt, dispatch, submitted_at, traceparent, tracestate"
)


def place_of(alias: str, **instead: str) -> str:
    """Spell the place columns of `alias` for a SELECT, with some computed instead."""
    return ", ".join(instead.get(column, f"{alias}.{column}") for column in PLACE.split(", "))


def column(values: list[T]) -> list[T]:
    """Give an array parameter for `unnest`: an empty one where all are None, which unnest pads with NULLs.

    The driver looks at every element of an array; columns that nobody uses should cost nothing.
    """
    return values if any(value is not None for value in values) else []


# The class in which a flight comes back: the one that it flies in, unless somebody gave it another meanwhile.
CLASS_OF_RETURN = "COALESCE(g.next_class, g.priority_class)"
