"""GET /v1/budgets."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from app.api.auth import needs
from app.api.budget_view import shown_budget
from app.api.front import front_of
from app.api.operation import encoded, operation
from app.api.query import PageQuery, next_token
from app.api.schemas.administration import BudgetPage
from app.domain.scopes import Scope
from app.services.budgets import read_budgets
from app.services.callers import Caller

router = APIRouter(tags=["operation"])


@router.get(
    "/v1/budgets",
    summary="See how the budgets stand",
    **operation(BudgetPage, description="What is spent today: the policy's budgets, then those of tenants by id."),
)
async def see_budgets(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.METRICS_READ))],
    query: Annotated[PageQuery, Query()],
) -> Response:
    """Show what is spent today (UTC) and what is left; a tenant's key sees the budgets on its own tenant only."""
    runtime = front_of(request).runtime
    found, last = await read_budgets(runtime, caller.tenant_id, after=query.after(), limit=query.page_size)
    now = runtime.now()
    return encoded(200, BudgetPage([shown_budget(one, now) for one in found], next_token(last)))
