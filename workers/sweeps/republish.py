"""Publishes again what was released and never claimed: its message may have been lost. Doubles do no harm."""

from app.broker.base import BrokerUnreachable, Published
from app.runtime import Runtime
from app.services.releases import message_of
from app.store import flights

INTERVAL_SECONDS = 1.0
_BATCH = 500


async def run_once(runtime: Runtime) -> int:
    """Publish again, per class and only where somebody consumes; returns how many messages were confirmed."""
    classes = runtime.policy.current.classes
    try:
        depths = await runtime.broker.depths([one.name for one in classes])
    except BrokerUnreachable:
        return 0
    confirmed = 0
    for one in classes:
        depth = depths.get(one.name)
        if depth is None or depth.consumers == 0:
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
