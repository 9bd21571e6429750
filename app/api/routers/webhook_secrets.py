"""POST and GET /v1/webhook-secrets, DELETE /v1/webhook-secrets/{webhook_secret_id}."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import body_of, encoded, operation
from app.api.path_ids import check_id
from app.api.query import TenantPageQuery, next_token
from app.api.routers.tasks import listed_tenant
from app.api.schemas.webhooks import NewWebhookSecret, WebhookSecret, WebhookSecretOrder, WebhookSecretPage
from app.domain.scopes import Scope
from app.services import webhook_secrets
from app.services.callers import Caller
from app.services.errors import Invalid
from app.services.queries import cut

router = APIRouter(tags=["webhooks"])
Admin = Annotated[Caller, Depends(needs(Scope.ADMIN))]


def _fields(row: Row[Any]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in WebhookSecret.__struct_fields__}


@router.post(
    "/v1/webhook-secrets",
    summary="Make a signing secret",
    **operation(
        NewWebhookSecret, status=201, description="Made; `secret` is shown this once.", body=WebhookSecretOrder
    ),
)
async def make_webhook_secret(
    request: Request, caller: Admin, order: Annotated[WebhookSecretOrder, Depends(body_of(WebhookSecretOrder))]
) -> Response:
    """Make a secret that signs a tenant's events; those before it sign along for a while, so that none is missed."""
    front = front_of(request)
    try:
        tenant = await front.tenants.acting_for(caller, order.tenant_id)
    except Invalid:
        raise Invalid([("#/tenant_id", "should name a tenant: POST /v1/tenants makes one")]) from None
    made = await webhook_secrets.create(
        front.runtime, caller, tenant.facts.tenant_id, overlap_seconds=order.overlap_seconds
    )
    return encoded(201, NewWebhookSecret(**_fields(made.row), secret=made.secret), {"Cache-Control": "no-store"})


@router.get(
    "/v1/webhook-secrets",
    summary="List signing secrets",
    **operation(WebhookSecretPage, description="A page of them, newest first; never the secrets."),
)
async def read_webhook_secrets(request: Request, caller: Admin, query: Annotated[TenantPageQuery, Query()]) -> Response:
    """List signing secrets, retired ones included; never the secrets."""
    front = front_of(request)
    rows = await webhook_secrets.page(
        front.runtime,
        tenant_id=listed_tenant(front, caller, query.tenant_id),
        before=query.after(),
        limit=query.page_size + 1,
    )
    page = cut(rows, query.page_size, "webhook_secret_id")
    items = [WebhookSecret(**_fields(row)) for row in page.rows]
    return encoded(200, WebhookSecretPage(items, next_token(page.last_id)))


@router.delete(
    "/v1/webhook-secrets/{webhook_secret_id}",
    summary="Retire a signing secret",
    **operation(None, status=204, description="Retired; it signs nothing any more.", problems=("not_found",)),
)
async def remove_webhook_secret(request: Request, webhook_secret_id: str, caller: Admin) -> Response:
    """Have a secret sign nothing any more, from the next event on."""
    await webhook_secrets.retire(front_of(request).runtime, caller, check_id(webhook_secret_id, "whsecret"))
    return Response(status_code=204)
