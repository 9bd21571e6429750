"""A client of either kind, against the real API."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.api.world import ADMIN_KEY, World, a_world, served
from tests.client.speaking import KINDS, Speaker, a_speaker
from tests.support.postgres import PrivatePostgres


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the two clients."""
    return str(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(postgres_server: PrivatePostgres) -> AsyncIterator[World]:
    """An application on a database that the module's tests share: each minds only what it made."""
    await postgres_server.start()
    database_url = await postgres_server.create_database()
    async with a_world(database_url) as opened:
        yield opened
    await postgres_server.drop_database(database_url)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
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
