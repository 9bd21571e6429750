"""`ctx.llm` in real tasks of a real worker: what fails after an answer does not pay for it again."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.llm_settings import ProviderSettings
from tests.support.llm_provider import FakeProvider, Say, a_provider
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import World, a_world


@asynccontextmanager
async def asking(database_url: str, rabbit: RabbitNode) -> AsyncIterator[tuple[World, FakeProvider]]:
    async with a_provider() as provider:
        settings: ProviderSettings = provider.settings()
        async with a_world(database_url, rabbit.url, llm={"providers": {"fake": settings}}) as world:
            yield world, provider


async def test_an_attempt_that_fails_after_an_answer_pays_for_it_once(database_url: str, rabbit: RabbitNode) -> None:
    async with asking(database_url, rabbit) as (world, provider):
        provider.script = lambda body: Say(text=f"heard {body['messages'][-1]['content']}")

        ids = [*await world.submit("models", 3, kind="fails"), *await world.submit("models_thread", 2, first=10)]
        ended = await world.ended(ids)

        results = [json.loads(row["result"]) for row in ended]
        assert [row["status"] for row in ended] == ["done"] * 5
        assert [row["attempts"] for row in ended] == [2] * 5
        assert [one["replayed"] for one in results] == [[True, False]] * 3 + [[True]] * 2
        assert provider.calls == 3 * 2 + 2
        (total,) = await rows(
            world.runtime, "SELECT count(*) AS n, sum(cost_usd) AS cost, bool_or(estimated) AS guessed FROM llm_calls"
        )
        assert (total["n"], total["cost"], total["guessed"]) == (provider.calls, provider.cost_usd, False)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_provider_that_asks_for_patience_is_given_it(
    database_url: str, rabbit: RabbitNode, status: int
) -> None:
    async with asking(database_url, rabbit) as (world, provider):
        provider.queue = [Say(status=status, headers={"Retry-After": "1"})]

        (row,) = await world.ended(await world.submit("models"))

        first, second = await world.attempts(row["task_id"])
        waited = (second["started_at"] - first["finished_at"]).total_seconds()
        assert first["error_type"] == {429: "rate_limit", 503: "unavailable"}[status]
        assert 1.0 <= waited < 10.0
        assert row["status"] == "done"
