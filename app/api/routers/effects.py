"""GET /v1/effects, GET /v1/tasks/{task_id}/effects, POST /v1/effects/{effect_id}/resolve."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import body_of, encoded, operation
from app.api.path_ids import check_id
from app.api.query import PlainText, TenantsPageQuery, next_token
from app.api.routers.tasks import listed_tenants, visible_task
from app.api.schemas.effects import Effect, EffectPage, EffectResolution, effect_of
from app.domain.effects import EffectState
from app.domain.scopes import Scope
from app.services import effects
from app.services.callers import Caller
from app.services.queries import cut
from app.store.filters import EffectFilter

router = APIRouter(tags=["effects"])


class EffectQuery(TenantsPageQuery):
    """What effects can be filtered by; repeated parameters mean "or"."""

    state: list[EffectState] | None = None
    type: Annotated[list[PlainText] | None, Field(description="types of effects")] = None
    task_id: list[PlainText] | None = None


@router.get(
    "/v1/effects", summary="List effects", **operation(EffectPage, description="A page of effects, newest first.")
)
async def read_effects(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.EFFECTS_READ))],
    query: Annotated[EffectQuery, Query()],
) -> Response:
    """List what tasks did outside; `state=in_doubt` is what waits for a person."""
    front = front_of(request)
    found = EffectFilter(
        state=tuple(query.state or ()),
        type=tuple(query.type or ()),
        task_id=tuple(query.task_id or ()),
        tenant_id=listed_tenants(front, caller, query.tenant_id or ()),
    )
    rows = await effects.page(front.runtime, found, before=query.after(), limit=query.page_size + 1)
    page = cut(rows, query.page_size, "effect_id")
    return encoded(200, EffectPage([effect_of(row) for row in page.rows], next_token(page.last_id)))


@router.get(
    "/v1/tasks/{task_id}/effects",
    summary="List a task's effects",
    **operation(EffectPage, description="All effects, newest first.", problems=("not_found",)),
)
async def read_effects_of_task(
    request: Request, task_id: str, caller: Annotated[Caller, Depends(needs(Scope.TASKS_READ))]
) -> Response:
    """List what a task did outside. An effect whose key several tasks share is with the one that reserved it last."""
    front = front_of(request)
    await visible_task(front, caller, task_id)
    rows = await effects.of_task(front.runtime, task_id)
    return encoded(200, EffectPage([effect_of(row) for row in rows], None))


@router.post(
    "/v1/effects/{effect_id}/resolve",
    summary="Resolve an effect in doubt",
    **operation(
        Effect,
        description="Recorded; tasks that were dead-lettered for it go on.",
        body=EffectResolution,
        problems=("not_found", "effect_not_in_doubt"),
    ),
)
async def resolve_effect(
    request: Request,
    effect_id: str,
    caller: Annotated[Caller, Depends(needs(Scope.EFFECTS_RESOLVE))],
    order: Annotated[EffectResolution, Depends(body_of(EffectResolution))],
) -> Response:
    """Say what a look outside showed: it happened (as which id), or it did not and may be tried again."""
    row = await effects.resolve(
        front_of(request).runtime,
        caller,
        check_id(effect_id, "effect"),
        EffectState(order.outcome),
        order.external_id,
        order.reason,
    )
    return encoded(200, effect_of(row))
