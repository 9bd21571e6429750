"""The application of each test."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.api.world import World, a_world


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """A fresh application on a fresh database."""
    async with a_world(database_url) as opened:
        yield opened
