"""The services that tests share. A service that cannot be started fails the tests that need it: nothing is skipped."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.postgres import PrivatePostgres
from tests.support.rabbitmq import RabbitNode


@pytest_asyncio.fixture(scope="session")
async def postgres_server() -> AsyncIterator[PrivatePostgres]:
    """The session's PostgreSQL, whatever state the last test left it in."""
    server = PrivatePostgres()
    await server.start()
    yield server
    await server.stop("immediate")


@pytest_asyncio.fixture
async def postgres(postgres_server: PrivatePostgres) -> PrivatePostgres:
    """A running PostgreSQL; a test may stop, kill and restart it."""
    await postgres_server.start()
    return postgres_server


@pytest_asyncio.fixture
async def database_url(postgres: PrivatePostgres) -> AsyncIterator[str]:
    """A fresh migrated database of the test's own."""
    url = await postgres.create_database()
    yield url
    await postgres.start()
    await postgres.drop_database(url)


@pytest_asyncio.fixture(scope="session")
async def rabbit_node() -> AsyncIterator[RabbitNode]:
    """The session's RabbitMQ, whatever state the last test left it in."""
    node = RabbitNode()
    await node.start()
    yield node
    await node.close()


@pytest_asyncio.fixture
async def rabbit(rabbit_node: RabbitNode) -> RabbitNode:
    """A running RabbitMQ; a test may stop, kill, restart and wipe it, and clears an alarm that it raised."""
    await rabbit_node.start()
    return rabbit_node
