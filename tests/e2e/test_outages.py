"""A provider goes down and comes back: what it sees of a thousand waiting tasks before, during and after."""

import asyncio
import time

from tests.support.eventually import eventually
from tests.support.provider import PROVIDERS, Provider
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import ONE_CLASS, a_world

POLICY = f"""{ONE_CLASS}
[[dependency]]
name = "provider"
breaker = {{ open_after = 5, probe_after = "400ms", growth = 1.5, maximum = "1s", probes = 2, ramp = "1500ms" }}
"""
SLOTS = 16
OUTAGE_SECONDS = 3.0
PROBES_AT_MOST = 2 * 12


async def test_an_outage_makes_no_storm_and_spends_nobodys_attempts(database_url: str, rabbit: RabbitNode) -> None:
    async with a_world(
        database_url, rabbit.url, policy=POLICY, slots=SLOTS, modules=["tests.support.provider"],
        dependencies={"slice_seconds": 1.0},
    ) as world:  # fmt: skip
        provider = PROVIDERS[str(world.at)] = Provider(seconds=0.02)
        ids = await world.submit("ask_provider", 1000)
        await eventually(lambda: len(provider.requests) >= 150, within_seconds=30)
        before = len(provider.requests) / (time.monotonic() - provider.requests[0])

        provider.status = 503
        down = time.monotonic()
        await asyncio.sleep(OUTAGE_SECONDS)
        held = await rows(world.runtime, "SELECT (SELECT count(*) FROM flights) + (SELECT count(*) FROM delayed) AS n")
        up, provider.status = time.monotonic(), 200
        seen = await world.ended(ids, within_seconds=60)

        assert {task["status"] for task in seen} == {"done"}
        # At first what was under way fails; then nothing but probes until it is back.
        assert provider.between(down, up) <= 3 * SLOTS + PROBES_AT_MOST
        assert provider.between(down + 1.0, up) <= PROBES_AT_MOST
        assert provider.between(down + 1.0, up) / (up - down - 1.0) < before / 5
        assert held[0]["n"] <= 6 * SLOTS, "what waits for the dependency stays in `ready`"
        # After the first success come few at once, then more and more, not all that waited.
        back = next(at for at in provider.requests if at >= up)
        assert provider.between(back, back + 0.25) <= 4 * 0.25 / provider.seconds
        failed = await rows(world.runtime, "SELECT task_id FROM attempts WHERE outcome = 'failed'")
        assert len(failed) <= 3 * SLOTS
        assert max(task["attempts"] for task in seen) <= 3


async def test_a_retry_after_of_one_call_holds_for_all_workers(database_url: str, rabbit: RabbitNode) -> None:
    async with a_world(
        database_url, rabbit.url, policy=POLICY, slots=1, modules=["tests.support.provider"],
        dependencies={"slice_seconds": 1.0},
    ) as world:  # fmt: skip
        await world.work(slots=1)
        provider = PROVIDERS[str(world.at)] = Provider(status=429, headers={"Retry-After": "2"}, seconds=0.3)
        first = await world.submit("ask_provider")
        await eventually(lambda: provider.under_way == 1)
        await eventually(lambda: provider.under_way == 0)
        told = time.monotonic()
        provider.status, provider.headers = 200, {}

        others = await world.submit("ask_provider", 10, first=1)
        await world.ended([*first, *others], within_seconds=30)

        assert len(provider.requests) == 12
        assert provider.between(told, told + 1.9) == 0


async def test_calls_of_all_workers_together_stay_within_the_limit(database_url: str, rabbit: RabbitNode) -> None:
    policy = f'{ONE_CLASS}\n[[dependency]]\nname = "provider"\nconcurrency = 3\n'
    async with a_world(
        database_url, rabbit.url, policy=policy, slots=8, modules=["tests.support.provider"],
        dependencies={"slice_seconds": 0.8, "wait_seconds": 0.5},
    ) as world:  # fmt: skip
        await world.work(slots=8)
        provider = PROVIDERS[str(world.at)] = Provider(seconds=0.05)
        ids = [*await world.submit("ask_provider", 60), *await world.submit("ask_blocking", 10)]
        seen = await world.ended(ids, within_seconds=60)

        assert {task["status"] for task in seen} == {"done"}
        assert {task["attempts"] for task in seen} == {1}, "waiting for a permit spends no attempt"
        assert 1 <= provider.at_once <= 3
