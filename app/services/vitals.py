"""The vital signs of a process: whether it reaches the database and the broker, its pools, and how its clock stands."""

import asyncio
import contextlib
import logging
from datetime import UTC, datetime

from app.runtime import Runtime
from app.services.policies import follow
from app.store.database import DatabaseUnavailable
from app.telemetry.logs import dropped_lines, event
from app.version import product_version

log = logging.getLogger("despacho.process")
_EVERY_SECONDS = 2.0
_OWN_SERIES = (
    "timeout", "rate_limit", "unavailable", "connection", "database_unavailable", "invalid_payload", "invalid_result",
    "missing_input", "corrupted_input", "permission", "unknown_handler", "worker_lost", "malformed_message",
    "delivery_limit",
)  # fmt: skip


def prepare_metrics(runtime: Runtime) -> None:
    """Name what must keep series of its own, and have pools and dropped log lines read at every scrape."""
    metrics = runtime.metrics
    metrics.build(product_version(), runtime.name)
    metrics.log_lines_watched(dropped_lines)
    metrics.reserve(classes=runtime.policy.current.by_name, types=runtime.registry, error_types=_OWN_SERIES)
    for name, (size, in_use) in runtime.database.pools().items():
        metrics.pool_watched(name, size, in_use)


async def watch(runtime: Runtime) -> None:
    """Look at the database and the broker every few seconds, until cancelled."""
    while True:
        await look(runtime)
        await asyncio.sleep(_EVERY_SECONDS)


async def _follow_policy(runtime: Runtime) -> None:
    """Have the newest version of the policy rule in this process too, whatever roles it plays."""
    try:
        await runtime.database.run(lambda connection: follow(runtime, connection), retry_for_seconds=0.0)
    except Exception as error:  # the version that was read last goes on to rule
        event(log, "policy_not_looked_for", level=logging.WARNING, error=error)


async def look(runtime: Runtime) -> bool:
    """Look once, at the database's clock too; tells whether the database answered."""
    up = False
    with contextlib.suppress(DatabaseUnavailable):
        before = datetime.now(UTC)
        told = await runtime.database.ping()
        after = datetime.now(UTC)
        runtime.clock_ahead = before + (after - before) / 2 - told
        up = True
    if up:
        await _follow_policy(runtime)
    runtime.metrics.database_up(up)
    runtime.metrics.broker_up(runtime.broker.connected)
    return up
