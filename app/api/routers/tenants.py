"""POST and GET /v1/tenants, GET /v1/tenants/{tenant_id}."""

from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import needs
from app.api.budget_view import shown_budget
from app.api.front import front_of
from app.api.operation import body_of, encoded, operation
from app.api.path_ids import check_slug
from app.api.query import PageQuery, next_token
from app.api.schemas.administration import (
    TenantAnswer,
    TenantBudget,
    TenantOrder,
    TenantPage,
    TenantQuotas,
    TenantStanding,
)
from app.domain.scopes import Scope
from app.services.callers import Caller
from app.services.queries import cut
from app.services.tenants import create_tenant, list_tenants, read_tenant
from app.store.budgets import budget_of
from app.store.tenants import NewTenant

router = APIRouter(tags=["administration"])


def _shown(row: Row[Any]) -> TenantAnswer:
    return TenantAnswer(
        row.tenant_id, row.name, row.service_class, row.weight, _quotas(row), _budget(row), row.created_at
    )


def _quotas(row: Row[Any]) -> TenantQuotas:
    return TenantQuotas(row.submit_rate_per_second, row.submit_burst, row.max_open_tasks)


def _budget(row: Row[Any]) -> TenantBudget | None:
    if row.budget_cost_usd_per_day is None and row.budget_tokens_per_day is None:
        return None
    given = budget_of(row)
    return TenantBudget(given.cost_usd_per_day, given.tokens_per_day, given.retry_margin)


@router.post(
    "/v1/tenants",
    summary="Make a tenant",
    **operation(TenantAnswer, status=201, description="Made.", body=TenantOrder, problems=("tenant_exists",)),
)
async def make_tenant(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.ADMIN, platform=True))],
    order: Annotated[TenantOrder, Depends(body_of(TenantOrder))],
) -> Response:
    """Make a tenant with its service class, weight and limits."""
    quotas, budget = order.quotas, order.budget
    tenant = NewTenant(
        tenant_id=order.tenant_id,
        name=order.name,
        service_class=order.service_class,
        weight=order.weight,
        submit_rate_per_second=quotas.submit_rate_per_second if quotas else None,
        submit_burst=quotas.submit_burst if quotas else None,
        max_open_tasks=quotas.max_open_tasks if quotas else None,
        budget_cost_usd_per_day=Decimal(budget.cost_usd_per_day) if budget and budget.cost_usd_per_day else None,
        budget_tokens_per_day=budget.tokens_per_day if budget else None,
        budget_retry_margin=budget.retry_margin if budget else None,
    )
    return encoded(201, _shown(await create_tenant(front_of(request).runtime.database, caller, tenant)))


@router.get(
    "/v1/tenants", summary="List tenants", **operation(TenantPage, description="A page of tenants, newest first.")
)
async def read_tenants(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.ADMIN, platform=True))],
    query: Annotated[PageQuery, Query()],
) -> Response:
    """List tenants."""
    rows = await list_tenants(front_of(request).runtime.database, after=query.after(), limit=query.page_size + 1)
    page = cut(rows, query.page_size, "tenant_id")
    return encoded(200, TenantPage([_shown(row) for row in page.rows], next_token(page.last_id)))


@router.get(
    "/v1/tenants/{tenant_id}",
    summary="Read a tenant",
    **operation(TenantStanding, description="The tenant, and how its budgets stand.", problems=("not_found",)),
)
async def read_one_tenant(
    request: Request, tenant_id: str, caller: Annotated[Caller, Depends(needs(Scope.ADMIN, platform=True))]
) -> Response:
    """Read a tenant with what is spent of its budgets today."""
    runtime = front_of(request).runtime
    row, budgets = await read_tenant(runtime, check_slug(tenant_id))
    answer = TenantStanding(
        row.tenant_id,
        row.name,
        row.service_class,
        row.weight,
        _quotas(row),
        _budget(row),
        row.created_at,
        budgets=[shown_budget(one, runtime.now()) for one in budgets],
    )
    return encoded(200, answer)
