"""POST and GET /v1/tenants."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import body_of, encoded, operation
from app.api.query import PageQuery, next_token
from app.api.schemas.administration import TenantAnswer, TenantOrder, TenantPage, TenantQuotas
from app.domain.scopes import Scope
from app.services.callers import Caller
from app.services.queries import cut
from app.services.tenants import create_tenant, list_tenants
from app.store.tenants import NewTenant

router = APIRouter(tags=["administration"])


def _shown(row: Row[Any]) -> TenantAnswer:
    quotas = TenantQuotas(row.submit_rate_per_second, row.submit_burst, row.max_open_tasks)
    return TenantAnswer(row.tenant_id, row.name, row.service_class, row.weight, quotas, row.created_at)


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
    quotas = order.quotas
    tenant = NewTenant(
        tenant_id=order.tenant_id,
        name=order.name,
        service_class=order.service_class,
        weight=order.weight,
        submit_rate_per_second=quotas.submit_rate_per_second if quotas else None,
        submit_burst=quotas.submit_burst if quotas else None,
        max_open_tasks=quotas.max_open_tasks if quotas else None,
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
