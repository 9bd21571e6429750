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
