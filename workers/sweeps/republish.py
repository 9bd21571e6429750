"""Publishes again what was released and never claimed: its message may have been lost. Doubles do no harm.

Whether somebody serves a class is asked of the register of workers, not of the broker: a queue that is stuck says that
it has no consumers, or nothing at all, and only publishing to it shows that it is (and has it mended).
"""

from app.broker.base import Published
from app.runtime import Runtime
from app.services.releases import message_of
from app.store import flights, workers

INTERVAL_SECONDS = 1.0
_BATCH = 500


async def run_once(runtime: Runtime) -> int:
    """Publish again, per class and only where somebody works; returns how many messages were confirmed."""
    if not runtime.broker.connected:
        return 0
    async with runtime.database.transaction() as connection:
        live = await workers.live(connection)
    served = {name for worker in live if not worker.draining for name in worker.classes}
    confirmed = 0
    for one in runtime.policy.current.classes:
        if one.name not in served:
            continue
        async with runtime.database.transaction() as connection:
            rows = await flights.unclaimed(
                connection, classes=[one.name], older_than_seconds=one.republish_after_seconds, limit=_BATCH
            )
        if rows:
            results = await runtime.broker.publish([(one.name, message_of(row)) for row in rows])
            done = results.count(Published.CONFIRMED)
            runtime.metrics.republished(one.name, done)
            confirmed += done
    return confirmed
