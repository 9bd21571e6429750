"""A runtime on a database of the test's own."""

from collections.abc import AsyncIterator

import pytest_asyncio

from app.runtime import Runtime
from tests.support.runtimes import a_runtime


@pytest_asyncio.fixture
async def runtime(database_url: str) -> AsyncIterator[Runtime]:
    """The runtime of one process, with the type `echo`."""
    async with a_runtime(database_url) as opened:
        yield opened
