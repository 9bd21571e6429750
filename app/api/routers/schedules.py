"""POST and GET /v1/schedules, GET and DELETE /v1/schedules/{schedule_id}."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.json_body import Reader, check_json
from app.api.operation import encoded, operation, ref
from app.api.path_ids import check_id
from app.api.query import PlainText, TenantPageQuery, next_token
from app.api.routers.tasks import listed_tenant
from app.api.schemas.operations import ScheduleAnswer, ScheduleOrder, SchedulePage
from app.api.submissions import read_single
from app.domain.schedules import Misfire
from app.domain.scopes import Scope
from app.services import schedules
from app.services.callers import Caller
from app.services.queries import cut
from app.services.schedules import ScheduleRequest
from app.services.submission import Submission

router = APIRouter(tags=["schedules"])
Writer = Annotated[Caller, Depends(needs(Scope.TASKS_WRITE))]
_reader = Reader(ScheduleOrder)


class _Kept(msgspec.Struct):
    """The part whose exact text is kept."""

    task: msgspec.Raw


_MAKE = operation(
    ScheduleAnswer,
    status=201,
    description="Made.",
    problems=(
        "schedule_exists", "unknown_task_type", "unknown_input_ref", "malformed_json", "payload_too_large",
        "invalid_payload",
    ),
    headers=("Location",),
    models=(ScheduleOrder,),
)  # fmt: skip
_MAKE["openapi_extra"]["requestBody"] = {
    "required": True,
    "content": {"application/json": {"schema": ref(ScheduleOrder)}},
}


@router.post("/v1/schedules", summary="Make a schedule", **_MAKE)
async def make_schedule(
    request: Request,
    caller: Writer,
    tenant_id: Annotated[
        PlainText | None, Query(description="platform keys only: whose schedule it is; without it, `default`")
    ] = None,
) -> Response:
    """Have a task submitted again and again: one per firing, never two."""
    front = front_of(request)
    body = await request.body()
    check_json(body)
    order: ScheduleOrder = _reader.read(body)
    task = read_single(
        bytes(msgspec.json.decode(body, type=_Kept).task), traceparent=None, tracestate=None, idempotency_key=None
    )
    tenant = await front.tenants.acting_for(caller, tenant_id)
    asked = ScheduleRequest(order.name, order.cron, order.timezone, order.misfire, task)
    row = await schedules.create(front.runtime, caller, tenant.facts, asked)
    return encoded(201, _shown(row), {"Location": f"/v1/schedules/{row.schedule_id}"})


@router.get(
    "/v1/schedules",
    summary="List schedules",
    **operation(SchedulePage, description="A page of schedules, newest first."),
)
async def read_schedules(request: Request, caller: Writer, query: Annotated[TenantPageQuery, Query()]) -> Response:
    """List schedules."""
    front = front_of(request)
    rows = await schedules.page(
        front.runtime,
        caller,
        tenant_id=listed_tenant(front, caller, query.tenant_id),
        before=query.after(),
        limit=query.page_size + 1,
    )
    page = cut(rows, query.page_size, "schedule_id")
    return encoded(200, SchedulePage([_shown(row) for row in page.rows], next_token(page.last_id)))


@router.get(
    "/v1/schedules/{schedule_id}",
    summary="Read a schedule",
    **operation(ScheduleAnswer, description="The schedule as it is now.", problems=("not_found",)),
)
async def read_schedule(request: Request, schedule_id: str, caller: Writer) -> Response:
    """Tell when a schedule fires next, and what became of its last firing."""
    front = front_of(request)
    row = await schedules.get(front.runtime, caller, check_id(schedule_id, "schedule"))
    return encoded(200, _shown(row))


@router.delete(
    "/v1/schedules/{schedule_id}",
    summary="Remove a schedule",
    **operation(None, status=204, description="Removed; its tasks stay.", problems=("not_found",)),
)
async def remove_schedule(request: Request, schedule_id: str, caller: Writer) -> Response:
    """Remove a schedule; the tasks that it made stay."""
    front = front_of(request)
    await schedules.delete(front.runtime, caller, check_id(schedule_id, "schedule"))
    return Response(status_code=204)


def _shown(row: Row[Any]) -> ScheduleAnswer:
    return ScheduleAnswer(
        schedule_id=row.schedule_id,
        tenant_id=row.tenant_id,
        name=row.name,
        cron=row.cron,
        timezone=row.timezone,
        misfire=Misfire(row.misfire),
        task=_task(schedules.task_of(row)),
        next_fire_at=row.next_fire_at,
        last_fired_at=row.last_fired_at,
        last_task_id=row.last_task_id,
        last_error=row.last_error,
        created_by=row.created_by,
        created_at=row.created_at,
    )


def _task(asked: Submission) -> dict[str, object]:
    """Show a submission as it came in, without the fields that were left out."""
    source = {"ref": asked.source_ref, "version": asked.source_version}
    found: dict[str, object] = {
        "type": asked.type,
        "input": None if asked.input is None else msgspec.Raw(asked.input.encode()),
        "input_ref": asked.input_ref,
        "group": asked.group,
        "source": source if asked.source_ref is not None else None,
        "requested_class": asked.requested_class,
        "max_attempts": asked.max_attempts,
        "timeout_seconds": asked.timeout_seconds,
        "callback_url": asked.callback_url,
        "metadata": None if asked.metadata is None else msgspec.Raw(asked.metadata.encode()),
    }
    return {name: value for name, value in found.items() if value is not None}
