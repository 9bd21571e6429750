"""Budgets of tenants and the policy, and dependencies, as an operator reads them."""

from dataclasses import replace
from decimal import Decimal

import pytest

from app.domain.breaker import Outcomes
from app.domain.budgets import Budget
from app.domain.dependencies import Dependency
from app.store import spending
from app.store.dependencies import Report, renew_slice
from app.store.spending import Spent
from tests.api.world import World, pointers, problem


async def spent(world: World, tenant_id: str, cost: str, tokens: int = 0) -> None:
    await spending.add(world.runtime.database, [Spent(tenant_id, "echo", Decimal(cost), tokens, True)], shard=1)


async def test_a_tenant_shows_its_budget_with_what_is_spent_and_left(world: World) -> None:
    order = {"tenant_id": "acme", "name": "Acme", "budget": {"cost_usd_per_day": "10.00", "tokens_per_day": 1000}}
    made = await world.client.post("/v1/tenants", json=order)
    assert made.status_code == 201, made.text
    assert made.json()["budget"] == {"cost_usd_per_day": "10.00", "tokens_per_day": 1000, "retry_margin": 0.1}
    for _ in range(3):
        await spent(world, "acme", "2.25", 300)
    await spent(world, "globex", "99", 99)

    (budget,) = (await world.client.get("/v1/tenants/acme")).json()["budgets"]

    assert (budget["on"], budget["spent_cost_usd"], budget["remaining_cost_usd"]) == ("tenant:acme", "6.75", "3.25")
    assert (budget["spent_tokens"], budget["remaining_tokens"], budget["share_spent"]) == (900, 100, 0.9)
    assert budget["opens_at"].endswith("T00:00:00Z") or budget["opens_at"] > "2000"
    for missing in ("nobody", "%00", "A b"):
        problem(await world.client.get(f"/v1/tenants/{missing}"), 404, "not_found")


@pytest.mark.parametrize(
    ("budget", "pointer"),
    [
        ({}, "#/budget"),
        ({"cost_usd_per_day": "-1"}, "#/budget/cost_usd_per_day"),
        ({"cost_usd_per_day": "NaN"}, "#/budget/cost_usd_per_day"),
        ({"cost_usd_per_day": 10}, "#/budget/cost_usd_per_day"),
        ({"cost_usd_per_day": "1.0000001"}, "#/budget/cost_usd_per_day"),
        ({"tokens_per_day": -1}, "#/budget/tokens_per_day"),
        ({"tokens_per_day": 1, "retry_margin": 1}, "#/budget/retry_margin"),
    ],
)
async def test_a_budget_that_makes_no_sense_is_refused(world: World, budget: object, pointer: str) -> None:
    answer = await world.client.post("/v1/tenants", json={"tenant_id": "acme", "name": "x", "budget": budget})

    assert pointer in pointers(problem(answer, 422, "invalid_payload"))


async def test_budgets_are_listed_page_by_page_and_a_tenant_sees_its_own(world: World) -> None:
    holder = world.runtime.policy
    holder.current = replace(holder.current, budgets=(Budget("all", Decimal(50)), Budget("type:echo", None, 10)))
    for name in ("acme", "globex", "initech"):
        body = {"tenant_id": name, "name": name, "budget": {"tokens_per_day": 5}}
        assert (await world.client.post("/v1/tenants", json=body)).status_code == 201
    await spent(world, "acme", "1.5", 4)

    seen, token = list[dict[str, object]](), ""
    for _ in range(5):
        page = (await world.client.get(f"/v1/budgets?page_size=2{token}")).json()
        seen += page["items"]
        token = f"&page_token={page['next_page_token']}"
        if page["next_page_token"] is None:
            break

    assert [one["on"] for one in seen] == ["all", "type:echo", "tenant:acme", "tenant:globex", "tenant:initech"]
    assert [one["spent_tokens"] for one in seen] == [4, 4, 4, 0, 0]
    own = await world.client.get("/v1/budgets", headers=await world.key("acme", None, scopes=["metrics:read"]))
    assert [one["on"] for one in own.json()["items"]] == ["tenant:acme"]


async def test_a_dependency_shows_that_it_is_open_and_until_when(world: World) -> None:
    told = Report([], Outcomes(failed=1, in_a_row=1, retry_after_seconds=60), 0, 3, 2)
    await renew_slice(world.runtime.database, Dependency("llm"), "worker_1", told, kept_seconds=10)

    (one,) = (await world.client.get("/v1/dependencies")).json()["items"]

    assert (one["name"], one["state"], one["ceiling"], one["in_use"], one["waiting"]) == ("llm", "open", 0, 3, 2)
    assert one["closed_until"] > one["since"]
    tenant = await world.key("default", None, scopes=["metrics:read"])
    problem(await world.client.get("/v1/dependencies", headers=tenant), 403, "forbidden")
