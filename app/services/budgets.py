"""Budgets: how they stand, what the dispatcher may still release, and whether a call still fits."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.budgets import ALL, NOTHING, Amount, Budget, BudgetKind, Purse, subjects
from app.runtime import Runtime
from app.services.in_flight import Pace
from app.store import budgets, flights, spending
from app.telemetry.logs import event

log = logging.getLogger("despacho.budgets")
_HISTORY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """One budget with what was spent of it today, and the seconds until the next day."""

    budget: Budget
    spent: Amount
    opens_in_seconds: float


async def spent_today(connection: AsyncConnection, found: Iterable[Budget]) -> dict[str, Amount]:
    """Sum what was spent today for each budget, by its spelling."""
    names = {budget.on for budget in found}
    tenants = sorted(name.partition(":")[2] for name in names if name.startswith(f"{BudgetKind.TENANT}:"))
    spent: dict[str, Amount] = {}
    if tenants:
        by_tenant = await spending.spent_by_tenant(connection, tenants)
        spent |= {f"{BudgetKind.TENANT}:{name}": amount for name, amount in by_tenant.items()}
    if any(name == ALL or name.startswith(f"{BudgetKind.TYPE}:") for name in names):
        by_type = await spending.spent_by_type(connection)
        spent |= {f"{BudgetKind.TYPE}:{name}": amount for name, amount in by_type.items()}
        total = NOTHING
        for amount in by_type.values():
            total = total.plus(amount)
        spent[ALL] = total
    return spent


async def standings_of(
    runtime: Runtime, connection: AsyncConnection, tenant_id: str, task_type: str | None = None
) -> list[BudgetStanding]:
    """Read the budgets that a tenant's tasks (of one type, where it is named) count for."""
    names = {f"{BudgetKind.TENANT}:{tenant_id}"} if task_type is None else set(subjects(tenant_id, task_type))
    found = [budget for budget in runtime.policy.current.budgets if budget.on in names]
    found += await budgets.of_tenants(connection, [tenant_id])
    return await _standings(connection, found)


async def read_budgets(
    runtime: Runtime, tenant_id: str | None, *, after: str | None, limit: int
) -> tuple[list[BudgetStanding], str | None]:
    """Read a page of budgets with what is spent: the policy's first, then the tenants' by id; a tenant's own only.

    Returns it with what the next page begins after: `policy:` and a place in the policy, or `tenant:` and an id.
    """
    kind, _, last = (after or "policy:0").partition(":")

    async def work(connection: AsyncConnection) -> tuple[list[BudgetStanding], str | None]:
        if tenant_id is not None:
            return await standings_of(runtime, connection, tenant_id), None
        place = int(last) if kind == "policy" and last.isdecimal() else 0
        found = list(runtime.policy.current.budgets)[place : place + limit] if kind == "policy" else []
        if len(found) == limit:
            return await _standings(connection, found), f"policy:{place + limit}"
        rest = limit - len(found)
        tenants = await budgets.page(connection, after=last if kind == "tenant" else "", limit=rest + 1)
        following = tenants[rest - 1].on if len(tenants) > rest else None
        return await _standings(connection, [*found, *tenants[:rest]]), following

    return await runtime.database.run(work)


async def standings_of_spenders(runtime: Runtime, connection: AsyncConnection) -> list[BudgetStanding]:
    """Read the policy's budgets, and those of the tenants that spent something today."""
    day, _ = await spending.today(connection)
    found = [*runtime.policy.current.budgets, *await budgets.of_spenders(connection, day)]
    return await _standings(connection, found)


async def _standings(connection: AsyncConnection, found: Sequence[Budget]) -> list[BudgetStanding]:
    if not found:
        return []
    _, seconds_left = await spending.today(connection)
    spent = await spent_today(connection, found)
    return [BudgetStanding(budget, spent.get(budget.on, NOTHING), seconds_left) for budget in found]


