"""Tenants: making them, and what a submission needs to know of one, remembered for a moment."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.runtime import Runtime
from app.services.actors import AuditEntry
from app.services.budgets import BudgetStanding, standings_of
from app.services.callers import Caller
from app.services.errors import Conflict, Forbidden, Invalid, NotFound
from app.services.submission import TenantFacts
from app.services.ttl_cache import TtlCache
from app.store import tenants as store
from app.store.database import Database
from app.store.tenants import NewTenant

DEFAULT_TENANT = "default"
"""Whom a platform key submits for when it names nobody; made at the first start."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant as submissions see it."""

    facts: TenantFacts
    submit_rate_per_second: float | None
    submit_burst: int | None


class TenantBook:
    """Finds tenants; a change of limits is seen by other processes within two seconds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache: TtlCache[str, Tenant] = TtlCache(self._find, seconds=2.0, most=10_000)

    async def get(self, tenant_id: str) -> Tenant | None:
        """Return a tenant, or None. Raises DatabaseUnavailable."""
        return await self._cache.get(tenant_id)

    async def acting_for(self, caller: Caller, named: str | None) -> Tenant:
        """Return the tenant that `caller` submits for: its own; for a platform key the one named, else the default.

        Raises Forbidden when a tenant's key names another one, Invalid when a platform key names none that exists.
        """
        if caller.tenant_id is not None and named is not None and named != caller.tenant_id:
            raise Forbidden("A tenant's key acts for its own tenant only.")
        tenant = await self.get(caller.tenant_id or named or DEFAULT_TENANT)
        if tenant is None:
            problem = "there is no such tenant" if named else "name a tenant: there is no default one"
            raise Invalid([("?tenant_id", problem)], code="invalid_parameter")
        return tenant

    async def _find(self, tenant_id: str) -> Tenant | None:
        row = await store.get(self._database, tenant_id)
        if row is None:
            return None
        facts = TenantFacts(row.tenant_id, row.service_class, row.weight, row.max_open_tasks)
        return Tenant(facts, row.submit_rate_per_second, row.submit_burst)


async def create_tenant(database: Database, caller: Caller, tenant: NewTenant) -> Row[Any]:
    """Make a tenant and audit it. Raises Conflict when the id is taken."""
    entry = AuditEntry(caller, "tenant.created")

    async def work(connection: AsyncConnection) -> Row[Any] | None:
        row = await store.add(connection, tenant)
        if row is not None:
            detail = json.dumps(_audited(tenant))
            await entry.write(connection, target=tenant.tenant_id, tenant_id=tenant.tenant_id, detail=detail)
        return row

    # No second try after a lost COMMIT answer: it would report its own tenant as taken.
    row = await database.run(work, retry_for_seconds=0.0)
    if row is None:
        raise Conflict("tenant_exists", "There is a tenant of this id already.")
    return row


def _audited(tenant: NewTenant) -> dict[str, object]:
    budget = {
        "cost_usd_per_day": None if tenant.budget_cost_usd_per_day is None else str(tenant.budget_cost_usd_per_day),
        "tokens_per_day": tenant.budget_tokens_per_day,
    }
    return {"service_class": tenant.service_class, "weight": tenant.weight, "budget": budget}


async def read_tenant(runtime: Runtime, tenant_id: str) -> tuple[Row[Any], list[BudgetStanding]]:
    """Read one tenant with how its budgets stand, its own and the policy's. Raises NotFound."""

    async def work(connection: AsyncConnection) -> tuple[Row[Any], list[BudgetStanding]]:
        row = await store.find(connection, tenant_id)
        if row is None:
            raise NotFound
        return row, await standings_of(runtime, connection, tenant_id)

    return await runtime.database.run(work)


async def list_tenants(database: Database, *, after: str | None, limit: int) -> Sequence[Row[Any]]:
    """Read tenants, newest first."""
    return await database.run(lambda connection: store.list_tenants(connection, after=after, limit=limit))
