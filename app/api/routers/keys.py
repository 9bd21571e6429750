"""POST, GET /v1/keys and DELETE /v1/keys/{key_id}."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import body_of, encoded, operation
from app.api.query import TenantPageQuery, next_token
from app.api.schemas.administration import KeyAnswer, KeyPage, KeyRequest, NewKeyAnswer
from app.domain.scopes import Scope
from app.ids import is_id
from app.services.callers import Caller
from app.services.errors import NotFound
from app.services.keys import KeyOrder, create_key, list_keys, revoke_key
from app.services.queries import cut

router = APIRouter(tags=["administration"])


def _fields(row: Row[Any]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in KeyAnswer.__struct_fields__}


@router.post(
    "/v1/keys",
    summary="Make a key",
    **operation(NewKeyAnswer, status=201, description="Made; `key` is shown this once.", body=KeyRequest),
)
async def make_key(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.ADMIN, platform=True))],
    order: Annotated[KeyRequest, Depends(body_of(KeyRequest))],
) -> Response:
    """Make a key for a tenant, or for the platform."""
    wanted = KeyOrder(order.tenant_id, order.role, order.scopes or (), order.subject, order.expires_at)
    made = await create_key(front_of(request).runtime.database, caller, wanted)
    return encoded(201, NewKeyAnswer(**_fields(made.row), key=made.secret), {"Cache-Control": "no-store"})


@router.get("/v1/keys", summary="List keys", **operation(KeyPage, description="A page of keys, newest first."))
async def read_keys(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.ADMIN, platform=True))],
    query: Annotated[TenantPageQuery, Query()],
) -> Response:
    """List keys, revoked and expired ones included; never their secrets."""
    rows = await list_keys(
        front_of(request).runtime.database, tenant_id=query.tenant_id, before=query.after(), limit=query.page_size + 1
    )
    page = cut(rows, query.page_size, "key_id")
    return encoded(200, KeyPage([KeyAnswer(**_fields(row)) for row in page.rows], next_token(page.last_id)))


@router.delete(
    "/v1/keys/{key_id}",
    summary="Revoke a key",
    **operation(
        None, status=204, description="Revoked; within two seconds it opens nothing any more.", problems=("not_found",)
    ),
)
async def remove_key(
    request: Request, key_id: str, caller: Annotated[Caller, Depends(needs(Scope.ADMIN, platform=True))]
) -> Response:
    """Revoke a key for good; revoking it again changes nothing."""
    front = front_of(request)
    if not is_id("key", key_id):
        raise NotFound
    await revoke_key(front.runtime.database, front.keys, caller, key_id)
    return Response(status_code=204)
