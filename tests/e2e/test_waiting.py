"""Who waits for whom: delays, Retry-After, fairness between tenants, and what the figures say meanwhile."""

import pytest

from tests.support.eventually import eventually
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import World, a_world


async def test_a_short_delay_does_not_wait_behind_a_long_one(world: World) -> None:
    (long,) = await world.submit("delayed", seconds=30.0)
    await world.running([long])
    (short,) = await world.submit("delayed", first=1, seconds=1.0)

    (row,) = await world.ended([short], within_seconds=10)

    first, second = (float(mark.split()[3]) for mark in world.marks("starts", short))
    assert row["status"] == "done"
    assert 1.0 <= second - first <= 3.0
    assert (await world.task(long))["status"] == "failed_retryable"


@pytest.mark.parametrize("kind", ["seconds", "date", "retry"])
async def test_the_time_that_a_provider_asks_for_is_never_undercut(world: World, kind: str) -> None:
    ids = await world.submit("retry_after", 2, seconds=2.0, kind=kind)
    await world.running(ids)

    # A slot that waits is nobody's: others run meanwhile.
    assert {row["status"] for row in await world.ended(await world.submit("quick", 8))} == {"done"}
    ended = await world.ended(ids, within_seconds=10)

    assert {(row["status"], row["attempts"]) for row in ended} == {("done", 2)}
    for task_id in ids:
        first, second = (float(mark.split()[3]) for mark in world.marks("starts", task_id))
        # A date has whole seconds: it may name a moment up to one second before two seconds from now.
        assert (1.0 if kind == "date" else 2.0) <= second - first <= 5.0


async def test_a_late_tenant_starts_within_eight_starts(world: World) -> None:
    flood = await world.submit("slow", 1000, tenant_id="acme", seconds=0.3)
    await eventually(lambda: len(world.marks("starts")) > 20)

    (late,) = await world.submit("slow", tenant_id="beta", first=5000, seconds=0.3)
    before = len(world.marks("starts"))
    await world.running([late])

    place = [mark.split()[0] for mark in world.marks("starts")].index(late)
    assert place - before <= 8
    assert len(flood) == 1000


async def test_the_counts_of_waiting_and_running_are_true(database_url: str, rabbit: RabbitNode) -> None:
    async with a_world(database_url, rabbit.url, slots=1) as world:
        ids = await world.submit("hold", 3)
        await eventually(lambda: len(world.marks("starts")) == 1)

        async def counted() -> bool:
            statuses = sorted(row["status"] for row in await world.tasks(ids))
            assert statuses == ["queued", "queued", "running"]
            (seen,) = await rows(
                world.runtime,
                "SELECT (SELECT count(*) FROM ready) + (SELECT count(*) FROM delayed) "
                "+ (SELECT count(*) FROM flights WHERE fence IS NULL) AS queued, "
                "(SELECT count(*) FROM flights WHERE fence IS NOT NULL) AS running",
            )
            assert seen == {"queued": 2, "running": 1}
            return True

        await eventually(counted)
        world.go()
        assert {row["status"] for row in await world.ended(ids)} == {"done"}
