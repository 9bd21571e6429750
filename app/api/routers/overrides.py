"""POST /v1/tasks/{task_id}/reclassify and GET /v1/overrides."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import body_of, encoded, operation
from app.api.path_ids import check_id
from app.api.query import PlainText, TenantsPageQuery, next_token
from app.api.routers.tasks import listed_tenants
from app.api.schemas.overrides import OverrideAnswer, OverridePage, Reclassification
from app.api.schemas.tasks import Task
from app.api.task_view import task_of
from app.domain.scopes import Scope
from app.services import overrides
from app.services.callers import Caller
from app.services.overrides import OverrideOrder
from app.services.queries import cut
from app.store.overrides import OverrideFilter

router = APIRouter(tags=["priority"])


class OverrideQuery(TenantsPageQuery):
    """What classes given by hand can be filtered by; repeated parameters mean "or"."""

    state: Literal["lasting", "ended"] | None = None
    priority_class: list[PlainText] | None = None
    task_id: list[PlainText] | None = None


@router.post(
    "/v1/tasks/{task_id}/reclassify",
    summary="Give a task another class",
    **operation(
        Task,
        description="The task in its new class; one that is released or runs has it when it comes back.",
        body=Reclassification,
        problems=("not_found", "task_final", "task_moving"),
    ),
)
async def reclassify(
    request: Request,
    task_id: str,
    caller: Annotated[Caller, Depends(needs(Scope.PRIORITY_OVERRIDE))],
    order: Annotated[Reclassification, Depends(body_of(Reclassification))],
) -> Response:
    """Put a task into another class by hand, with the reason and until when; the derived class returns by itself."""
    front = front_of(request)
    asked = OverrideOrder(order.priority_class, order.reason, order.expires_at)
    row = await overrides.reclassify(front.runtime, caller, check_id(task_id, "task"), asked)
    return encoded(200, task_of(front, caller, row))


@router.get(
    "/v1/overrides",
    summary="List classes given by hand",
    **operation(OverridePage, description="Newest first; without `state`, those that ended as well."),
)
async def read_overrides(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.PRIORITY_READ))],
    query: Annotated[OverrideQuery, Query()],
) -> Response:
    """List which tasks somebody gave another class, who, why and until when."""
    front = front_of(request)
    found = OverrideFilter(
        lasting=None if query.state is None else query.state == "lasting",
        task_id=tuple(query.task_id or ()),
        priority_class=tuple(query.priority_class or ()),
        tenant_id=listed_tenants(front, caller, query.tenant_id or ()),
    )
    rows = await overrides.page(front.runtime, found, before=query.after(), limit=query.page_size + 1)
    page = cut(rows, query.page_size, "override_id")
    return encoded(200, OverridePage([_shown(row) for row in page.rows], next_token(page.last_id)))


def _shown(row: Row[Any]) -> OverrideAnswer:
    return OverrideAnswer(**{name: getattr(row, name) for name in OverrideAnswer.__struct_fields__})
