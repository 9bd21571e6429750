"""POST /v1/tasks/batch: up to a thousand submissions in one commit, each accepted or refused by itself."""

from fastapi import APIRouter, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import authorize
from app.api.front import Front, front_of
from app.api.headers import rate_headers, trace_of
from app.api.operation import encoded, operation
from app.api.problems import problem_of
from app.api.query import refuse_parameters
from app.api.routers.tasks import IDEMPOTENCY_KEY, RATE_HEADERS, TENANT, TRACEPARENT
from app.api.schemas.tasks import AcceptedItem, BatchAnswer, RefusedItem, TaskBatch
from app.api.submissions import read_item, read_items
from app.api.task_view import accepted_task_of, task_of
from app.domain.scopes import Scope
from app.services.callers import Caller
from app.services.errors import Invalid, QuotaExceeded, ServiceError
from app.services.intake import Accepted, Repeated, Taken
from app.services.queries import get_tasks_by_id
from app.services.submission import Submission

router = APIRouter(tags=["tasks"])
_INSTANCE = "/v1/tasks/batch"
_PARAMETERS = frozenset({"tenant_id"})


@router.post(
    "/v1/tasks/batch",
    summary="Submit many tasks",
    **operation(
        BatchAnswer,
        status=202,
        description="All items were accepted.",
        also={207: ("Some items were refused; `items` says which and why.", BatchAnswer)},
        body=TaskBatch,
        problems=("submit_rate_exceeded", "open_tasks_quota"),
        headers=RATE_HEADERS,
        parameters=(TENANT, TRACEPARENT),
        models=(AcceptedItem, RefusedItem),
    ),
)
async def submit_batch(request: Request) -> Response:
    """Accept many tasks; idempotency is per item, and pointers in an item's problem are relative to it."""
    front = front_of(request)
    caller = await authorize(front, request.headers.get("authorization"), Scope.TASKS_WRITE)
    refuse_parameters(request, _PARAMETERS)
    if str(IDEMPOTENCY_KEY["name"]) in request.headers:
        raise Invalid(
            [(":Idempotency-Key", "a batch has none: give each item its own idempotency_key")],
            code="invalid_parameter",
            detail="The header does not apply here.",
        )
    traceparent, tracestate = trace_of(request)
    texts = read_items(await request.body(), front.runtime.settings.api.submit_batch_max)
    tenant = await front.tenants.acting_for(caller, request.query_params.get("tenant_id"))
    admitted, standing = front.intake.pace(tenant, len(texts))
    items = [_read(text, traceparent, tracestate) for text in texts[:admitted]]
    taken: list[Taken | ServiceError] = await front.intake.take_many(caller, tenant, items)
    taken += [_too_fast()] * (len(texts) - admitted)
    return await _answer(front, caller, taken, rate_headers(standing))


def _read(text: bytes, traceparent: str, tracestate: str | None) -> Submission | ServiceError:
    try:
        return read_item(text, traceparent=traceparent, tracestate=tracestate)
    except ServiceError as refusal:
        return refusal


def _too_fast() -> QuotaExceeded:
    return QuotaExceeded(
        "submit_rate_exceeded", "The tenant submits tasks faster than its rate allows.", retry_after_seconds=1.0
    )


async def _answer(front: Front, caller: Caller, taken: list[Taken | ServiceError], headers: dict[str, str]) -> Response:
    rows = await get_tasks_by_id(front.runtime.database, [one.task_id for one in taken if isinstance(one, Repeated)])
    items = [_item(front, caller, one, rows) for one in taken]
    refused = sum(isinstance(item, RefusedItem) for item in items)
    for item in items:
        if isinstance(item, RefusedItem):
            front.runtime.metrics.refused(item.problem.code)
    return encoded(207 if refused else 202, BatchAnswer(len(items) - refused, refused, items), headers)


def _item(
    front: Front, caller: Caller, one: Taken | ServiceError, rows: dict[str, Row[object]]
) -> AcceptedItem | RefusedItem:
    match one:
        case Accepted():
            return AcceptedItem(202, accepted_task_of(front, one), False)
        case Repeated(task_id):
            return AcceptedItem(202, task_of(front, caller, rows[task_id]), True)
        case ServiceError():
            problem = problem_of(one, _INSTANCE)
            return RefusedItem(problem.status, problem)
