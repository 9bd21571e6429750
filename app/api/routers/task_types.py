"""GET /v1/task-types and GET /v1/task-types/{type}."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import encoded, operation
from app.api.schemas.platform import RetryPolicyAnswer, TaskTypeAnswer, TaskTypePage
from app.domain.scopes import Scope
from app.services.callers import Caller
from app.services.errors import NotFound
from app.task_modules import TaskType

router = APIRouter(tags=["task types"])


def _shown(one: TaskType) -> TaskTypeAnswer:
    spec = one.spec
    return TaskTypeAnswer(
        name=spec.name,
        description=spec.description,
        input_schema=one.input_schema(),
        result_schema=one.result_schema(),
        retry_policy=RetryPolicyAnswer(spec.max_attempts, spec.backoff_base_seconds, spec.backoff_cap_seconds),
        timeout_seconds=spec.timeout_seconds,
        preemptible=spec.preemptible,
        effects=list(spec.effects or ()),
        destructive=list(spec.destructive),
        depends_on=list(spec.depends_on),
        mcp={server: list(tools) for server, tools in spec.mcp.items()},
        cost_class=spec.cost_class.value,
        approval_expires_seconds=spec.approval_expires_seconds,
    )


@router.get("/v1/task-types", summary="List task types", **operation(TaskTypePage, description="All types, by name."))
async def read_task_types(request: Request, caller: Annotated[Caller, Depends(needs(Scope.TASKS_READ))]) -> Response:
    """List what this installation can do."""
    registry = front_of(request).runtime.registry
    return encoded(200, TaskTypePage([_shown(registry[name]) for name in sorted(registry)], None))


@router.get(
    "/v1/task-types/{task_type}",
    summary="Read a task type",
    **operation(TaskTypeAnswer, description="The type.", problems=("not_found",)),
)
async def read_task_type(
    request: Request, task_type: str, caller: Annotated[Caller, Depends(needs(Scope.TASKS_READ))]
) -> Response:
    """Read one type with the schemas of its input and result."""
    found = front_of(request).runtime.registry.get(task_type)
    if found is None:
        raise NotFound
    return encoded(200, _shown(found))
