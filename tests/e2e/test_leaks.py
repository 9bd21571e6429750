"""A long life: memory, asyncio tasks and channels stay as they are after thousands of tasks and a reconnection."""

import asyncio
import gc

import psutil

from tests.support.eventually import eventually
from tests.support.rabbitmq import RabbitNode
from tests.support.world import World, a_world

ROUND = 1000


async def _run_many(world: World) -> None:
    ids = await world.submit("returns", ROUND, kind="fine")
    ended = await world.ended(ids, within_seconds=60)
    assert {row["status"] for row in ended} == {"done"}


def _rss_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


async def test_nothing_grows_over_thousands_of_tasks_and_a_reconnection(database_url: str, rabbit: RabbitNode) -> None:
    async with a_world(database_url, rabbit.url, slots=50) as world:
        for _ in range(2):
            await _run_many(world)
        memory, tasks = _rss_bytes(), len(asyncio.all_tasks())
        channels = await rabbit.ctl("list_channels", "-q", "pid")

        for n in range(4):
            if n == 2:
                await rabbit.close_all_connections("a reconnection")
            await _run_many(world)

        assert _rss_bytes() - memory < 30 * 1024 * 1024
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks + 2, what="as many asyncio tasks as before")

        async def as_many_channels() -> bool:
            return len((await rabbit.ctl("list_channels", "-q", "pid")).split()) <= len(channels.split()) + 1

        await eventually(as_many_channels, within_seconds=20, every_seconds=0.5)


async def test_collecting_garbage_all_the_time_loses_no_task(world: World) -> None:
    ids = await world.submit("collect", 3, seconds=4.0)

    ended = await world.ended(ids)

    assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
    assert len(world.marks("starts")) == 3
