"""GET /v1/tasks/{task_id}/events."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import encoded, operation
from app.api.routers.tasks import visible_task
from app.api.schemas.common import raw
from app.api.schemas.history import Event, EventPage
from app.domain.scopes import Scope
from app.services.callers import Caller
from app.services.history import compose, read_story

router = APIRouter(tags=["tasks"])


@router.get(
    "/v1/tasks/{task_id}/events",
    summary="Read a task's history",
    **operation(EventPage, description="The history, oldest first.", problems=("not_found",)),
)
async def read_events(
    request: Request, task_id: str, caller: Annotated[Caller, Depends(needs(Scope.TASKS_READ))]
) -> Response:
    """Tell what happened to a task and why; for one that waits, the last entry says what it waits for."""
    front = front_of(request)
    task = await visible_task(front, caller, task_id)
    story = await read_story(front.runtime, task)
    task_type = front.runtime.registry.get(task.type)
    entries = compose(task, story, task_type.spec.depends_on if task_type is not None else ())
    items = [Event(one.at, one.kind, one.reason, one.actor, raw(one.detail)) for one in entries]
    return encoded(200, EventPage(items, None))
