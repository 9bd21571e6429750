"""Ends classes given by hand when their time is over, and finds work in classes that left the policy."""

from app.runtime import Runtime
from app.services.overrides import expire_due, route_strays
from app.store import overrides

INTERVAL_SECONDS = 0.5
STRAYS_INTERVAL_SECONDS = 5.0
_BATCH = 200
_BATCHES_PER_TURN = 20


async def run_once(runtime: Runtime) -> int:
    """End what is over, in small batches; returns how many overrides."""
    ended = 0
    for _ in range(_BATCHES_PER_TURN):
        count = await expire_due(runtime, _BATCH)
        ended += count
        if count < _BATCH:
            break
    runtime.metrics.overrides_lasting(await runtime.database.run(overrides.counts))
    return ended


async def route_once(runtime: Runtime) -> int:
    """Move a batch of tasks whose class is not in the policy to its default class; returns how many."""
    return await route_strays(runtime, _BATCH)
