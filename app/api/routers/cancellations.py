"""POST /v1/tasks/{task_id}/cancel, /v1/tasks/{task_id}/retry-now and /v1/tasks/cancel."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from app.api.auth import needs
from app.api.bulk_view import bulk_accepted, task_filter
from app.api.front import front_of
from app.api.json_body import Reader
from app.api.operation import body_of, encoded, operation, ref
from app.api.path_ids import check_id
from app.api.schemas.operations import BulkAnswer, BulkCancel, CancelOrder
from app.api.schemas.tasks import Task
from app.api.task_view import task_of
from app.domain.scopes import Scope
from app.services import bulk
from app.services.callers import Caller
from app.services.cancellation import cancel_task, retry_now
from app.store.bulk_actions import BulkKind

router = APIRouter(tags=["tasks"])
_reader = Reader(CancelOrder)

_CANCEL = operation(
    Task,
    description="Cancelled, now or before.",
    also={202: ("It runs and was asked to stop; it may still end by itself.", Task)},
    problems=("not_found", "task_final", "task_moving", "malformed_json", "payload_too_large", "invalid_payload"),
    models=(CancelOrder,),
)
_CANCEL["openapi_extra"]["requestBody"] = {
    "required": False,
    "content": {"application/json": {"schema": ref(CancelOrder)}},
}


@router.post("/v1/tasks/{task_id}/cancel", summary="Cancel a task", **_CANCEL)
async def cancel(
    request: Request, task_id: str, caller: Annotated[Caller, Depends(needs(Scope.TASKS_WRITE))]
) -> Response:
    """Cancel a waiting task at once; ask a running one to stop. The body may give a reason."""
    front = front_of(request)
    body = await request.body()
    order: CancelOrder = _reader.read(body) if body.strip() else CancelOrder()
    answer = await cancel_task(front.runtime, caller, check_id(task_id, "task"), order.reason)
    return encoded(202 if answer.requested else 200, task_of(front, caller, answer.task))


@router.post(
    "/v1/tasks/{task_id}/retry-now",
    summary="Make a waiting task due at once",
    **operation(
        Task,
        description="Due now.",
        problems=("not_found", "task_final", "task_running", "task_not_delayed"),
    ),
)
async def hurry(
    request: Request, task_id: str, caller: Annotated[Caller, Depends(needs(Scope.TASKS_WRITE))]
) -> Response:
    """Make a `failed_retryable` or `scheduled` task due at once."""
    front = front_of(request)
    row = await retry_now(front.runtime, caller, check_id(task_id, "task"))
    return encoded(200, task_of(front, caller, row))


@router.post(
    "/v1/tasks/cancel",
    summary="Cancel tasks by filter",
    **operation(
        BulkAnswer,
        status=202,
        description="Begun: watch it under `Location`.",
        body=BulkCancel,
        problems=("filter_required",),
        headers=("Location",),
    ),
)
async def cancel_many(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.TASKS_WRITE))],
    order: Annotated[BulkCancel, Depends(body_of(BulkCancel))],
) -> Response:
    """Cancel every unfinished task that the filter matches now."""
    found = task_filter(order.filter)
    runtime = front_of(request).runtime
    return bulk_accepted(await bulk.create(runtime, caller, BulkKind.CANCEL, found, order.reason, everything=order.all))