async def estimates(runtime: Runtime, connection: AsyncConnection) -> dict[str, Amount]:
    """Say what an attempt of each type is expected to cost.

    By its history; a type without one that declares a dependency gets the settings' first guess, any other is free.
    """
    settings = runtime.settings.budgets
    first = Amount(Decimal(str(settings.first_cost_usd)), Decimal(settings.first_tokens))
    guessed = {name: first for name, one in runtime.registry.items() if one.spec.depends_on}
    return guessed | await spending.cost_of_an_attempt(connection)


async def expected(
    connection: AsyncConnection, found: Sequence[Budget], costs: Mapping[str, Amount]
) -> dict[str, Amount]:
    """Sum for each budget what was spent today and what the tasks in flight are expected to cost."""
    gone = await spent_today(connection, found)
    for (task_type, tenant_id, _), count in (await flights.counts_by_name(connection)).items():
        cost = costs.get(task_type)
        for on in subjects(tenant_id, task_type) if cost is not None else ():
            gone[on] = gone.get(on, NOTHING).plus(cost or NOTHING, count)
    return gone


class PurseKeeper:
    """The leader's purse: read off the rounds, once before the first of them; a round only looks at what is there."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._pace = Pace(runtime.settings.budgets.refresh_seconds)
        self._estimates: dict[str, Amount] = {}
        self._estimated_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._released: list[tuple[str, str]] = []
        self.purse = Purse((), {}, {})
        self.stopped: Mapping[str, tuple[str, ...]] = {}
        self.stopped_firsts: Mapping[str, tuple[str, ...]] = {}
        self._has_read = False

    async def look(self) -> None:
        """Have the purse read again when it is time; only the very first look waits for it. Raises database errors."""
        if not self._has_read:
            await self._read()
            self._has_read = True
        elif self._pace.due() and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read_again())

    def types(self) -> list[str]:
        """Name the types of which no budget lets anything through."""
        found = [name for name in self.stopped if name.startswith(f"{BudgetKind.TYPE}:")]
        return [name.partition(":")[2] for name in found] + list(self.stopped.get(ALL, ()))

    def tenant_types(self) -> tuple[list[str], list[str]]:
        """List, as `tenant:type`, of what nothing is let through, and of what no first attempt."""
        return _spelt(self.stopped), _spelt(self.stopped_firsts)

    def released(self, tasks: Iterable[tuple[str, str]]) -> None:
        """Count released tasks, as (tenant, type)."""
        if self.purse.is_empty:
            return
        for tenant_id, task_type in tasks:
            self.purse.take(tenant_id, task_type)
            if self._reading is not None and not self._reading.done():
                self._released.append((tenant_id, task_type))

    async def close(self) -> None:
        """Wait for what is being read."""
        if self._reading is not None:
            await asyncio.wait((self._reading,))

    async def _read_again(self) -> None:
        try:
            await self._read()
        except Exception as error:  # the purse of before goes on: releases only take from it
            event(log, "budgets_not_read", level=logging.WARNING, error=error)

    async def _read(self) -> None:
        started = time.monotonic()
        self._released.clear()
        async with self._runtime.database.transaction() as connection:
            found = [*self._runtime.policy.current.budgets, *await budgets.of_waiting_tenants(connection)]
            if not found:
                self.purse, self.stopped, self.stopped_firsts = Purse((), {}, {}), {}, {}
                self._pace.ran(started)
                return
            if started - self._estimated_at > _HISTORY_SECONDS:
                self._estimates = await estimates(self._runtime, connection)
                self._estimated_at = started
            gone = await expected(connection, found, self._estimates)
        purse = Purse(found, gone, self._estimates)
        for tenant_id, task_type in self._released:
            purse.take(tenant_id, task_type)
        self.purse = purse
        self.stopped, self.stopped_firsts = purse.stopped(is_first=False), purse.stopped(is_first=True)
        self._pace.ran(started)


def _spelt(stopped: Mapping[str, tuple[str, ...]]) -> list[str]:
    prefix = f"{BudgetKind.TENANT}:"
    return [
        f"{on.removeprefix(prefix)}:{name}" for on, types in stopped.items() if on.startswith(prefix) for name in types
    ]
