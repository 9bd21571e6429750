"""The budgets that tenants were given, and for which of them somebody was told today."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.budgets import DEFAULT_MARGIN, Budget, BudgetKind

_GIVEN = "(budget_cost_usd_per_day IS NOT NULL OR budget_tokens_per_day IS NOT NULL)"
_COLUMNS = "tenant_id, budget_cost_usd_per_day, budget_tokens_per_day, budget_retry_margin"
_OF_WAITING = text(f"""
SELECT {_COLUMNS} FROM tenants t WHERE {_GIVEN} AND EXISTS (SELECT 1 FROM lanes l WHERE l.tenant_id = t.tenant_id)
""")
_OF = text(f"SELECT {_COLUMNS} FROM tenants WHERE {_GIVEN} AND tenant_id = ANY(CAST(:names AS text[]))")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM tenants WHERE {_GIVEN} AND tenant_id > :after ORDER BY tenant_id LIMIT :limit
""")
_SPENDERS = text("""
SELECT t.tenant_id, t.budget_cost_usd_per_day, t.budget_tokens_per_day, t.budget_retry_margin
FROM (SELECT DISTINCT tenant_id FROM spending WHERE day = :day) s JOIN tenants t ON t.tenant_id = s.tenant_id
WHERE t.budget_cost_usd_per_day IS NOT NULL OR t.budget_tokens_per_day IS NOT NULL
""")
_ALERT = text("""
INSERT INTO budget_alerts (day, subject) SELECT :day, s FROM unnest(CAST(:subjects AS text[])) AS s ORDER BY s
ON CONFLICT DO NOTHING RETURNING subject
""")
_FORGET_ALERTS = text("DELETE FROM budget_alerts WHERE day < :day")


def budget_of(row: Row[Any]) -> Budget:
    """Make the budget of a tenant's row."""
    margin = row.budget_retry_margin
    return Budget(
        f"{BudgetKind.TENANT}:{row.tenant_id}",
        row.budget_cost_usd_per_day,
        row.budget_tokens_per_day,
        DEFAULT_MARGIN if margin is None else margin,
    )


async def of_waiting_tenants(connection: AsyncConnection) -> list[Budget]:
    """Read the budgets of the tenants that have work waiting."""
    return [budget_of(row) for row in (await connection.execute(_OF_WAITING)).fetchall()]


async def of_tenants(connection: AsyncConnection, tenant_ids: Sequence[str]) -> list[Budget]:
    """Read the budgets of these tenants."""
    return [budget_of(row) for row in (await connection.execute(_OF, {"names": list(tenant_ids)})).fetchall()]


async def of_spenders(connection: AsyncConnection, day: date) -> list[Budget]:
    """Read the budgets of the tenants that spent something on a day."""
    return [budget_of(row) for row in (await connection.execute(_SPENDERS, {"day": day})).fetchall()]


async def page(connection: AsyncConnection, *, after: str, limit: int) -> list[Budget]:
    """Read the budgets of tenants, by id, beginning after the one named."""
    return [budget_of(row) for row in (await connection.execute(_PAGE, {"after": after, "limit": limit})).fetchall()]


async def first_alerts(connection: AsyncConnection, day: date, subjects: Sequence[str]) -> list[str]:
    """Note that somebody is told of these budgets today; returns those of which nobody was told yet."""
    rows = (await connection.execute(_ALERT, {"day": day, "subjects": sorted(subjects)})).fetchall()
    await connection.execute(_FORGET_ALERTS, {"day": day})
    return [row.subject for row in rows]
