"""Works off bulk actions: in each turn one step of every action whose next step is due."""

from app.runtime import Runtime
from app.services import bulk

INTERVAL_SECONDS = 0.25


async def run_once(runtime: Runtime) -> int:
    """Make one step of each due bulk action; returns how many things were touched."""
    touched, above = 0, ""
    while (step := await bulk.step(runtime, above=above)) is not None:
        touched += step.items
        above = step.bulk_action_id
    return touched
