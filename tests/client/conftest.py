"""A client of either kind, against the real API."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.api.world import ADMIN_KEY, World, a_world, served
from tests.client.speaking import KINDS, Speaker, a_speaker


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two clients."""
    return str(request.param)


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """A fresh application on a fresh database."""
    async with a_world(database_url) as opened:
        yield opened


@pytest_asyncio.fixture
async def url(world: World) -> AsyncIterator[str]:
    """Where the application is served."""
    async with served(world) as address:
        yield address


@pytest_asyncio.fixture
async def speak(url: str, kind: str) -> AsyncIterator[Speaker]:
    """A client with the admin's key."""
    speaker = a_speaker(kind, url, ADMIN_KEY)
    yield speaker
    await speaker.close()
