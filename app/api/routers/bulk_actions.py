"""GET /v1/bulk-actions/{bulk_action_id} and POST …/abort."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from app.api.auth import authenticate
from app.api.bulk_view import bulk_answer
from app.api.front import front_of
from app.api.operation import encoded, operation
from app.api.path_ids import check_id
from app.api.query import refuse_unknown_parameters
from app.api.schemas.operations import BulkAnswer
from app.domain.scopes import Scope
from app.services import bulk
from app.services.callers import Caller
from app.services.errors import Forbidden
from app.store.bulk_actions import BulkKind

router = APIRouter(tags=["bulk actions"])


async def any_caller(request: Request) -> Caller:
    """Yield the caller; which scope it needs depends on what the action does."""
    found = await authenticate(front_of(request), request.headers.get("authorization"))
    request.state.caller = found
    refuse_unknown_parameters(request)
    return found


def _check_scope(caller: Caller, kind: str) -> None:
    scope = Scope(bulk.SCOPES[BulkKind(kind)])
    if not caller.may(scope):
        raise Forbidden(f"The key lacks the scope {scope}.")


@router.get(
    "/v1/bulk-actions/{bulk_action_id}",
    summary="Watch a bulk action",
    **operation(BulkAnswer, description="The action as it is now.", problems=("not_found",)),
)
async def read_bulk_action(
    request: Request, bulk_action_id: str, caller: Annotated[Caller, Depends(any_caller)]
) -> Response:
    """Tell how far a bulk action is; needs the scope that the action itself needed."""
    front = front_of(request)
    row = await bulk.get(front.runtime, caller, check_id(bulk_action_id, "bulk"))
    _check_scope(caller, row.kind)
    return encoded(200, bulk_answer(row))


@router.post(
    "/v1/bulk-actions/{bulk_action_id}/abort",
    summary="Abort a bulk action",
    **operation(BulkAnswer, description="Aborted, now or before.", problems=("not_found", "bulk_action_done")),
)
async def abort_bulk_action(
    request: Request, bulk_action_id: str, caller: Annotated[Caller, Depends(any_caller)]
) -> Response:
    """Stop a bulk action between two steps; what it has done stays done."""
    front = front_of(request)
    row = await bulk.get(front.runtime, caller, check_id(bulk_action_id, "bulk"))
    _check_scope(caller, row.kind)
    row = await bulk.abort(front.runtime, caller, bulk_action_id)
    return encoded(200, bulk_answer(row))
