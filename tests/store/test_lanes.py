"""A waiting row is never without its lane, whoever submits, drops empty lanes and brings rows due at the same time."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from app.runtime import Runtime
from app.store import flights, lanes, leaders
from app.store.delayed import come_due
from tests.support.runtimes import a_runtime
from tests.support.work import claimed, released, rows, submitted


@pytest_asyncio.fixture
async def runtime(database_url: str) -> AsyncIterator[Runtime]:
    """The runtime of one process."""
    async with a_runtime(database_url) as opened:
        yield opened


_ORPHANS = "SELECT r.task_id FROM ready r LEFT JOIN lanes l ON l.lane_id = r.lane_id WHERE l.lane_id IS NULL"


async def test_a_lane_is_dropped_when_it_is_empty_and_made_again_when_it_is_needed(runtime: Runtime) -> None:
    ids = await submitted(runtime)
    await released(runtime, ids)
    (lane,) = await rows(runtime, "SELECT lane_id FROM lanes")

    async with runtime.database.transaction() as connection:
        assert await lanes.empty(connection) == {lane["lane_id"]}
        assert await lanes.drop_empty(connection, [lane["lane_id"]]) == [lane["lane_id"]]
    await submitted(runtime)

    assert len(await rows(runtime, "SELECT * FROM lanes")) == 1
    assert await rows(runtime, _ORPHANS) == []


async def test_a_lane_with_waiting_work_is_not_dropped(runtime: Runtime) -> None:
    await submitted(runtime)
    (lane,) = await rows(runtime, "SELECT lane_id FROM lanes")

    async with runtime.database.transaction() as connection:
        assert await lanes.drop_empty(connection, [lane["lane_id"]]) == []


async def test_no_row_loses_its_lane_when_everybody_races(runtime: Runtime) -> None:
    """Two former and present leaders drop lanes as fast as they can while tasks come in, go out and come back."""
    over = asyncio.Event()
    epoch = await leaders.stand(runtime.database, role="dispatcher", holder="test", lease_seconds=600)
    assert epoch is not None
    dropped = 0

    async def drop() -> None:
        nonlocal dropped
        while not over.is_set():
            async with runtime.database.transaction() as connection:
                empty = await lanes.empty(connection)
                dropped += len(await lanes.drop_empty(connection, sorted(empty)))

    async def bring_due() -> None:
        while not over.is_set():
            await come_due(runtime.database, holder="test", epoch=epoch, limit=100)

    async def submit_and_return(tenant_id: str) -> int:
        """Go on until a lane was dropped under the race: every round makes one that stands empty for a moment."""
        rounds = 0
        while rounds < 25 or not dropped:
            ids = await submitted(runtime, tenant_id=tenant_id, group=f"group-{rounds}")
            await _release_and_return(runtime, ids)
            rounds += 1
        return rounds

    racing = [asyncio.create_task(one) for one in (drop(), drop(), bring_due())]
    async with asyncio.timeout(60):
        sent = sum(await asyncio.gather(*(submit_and_return(f"tenant-{n}") for n in range(6))))
    over.set()
    await asyncio.gather(*racing)
    await come_due(runtime.database, holder="test", epoch=epoch, limit=1000)

    assert dropped > 0
    assert await rows(runtime, _ORPHANS) == []
    (count,) = await rows(runtime, "SELECT count(*) AS n FROM ready")
    assert count["n"] == sent


async def _release_and_return(runtime: Runtime, ids: list[str]) -> None:
    dispatches = await released(runtime, ids)
    await flights.hand_back(
        runtime.database, list(dispatches.items()), worker_id="worker_1", why="worker_full", retry_for_seconds=5
    )


async def test_a_tenant_keeps_its_turn_over_all_its_lanes(runtime: Runtime) -> None:
    await submitted(runtime, tenant_id="acme")
    await rows(runtime, "UPDATE lanes SET virtual_time = 7")

    await submitted(runtime, tenant_id="acme", group="finance")

    assert {row["virtual_time"] for row in await rows(runtime, "SELECT virtual_time FROM lanes")} == {7.0}


async def test_whoever_comes_anew_starts_at_the_clock_of_the_class(runtime: Runtime) -> None:
    await claimed(runtime, await submitted(runtime, tenant_id="acme"))
    await rows(runtime, "INSERT INTO class_clocks (priority_class, virtual_time) VALUES ('common', 42)")

    await submitted(runtime, tenant_id="beta")

    assert await rows(runtime, "SELECT virtual_time FROM lanes WHERE tenant_id = 'beta'") == [{"virtual_time": 42.0}]
