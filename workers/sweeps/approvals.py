"""Expires approvals that nobody decided in time, and ends the tasks that wait for them as rejected."""

from app.runtime import Runtime
from app.services.approvals import expire_due

INTERVAL_SECONDS = 0.5
_BATCH = 200
_BATCHES_PER_TURN = 20


async def run_once(runtime: Runtime) -> int:
    """Expire what is over, in small batches; returns how many approvals."""
    expired = 0
    for _ in range(_BATCHES_PER_TURN):
        count = await expire_due(runtime, _BATCH)
        expired += count
        if count < _BATCH:
            break
    return expired
