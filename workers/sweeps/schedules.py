"""Fires the schedules whose time has come."""

from app.runtime import Runtime
from app.services.schedules import fire_due

INTERVAL_SECONDS = 0.5


async def run_once(runtime: Runtime) -> int:
    """Fire what is due; returns how many tasks were made."""
    return await fire_due(runtime)
