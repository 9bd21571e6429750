"""Puts effects in doubt that nobody comes back to, and lets tasks go on whose effect became known late."""

from app.runtime import Runtime
from app.services.effects import look_after

INTERVAL_SECONDS = 2.0


async def run_once(runtime: Runtime) -> int:
    """Look once; returns how many effects and tasks were touched."""
    return await look_after(runtime)
