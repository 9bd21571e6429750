"""Closes model calls whose attempt died before it heard the answer: their estimate stays as what they cost."""

from dataclasses import dataclass

from app.domain.llm import Outcome
from app.runtime import Runtime
from app.store.llm_calls import close_dead, oldest_open

INTERVAL_SECONDS = 5.0
QUIET_SECONDS = 10.0
"""How long after its start a call without an owner is left alone: a finish may be on its way."""
_BATCH = 500


@dataclass(slots=True)
class Cursor:
    """The oldest call that may still be open: what is below it is never looked at again."""

    from_id: str = ""


async def run_once(runtime: Runtime, cursor: Cursor | None = None, *, quiet_seconds: float = QUIET_SECONDS) -> int:
    """Close what is dead; returns how many calls."""
    cursor = cursor or Cursor()
    oldest = await oldest_open(runtime.database, cursor.from_id)
    if oldest is None:
        return 0
    cursor.from_id = oldest
    closed = await close_dead(runtime.database, from_id=oldest, quiet_seconds=quiet_seconds, limit=_BATCH)
    for row in closed:
        runtime.metrics.llm_call(row.provider, row.model_asked, row.task_type, Outcome.UNANSWERED, None)
        runtime.metrics.llm_tokens(
            row.provider, row.model_asked, row.task_type, {"input": row.input_tokens, "output": row.output_tokens}
        )
        if row.cost_usd is not None:
            runtime.metrics.llm_cost(row.provider, row.model_asked, row.task_type, float(row.cost_usd))
    return len(closed)
