"""A worker that can no longer write ends with its error, and does not wait for ever for what nobody will write."""

import asyncio

import pytest

from tests.support.rabbitmq import RabbitNode
from tests.support.world import a_world


async def test_a_worker_whose_writing_breaks_down_ends_and_says_why(
    database_url: str, rabbit: RabbitNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_world(database_url, rabbit.url, slots=None) as world:
        pool, _, ending = await world.work()
        world._tasks.remove(ending)

        def broken(*_: object) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr(pool.consumer.settlements, "_tell", broken)
        await world.submit("quick")

        with pytest.raises(RuntimeError, match="broken"):
            async with asyncio.timeout(10):
                await ending
