"""Vacuums the small busy tables when dead rows pile up."""

from app.runtime import Runtime
from app.store.vacuum import vacuum_piled_up

INTERVAL_SECONDS = 10.0
DEAD_ROWS = 5_000


async def run_once(runtime: Runtime) -> int:
    """Vacuum what needs it; returns how many tables."""
    return len(await vacuum_piled_up(runtime.database, at_least=DEAD_ROWS))
