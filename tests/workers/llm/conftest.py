from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.postgres import PrivatePostgres
from tests.workers.llm.worlds import LlmWorld, a_world


@pytest_asyncio.fixture(scope="session")
async def llm_database(postgres_server: PrivatePostgres) -> AsyncIterator[str]:
    """One migrated database for all tests of this folder: each has tasks and prompts of its own."""
    await postgres_server.start()
    yield await postgres_server.create_database()


@pytest_asyncio.fixture
async def world(llm_database: str, tmp_path: Path) -> AsyncIterator[LlmWorld]:
    """A world with a provider of the test's own."""
    async with a_world(llm_database, tmp_path) as opened:
        yield opened
