"""POST and GET /v1/pauses, DELETE /v1/pauses/{pause_id}."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import body_of, encoded, operation
from app.api.path_ids import check_id
from app.api.query import PageQuery, next_token
from app.api.schemas.operations import PauseAnswer, PauseOrder, PausePage
from app.domain.scopes import Scope
from app.services import pauses
from app.services.callers import Caller
from app.services.queries import cut

router = APIRouter(tags=["pauses"])
Operator = Annotated[Caller, Depends(needs(Scope.OPERATE))]


def _shown(row: Row[Any]) -> PauseAnswer:
    return PauseAnswer(row.pause_id, f"{row.kind}:{row.name}", row.reason, row.until, row.created_by, row.created_at)


@router.post(
    "/v1/pauses",
    summary="Pause releases",
    **operation(PauseAnswer, status=201, description="Paused.", body=PauseOrder, headers=("Location",)),
)
async def make_pause(
    request: Request, caller: Operator, order: Annotated[PauseOrder, Depends(body_of(PauseOrder))]
) -> Response:
    """Release nothing of a class, task type, tenant or dependency until it is resumed; what runs goes on."""
    row = await pauses.create(front_of(request).runtime, caller, order.on, order.reason, order.until)
    return encoded(201, _shown(row), {"Location": f"/v1/pauses/{row.pause_id}"})


@router.get(
    "/v1/pauses", summary="List the pauses", **operation(PausePage, description="Those that last, newest first.")
)
async def read_pauses(request: Request, caller: Operator, query: Annotated[PageQuery, Query()]) -> Response:
    """List the pauses that last."""
    runtime = front_of(request).runtime
    rows = await pauses.page(runtime, caller, before=query.after(), limit=query.page_size + 1)
    page = cut(rows, query.page_size, "pause_id")
    return encoded(200, PausePage([_shown(row) for row in page.rows], next_token(page.last_id)))


@router.delete(
    "/v1/pauses/{pause_id}",
    summary="Resume",
    **operation(None, status=204, description="Resumed.", problems=("not_found",)),
)
async def remove_pause(request: Request, pause_id: str, caller: Operator) -> Response:
    """End a pause; the dispatcher looks at once."""
    front = front_of(request)
    await pauses.resume(front.runtime, caller, check_id(pause_id, "pause"))
    return Response(status_code=204)
