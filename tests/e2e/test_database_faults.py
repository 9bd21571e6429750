"""The database goes away, changes under us, and is held open; nothing is charged for it and nothing runs twice."""

import asyncio
import time

import asyncpg

from app.store.database import DatabaseUnavailable
from tests.support.eventually import eventually
from tests.support.postgres import PrivatePostgres
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import World, a_world


async def _submit_steadily(world: World, over: asyncio.Event) -> list[str]:
    """Submit one after the other, as a client does that tries again after a refusal."""
    ids: list[str] = []
    while not over.is_set():
        try:
            ids += await world.submit("quick", first=len(ids))
        except DatabaseUnavailable:
            continue
        except Exception as error:  # the tenant's row is read outside the product's own retries
            assert "connection" in str(error).lower() or "terminat" in str(error).lower(), error
    return ids


async def test_a_column_is_added_while_tasks_flow_and_nobody_notices(world: World) -> None:
    over = asyncio.Event()
    flowing = asyncio.create_task(_submit_steadily(world, over))
    await eventually(lambda: len(world.marks("starts")) > 20)

    for name in ("one", "two", "three"):
        await rows(world.runtime, f"ALTER TABLE tasks ADD COLUMN {name} text")
        seen = len(world.marks("starts"))
        await eventually(lambda seen=seen: len(world.marks("starts")) > seen + 20)  # type: ignore[misc]
    over.set()
    ended = await world.ended(await flowing)

    assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
    assert len(world.marks("starts")) == len(ended)
    assert len(await rows(world.runtime, "SELECT * FROM attempts")) == len(ended)


async def test_sessions_killed_and_a_server_restarted_under_running_handlers_cost_nothing(
    world: World, postgres: PrivatePostgres
) -> None:
    held = [*await world.submit("hold", 2), *await world.submit("hold_thread", 2)]
    await world.running(held)

    await postgres.terminate_backends(world.database_url)
    await postgres.restart("immediate")
    started = time.monotonic()
    world.go()
    ended = await world.ended(held)
    after = await world.ended(await world.submit("quick", 10))

    assert time.monotonic() - started < 10.0
    assert {(row["status"], row["attempts"]) for row in [*ended, *after]} == {("done", 1)}
    assert len(world.marks("effects")) == 4
    assert len(world.marks("starts")) == 14
    await world.at_rest()


async def test_what_ends_while_the_database_is_away_is_written_when_it_is_back(
    world: World, postgres: PrivatePostgres
) -> None:
    held = await world.submit("hold", 4)
    await world.running(held)

    await postgres.stop("immediate")
    world.go()
    await eventually(lambda: len(world.marks("effects")) == 4)
    await postgres.start()
    ended = await world.ended(held)

    assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
    assert len(world.marks("starts")) == 4


async def test_no_connection_is_held_while_handlers_run(database_url: str, rabbit: RabbitNode) -> None:
    few = {"pool_size": 2, "hot_pool_size": 2}
    async with a_world(database_url, rabbit.url, slots=30, database=few) as world:
        ids = await world.submit("hold", 30)
        await world.running(ids)

        (seen,) = await rows(
            world.runtime,
            "SELECT count(*) AS sessions, count(*) FILTER (WHERE state LIKE 'idle in transaction%') AS idle "
            "FROM pg_stat_activity WHERE datname = current_database()",
        )
        assert seen["idle"] == 0
        # The worker's two pools, the dispatcher's two, and the one that listens: none for a handler.
        assert seen["sessions"] <= 2 + 2 + 3 + 4 + 1
        assert {row["status"] for row in await world.tasks(await world.submit("quick", 5))} == {"queued"}
        world.go()
        assert {(row["status"], row["attempts"]) for row in await world.ended(ids)} == {("done", 1)}


async def test_a_snapshot_that_is_held_open_makes_nothing_slower_and_slower(world: World) -> None:
    count, rounds = 100, 6
    holder = await asyncpg.connect(world.database_url)
    snapshot = holder.transaction(isolation="repeatable_read")
    await snapshot.start()
    await holder.fetchval("SELECT count(*) FROM tasks")

    took: list[float] = []
    for _ in range(rounds):
        started = time.monotonic()
        await world.ended(await world.submit("returns", count, kind="fine"), within_seconds=30)
        took.append(time.monotonic() - started)
    await snapshot.rollback()
    await holder.close()

    assert min(took[-2:]) <= 3 * max(min(took[:2]), 0.3), took
