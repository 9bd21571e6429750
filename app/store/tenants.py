"""Tenants: who work is done for, with the limits an admin gave them."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.database import Database

_COLUMNS = (
    "tenant_id, name, service_class, weight, submit_rate_per_second, submit_burst, max_open_tasks, created_at, "
    "budget_cost_usd_per_day, budget_tokens_per_day, budget_retry_margin"
)


@dataclass(frozen=True, slots=True)
class NewTenant:
    """A tenant before it is stored. None as a limit means that there is none."""

    tenant_id: str
    name: str
    service_class: str = "standard"
    weight: float = 1.0
    submit_rate_per_second: float | None = None
    submit_burst: int | None = None
    max_open_tasks: int | None = None
    budget_cost_usd_per_day: Decimal | None = None
    budget_tokens_per_day: int | None = None
    budget_retry_margin: float | None = None


_ADD = text(f"""
INSERT INTO tenants ({_COLUMNS})
VALUES (:tenant_id, :name, :service_class, :weight, :submit_rate_per_second, :submit_burst, :max_open_tasks,
        clock_timestamp(), :budget_cost_usd_per_day, :budget_tokens_per_day, :budget_retry_margin)
ON CONFLICT (tenant_id) DO NOTHING RETURNING {_COLUMNS}
""")
_GET = text(f"SELECT {_COLUMNS} FROM tenants WHERE tenant_id = :tenant_id")
_LIST = text(f"""
SELECT {_COLUMNS} FROM tenants WHERE (CAST(:after AS text) IS NULL OR (created_at, tenant_id) < (
    SELECT created_at, tenant_id FROM tenants WHERE tenant_id = :after))
ORDER BY created_at DESC, tenant_id DESC LIMIT :limit
""")


async def add(connection: AsyncConnection, tenant: NewTenant) -> Row[Any] | None:
    """Store a tenant; None when there is one of that id."""
    values = {name: getattr(tenant, name) for name in NewTenant.__slots__}
    return (await connection.execute(_ADD, values)).one_or_none()


async def get(database: Database, tenant_id: str) -> Row[Any] | None:
    """Read one tenant."""
    rows = await database.execute_hot(_GET, {"tenant_id": tenant_id})
    return rows[0] if rows else None


async def find(connection: AsyncConnection, tenant_id: str) -> Row[Any] | None:
    """Read one tenant, in a transaction."""
    return (await connection.execute(_GET, {"tenant_id": tenant_id})).one_or_none()


async def list_tenants(connection: AsyncConnection, *, after: str | None, limit: int) -> Sequence[Row[Any]]:
    """Read tenants, newest first, beginning after the one named."""
    return (await connection.execute(_LIST, {"after": after, "limit": limit})).fetchall()
