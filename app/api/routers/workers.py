"""GET /v1/workers."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import encoded, operation
from app.api.schemas.platform import WorkerAnswer, WorkerPage
from app.domain.scopes import Scope
from app.services.callers import Caller
from app.services.fleet import read_workers

router = APIRouter(tags=["operation"])


@router.get("/v1/workers", summary="List live workers", **operation(WorkerPage, description="All live workers, by id."))
async def see_workers(
    request: Request, caller: Annotated[Caller, Depends(needs(Scope.METRICS_READ, platform=True))]
) -> Response:
    """Show the workers whose heartbeat is fresh, with what they run."""
    items = [
        WorkerAnswer(
            worker_id=row.worker_id,
            pool=row.pool,
            classes=list(row.classes),
            task_types=list(row.task_types),
            slots=row.slots,
            draining=row.draining,
            host=row.host,
            pid=row.pid,
            version=row.version,
            started_at=row.started_at,
            heartbeat_at=row.heartbeat_at,
            current_tasks=list(task_ids),
        )
        for row, task_ids in await read_workers(front_of(request).runtime.database)
    ]
    return encoded(200, WorkerPage(items, None))
