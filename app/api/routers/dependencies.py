"""GET /v1/dependencies."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import encoded, operation
from app.api.schemas.platform import DependencyAnswer, DependencyPage
from app.domain.scopes import Scope
from app.services.callers import Caller
from app.services.dependencies import DependencyStanding, read_dependencies

router = APIRouter(tags=["operation"])


@router.get(
    "/v1/dependencies",
    summary="See how the dependencies stand",
    **operation(DependencyPage, description="All dependencies, by name."),
)
async def see_dependencies(
    request: Request, caller: Annotated[Caller, Depends(needs(Scope.METRICS_READ, platform=True))]
) -> Response:
    """Show whether each dependency lets calls through, since when and until when, what is in use, and its limits."""
    found = await read_dependencies(front_of(request).runtime)
    return encoded(200, DependencyPage([_shown(one) for one in found], None))


def _shown(one: DependencyStanding) -> DependencyAnswer:
    dependency = one.dependency
    return DependencyAnswer(
        name=dependency.name,
        state=one.state.value,
        since=one.since,
        closed_until=one.closed_until,
        openings=one.openings,
        ceiling=one.ceiling,
        in_use=one.in_use,
        waiting=one.waiting,
        workers=one.workers,
        concurrency=dependency.concurrency,
        requests_per_minute=dependency.requests_per_minute,
        tokens_per_minute=dependency.tokens_per_minute,
        reserve=dict(dependency.reserve),
    )
