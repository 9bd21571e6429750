"""POST /v1/tasks, GET /v1/tasks and GET /v1/tasks/{task_id}."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import authorize, needs
from app.api.front import Front, front_of
from app.api.headers import NO_WAIT, Wait, idempotency_key, rate_headers, trace_of, wait_of
from app.api.operation import encode, encoded, operation
from app.api.query import PlainText, TenantsPageQuery, next_token, refuse_parameters
from app.api.schemas.common import Instant
from app.api.schemas.tasks import Task, TaskPage, TaskSubmission
from app.api.submissions import read_single
from app.api.task_view import accepted_task_of, listed_task_of, task_of
from app.domain.lifecycle import TaskStatus, is_final
from app.domain.scopes import Scope
from app.ids import is_id
from app.services.actors import check_seen
from app.services.callers import Caller
from app.services.errors import Forbidden, NotFound
from app.services.intake import Accepted
from app.services.queries import get_task, list_tasks
from app.store.filters import TaskFilter

router = APIRouter(tags=["tasks"])

WAIT = {
    "name": "wait",
    "in": "query",
    "schema": {"type": "number", "minimum": 0},
    "description": "seconds to wait for the end of the task; above 55 means 55; wins over `Prefer: wait=`",
}
PREFER = {"name": "Prefer", "in": "header", "schema": {"type": "string"}, "description": "`wait=30`; RFC 7240"}
TENANT = {
    "name": "tenant_id",
    "in": "query",
    "schema": {"type": "string"},
    "description": "platform keys only: the tenant to submit for; without it, `default`",
}
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    "description": "1 to 255 visible ASCII characters; kept 7 days; bare and quoted are the same key",
}
TRACEPARENT = {"name": "traceparent", "in": "header", "schema": {"type": "string"}, "description": "W3C trace context"}
_PARAMETERS = frozenset({"tenant_id", "wait"})
RATE_HEADERS = ("RateLimit", "RateLimit-Policy")


@router.post(
    "/v1/tasks",
    summary="Submit a task",
    **operation(
        Task,
        status=202,
        description="Accepted: the task is committed and cannot be lost.",
        also={200: ("The task ended within the time to wait.", Task)},
        body=TaskSubmission,
        problems=(
            "unknown_task_type", "unknown_input_ref", "idempotency_key_reused", "idempotency_in_flight",
            "submit_rate_exceeded", "open_tasks_quota", "class_saturated",
        ),
        headers=("Location", "Idempotency-Replayed", "Preference-Applied", *RATE_HEADERS),
        parameters=(TENANT, WAIT, PREFER, IDEMPOTENCY_KEY, TRACEPARENT),
    ),
)  # fmt: skip
async def submit_task(request: Request) -> Response:
    """Accept a task.

    Same `Idempotency-Key` and body again: the task as it is now.
    """
    front = front_of(request)
    caller = await authorize(front, request.headers.get("authorization"), Scope.TASKS_WRITE)
    named_tenant, wait = _query_of(request, front)
    key = idempotency_key(request)
    traceparent, tracestate = trace_of(request)
    raw = await request.body()
    asked = read_single(raw, traceparent=traceparent, tracestate=tracestate, idempotency_key=key)
    tenant = await front.tenants.acting_for(caller, named_tenant)
    _, standing = front.intake.pace(tenant, 1)
    taken = await front.intake.take(caller, tenant, asked)

    headers = rate_headers(standing)
    if isinstance(taken, Accepted):
        task_id = taken.stored.task_id
        if wait.seconds == 0:
            headers["Location"] = f"/v1/tasks/{task_id}"
            return Response(encode(accepted_task_of(front, taken)), 202, headers, media_type="application/json")
    else:
        task_id = taken.task_id
        headers["Idempotency-Replayed"] = "true"
    row = await _after_waiting(front, caller, task_id, wait, headers)
    headers["Location"] = f"/v1/tasks/{task_id}"
    waited = wait.seconds > 0 and is_final(row.status)
    return encoded(200 if waited else 202, task_of(front, caller, row), headers)


def _query_of(request: Request, front: Front) -> tuple[str | None, Wait]:
    """Read what the query of a submission may hold: `tenant_id` and `wait`. Raises Invalid."""
    if not request.scope["query_string"]:
        return None, wait_of(request, front.runtime.settings.api.max_wait_seconds)
    refuse_parameters(request, _PARAMETERS)
    return request.query_params.get("tenant_id"), wait_of(request, front.runtime.settings.api.max_wait_seconds)


async def _after_waiting(front: Front, caller: Caller, task_id: str, wait: Wait, headers: dict[str, str]) -> Row[Any]:
    """Read a task, after waiting for its end where that was asked. Raises NotFound."""
    row = await visible_task(front, caller, task_id)
    if wait.applied is not None:
        headers["Preference-Applied"] = wait.applied
    if wait.seconds > 0 and not is_final(row.status):
        await front.waiters.wait(task_id, wait.seconds)
        row = await visible_task(front, caller, task_id)
    return row


async def visible_task(front: Front, caller: Caller, task_id: str) -> Row[Any]:
    """Read a task that the caller may see. Raises NotFound, the same for one of another tenant and one of nobody."""
    row = await get_task(front.runtime.database, task_id) if is_id("task", task_id) else None
    if row is None:
        raise NotFound
    check_seen(caller, task_id, row.tenant_id)
    return row


@router.get(
    "/v1/tasks/{task_id}",
    summary="Read a task, or wait for its end",
    **operation(
        Task,
        description="The task as it is now.",
        problems=("not_found",),
        headers=("Retry-After", "Preference-Applied"),
        parameters=(PREFER,),
    ),
)
async def read_task(
    request: Request,
    task_id: str,
    caller: Annotated[Caller, Depends(needs(Scope.TASKS_READ))],
    include: Annotated[
        list[Literal["input"]] | None, Query(description="`input` adds it (scope payloads:read)")
    ] = None,
    wait: Annotated[float | None, Query(ge=0, description=str(WAIT["description"]))] = None,
) -> Response:
    """Answer with the task: at once, or when it has ended or the time to wait is over."""
    front = front_of(request)
    if include and not caller.may(Scope.PAYLOADS_READ):
        raise Forbidden(f"The key lacks the scope {Scope.PAYLOADS_READ}.")
    longest = front.runtime.settings.api.max_wait_seconds
    patience = wait_of(request, longest) if wait is None or wait > 0 else NO_WAIT
    headers: dict[str, str] = {}
    row = await _after_waiting(front, caller, task_id, patience, headers)
    if not is_final(row.status):
        headers["Retry-After"] = str(_look_again_in(row, front.runtime.now()))
    return encoded(200, task_of(front, caller, row, with_input=bool(include)), headers)


def _look_again_in(row: Row[Any], now: datetime) -> int:
    """Tell in how many seconds looking again may be worth it."""
    due: datetime | None = row.next_attempt_at or (row.not_before if row.status == TaskStatus.SCHEDULED else None)
    if due is None:
        return 1
    return min(60, max(1, math.ceil((due - now).total_seconds())))


class TaskListQuery(TenantsPageQuery):
    """What tasks can be filtered by; repeated parameters mean "or"."""

    status: list[TaskStatus] | None = None
    type: list[PlainText] | None = None
    priority_class: list[PlainText] | None = None
    group: list[PlainText] | None = None
    source_ref: list[PlainText] | None = None
    submitted_after: Instant | None = None
    submitted_before: Instant | None = None
    include: list[Literal["result"]] | None = None

    def chosen(self, tenant_ids: tuple[str, ...]) -> TaskFilter:
        """Turn the parameters into a filter on things of `tenant_ids`."""
        return TaskFilter(
            status=tuple(self.status or ()),
            type=tuple(self.type or ()),
            priority_class=tuple(self.priority_class or ()),
            group=tuple(self.group or ()),
            source_ref=tuple(self.source_ref or ()),
            tenant_id=tenant_ids,
            submitted_after=self.submitted_after,
            submitted_before=self.submitted_before,
        )


@router.get("/v1/tasks", summary="List tasks", **operation(TaskPage, description="A page of tasks, newest first."))
async def read_tasks(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.TASKS_READ))],
    query: Annotated[TaskListQuery, Query()],
) -> Response:
    """List tasks without their inputs; results only with `include=result` and the scope payloads:read."""
    front = front_of(request)
    with_result = bool(query.include)
    if with_result and not caller.may(Scope.PAYLOADS_READ):
        raise Forbidden(f"The key lacks the scope {Scope.PAYLOADS_READ}.")
    page = await list_tasks(
        front.runtime.database,
        query.chosen(listed_tenants(front, caller, query.tenant_id or ())),
        after=query.after(),
        size=query.page_size,
        with_result=with_result,
    )
    items = [listed_task_of(front, row, with_result=with_result) for row in page.rows]
    return encoded(200, TaskPage(items, next_token(page.last_id)))


def listed_tenants(front: Front, caller: Caller, named: Sequence[str]) -> tuple[str, ...]:
    """Tell whose things a list shows; none means everybody's. Raises Forbidden when a tenant's key names another."""
    whose = [listed_tenant(front, caller, one) for one in named or (None,)]
    return tuple(one for one in whose if one is not None)


def listed_tenant(front: Front, caller: Caller, named: str | None) -> str | None:
    """Tell whose things a list shows; None means everybody's. Raises Forbidden when a tenant's key names another."""
    if caller.tenant_id is None or named is None or named == caller.tenant_id:
        return caller.tenant_id or named
    front.refusals.note(caller, "list", None)
    raise Forbidden("A tenant's key lists its own tenant only: leave tenant_id out.")
