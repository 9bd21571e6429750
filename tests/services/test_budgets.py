"""The leader's purse and the calls of running tasks against what was really spent."""

from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal

import pytest
import pytest_asyncio

from app.domain.budgets import Budget
from app.domain.errors import Snoozed
from app.runtime import Runtime
from app.services.budgets import PurseKeeper
from app.services.history import compose, read_story
from app.store.tasks import get_tasks
from tests.support.contexts import an_attempt
from tests.support.eventually import eventually
from tests.support.runtimes import a_runtime, a_task_type
from tests.support.work import a_tenant, released, rows, submitted
from workers.budgets import Budgets
from workers.sweeps import dependencies as sweep


@pytest_asyncio.fixture
async def runtime(database_url: str) -> AsyncIterator[Runtime]:
    """The runtime of one process whose type `echo` depends on `llm`."""
    async with a_runtime(database_url, a_task_type(depends_on=("llm",))) as opened:
        yield opened


async def a_budget(runtime: Runtime, cost: str, tenant_id: str = "acme") -> None:
    await a_tenant(runtime, tenant_id)
    await rows(
        runtime,
        "UPDATE tenants SET budget_cost_usd_per_day = CAST(:cost AS numeric) WHERE tenant_id = :id",
        cost=cost,
        id=tenant_id,
    )


async def test_a_budget_of_exactly_the_cost_of_one_call_refuses_the_next(runtime: Runtime) -> None:
    await a_budget(runtime, "0.0125")
    budgets, owner = Budgets(runtime), an_attempt()

    await budgets.admit(owner, cost_usd=Decimal("0.0125"))
    await budgets.spent(owner, cost_usd=Decimal("0.0125"), tokens=10)

    with pytest.raises(Snoozed) as refused:
        await budgets.admit(owner)
    assert refused.value.why == "budget"
    assert 1 <= refused.value.after_seconds <= runtime.settings.budgets.look_again_seconds
    await budgets.admit(an_attempt(tenant_id="globex"), cost_usd=Decimal(1))


@pytest.mark.parametrize("cost", ["-0.01", "NaN", "Infinity"])
async def test_an_amount_that_is_none_cannot_be_spent(runtime: Runtime, cost: str) -> None:
    with pytest.raises(ValueError, match="from 0 on"):
        await Budgets(runtime).spent(an_attempt(), cost_usd=Decimal(cost))


async def test_the_purse_counts_what_is_spent_in_flight_and_just_released(runtime: Runtime) -> None:
    await a_budget(runtime, "0.10")
    flying, *_ = await submitted(runtime, 3)
    await released(runtime, [flying])
    await Budgets(runtime).spent(an_attempt(), cost_usd=Decimal("0.02"))
    keeper = PurseKeeper(runtime)

    await keeper.look()
    assert keeper.purse.costs("acme", "echo")["tenant:acme"].cost_usd == Decimal("0.02"), "the mean of its history"
    for _ in range(2):
        keeper.released([("acme", "echo")])

    # 0.02 spent, 0.02 in flight, 0.04 just released; another 0.02 would reach into the margin.
    costs = keeper.purse.costs("acme", "echo")
    assert keeper.purse.is_passed("tenant:acme", costs["tenant:acme"], is_first=True)
    assert not keeper.purse.is_passed("tenant:acme", costs["tenant:acme"], is_first=False)
    await keeper.close()


async def test_a_task_says_which_budget_it_waits_for(runtime: Runtime) -> None:
    await a_budget(runtime, "0.10")
    (task_id,) = await submitted(runtime)
    await rows(
        runtime,
        "INSERT INTO workers (worker_id, pool, classes, task_types, slots, draining, host, pid, version, started_at, "
        "heartbeat_at, alive_until) SELECT 'w', 'p', array_agg(DISTINCT priority_class), '{}', 1, false, 'h', 1, '1', "
        "now(), now(), now() + interval '1 minute' FROM tasks",
    )
    await Budgets(runtime).spent(an_attempt(), cost_usd=Decimal("0.095"))
    async with runtime.database.transaction() as connection:
        task = (await get_tasks(connection, [task_id]))[task_id]

    last = compose(task, await read_story(runtime, task), ("llm",))[-1]

    assert (last.kind, last.reason) == ("waiting", "budget")
    assert "tenant:acme" in (last.detail or "") and "00:00 UTC" in (last.detail or "")


async def test_somebody_is_told_once_a_day_that_a_budget_is_nearly_spent(runtime: Runtime) -> None:
    holder = runtime.policy
    holder.current = replace(holder.current, budgets=(Budget("all", Decimal(1)),))
    await Budgets(runtime).spent(an_attempt(), cost_usd=Decimal("0.85"))

    for _ in range(2):
        await sweep.run_once(runtime, sweep.Clock())

    assert [row["subject"] for row in await rows(runtime, "SELECT subject FROM budget_alerts")] == ["all"]
    page = runtime.metrics.render().decode()
    assert 'despacho_budgets_nearly_spent{kind="all"} 1.0' in page


async def test_ten_thousand_tenants_with_budgets_do_not_slow_a_look(runtime: Runtime) -> None:
    await rows(
        runtime,
        "INSERT INTO tenants (tenant_id, name, created_at, budget_tokens_per_day) "
        "SELECT 't' || n, 't', now(), 1 FROM generate_series(1, 10000) n",
    )
    await rows(
        runtime,
        "INSERT INTO spending SELECT CAST(now() AT TIME ZONE 'UTC' AS date), 't' || n, 'echo', 0, 1, 5, 1, 1 "
        "FROM generate_series(1, 10000) n",
    )
    await submitted(runtime, tenant_id="t77")
    keeper = PurseKeeper(runtime)

    await keeper.look()

    tenant_types, _ = keeper.tenant_types()
    assert tenant_types == ["t77:echo"], "only tenants with work waiting are looked at"
    await eventually(lambda: keeper._pace.due())
    await keeper.close()
