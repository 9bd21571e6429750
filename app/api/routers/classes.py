"""GET /v1/classes."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import encoded, operation
from app.api.schemas.platform import ClassAnswer, ClassPage
from app.domain.scopes import Scope
from app.services.callers import Caller
from app.services.classes import ClassStanding, read_classes

router = APIRouter(tags=["operation"])


@router.get(
    "/v1/classes", summary="See how the classes stand", **operation(ClassPage, description="All classes, by rank.")
)
async def see_classes(request: Request, caller: Annotated[Caller, Depends(needs(Scope.METRICS_READ))]) -> Response:
    """Show every class of the policy; a tenant's key sees its own waiting and running tasks only."""
    found = await read_classes(front_of(request).runtime, caller.tenant_id)
    return encoded(200, ClassPage([_shown(one) for one in found], None))


def _shown(one: ClassStanding) -> ClassAnswer:
    figures = one.figures
    return ClassAnswer(
        name=one.name,
        rank=one.rank,
        waiting=one.waiting,
        running=one.running,
        released=one.released,
        nominal=figures.nominal,
        maximum=figures.maximum,
        lent=figures.lent,
        borrowed=figures.borrowed,
        oldest_waiting_seconds=figures.oldest_waiting_seconds,
        wait_p50_seconds=figures.wait_p50_seconds,
        wait_p95_seconds=figures.wait_p95_seconds,
        wait_p99_seconds=figures.wait_p99_seconds,
        started_within_target=figures.started_within_target,
        start_within_seconds=one.start_within_seconds,
        consumers=one.consumers,
        measured_at=one.measured_at,
    )
