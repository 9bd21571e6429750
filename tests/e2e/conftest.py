"""An installation of the test's own on the session's servers."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.rabbitmq import RabbitNode
from tests.support.world import World, a_world


@pytest_asyncio.fixture
async def world(database_url: str, rabbit: RabbitNode) -> AsyncIterator[World]:
    """One dispatcher and one worker of four slots, on fresh tables and queues."""
    async with a_world(database_url, rabbit.url) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module")
async def impatient() -> AsyncIterator[RabbitNode]:
    """A broker that takes deliveries back that nobody acked for two seconds."""
    node = RabbitNode(consumer_timeout_ms=2000, channel_tick_interval_ms=500)
    await node.start()
    yield node
    await node.close()
