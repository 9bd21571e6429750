"""A provider goes down and comes back: what it sees of a thousand waiting tasks before, during and after."""

import asyncio
import time

from tests.support.eventually import eventually
from tests.support.provider import PROVIDERS, Provider
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import ONE_CLASS, a_world

POLICY = (
    ONE_CLASS
    + """
[[dependency]]
name = "provider"
breaker = { open_after = 5, window = "10s", probe_after = "400ms", growth = 1.5, maximum = "1s", probes = 2, ramp = "1500ms" }
"""
)
OUTAGE_SECONDS = 3.0


async def test_an_outage_makes_no_storm_and_spends_nobodys_attempts(database_url: str, rabbit: RabbitNode) -> None:
    async with a_world(
        database_url, rabbit.url, policy=POLICY, slots=16, modules=["tests.support.provider"],
        dependencies={"slice_seconds": 1.0},
    ) as world:  # fmt: skip
        provider = PROVIDERS[str(world.at)] = Provider(seconds=0.02)
        before = time.monotonic()
        ids = await world.submit("ask_provider", 1000)
        await eventually(lambda: len(provider.requests) >= 150, within_seconds=30)

        provider.status = 503
        down = time.monotonic()
        await asyncio.sleep(OUTAGE_SECONDS)
        provider.status = 200
        up = time.monotonic()
        seen = await world.ended(ids, within_seconds=60)

        assert {task["status"] for task in seen} == {"done"}
        rate_before = provider.between(before, down) / (down - before)
        in_outage = provider.between(down + 0.3, up)
        after = provider.per_slot(up, time.monotonic(), 0.1)
        print(rate_before, provider.between(down, down + 0.3), in_outage, after)
        spent = await rows(world.runtime, "SELECT count(*) AS n FROM attempts WHERE outcome = 'failed'")
        print(spent, await rows(world.runtime, "SELECT outcome, error_type, count(*) FROM attempts GROUP BY 1, 2"))
        print(len(provider.requests))
