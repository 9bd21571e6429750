from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.support.outside import Outside, an_outside
from tests.support.rabbitmq import RabbitNode
from tests.workers.handlers.agent.worlds import MODULES, AgentWorld, an_agent_world
from workers.handlers.agent.shelf import shelf


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Let agents use every tool of the tests."""
    monkeypatch.setenv("DESPACHO_TASK_MODULES", ",".join(MODULES))
    monkeypatch.setenv("DESPACHO_AGENT__TOOLS", "*")
    monkeypatch.setenv("DESPACHO_AGENT__MAX_TOOL_OUTPUT_BYTES", "2000")
    shelf.cache_clear()
    yield monkeypatch
    shelf.cache_clear()


@pytest_asyncio.fixture
async def outside() -> AsyncIterator[Outside]:
    """An outside system that accepts."""
    async with an_outside() as opened:
        yield opened


@pytest_asyncio.fixture
async def agents(
    database_url: str, rabbit: RabbitNode, allowed: pytest.MonkeyPatch, outside: Outside
) -> AsyncIterator[AgentWorld]:
    """An installation with agents."""
    allowed.setenv("TEST_OUTSIDE_URL", outside.url)
    async with an_agent_world(database_url, rabbit, outside) as opened:
        yield opened
