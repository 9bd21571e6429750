"""GET /v1/webhooks and /v1/webhooks/{webhook_id}, POST /v1/webhooks/{webhook_id}/redeliver."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import encoded, operation
from app.api.path_ids import check_id
from app.api.query import PlainText, TenantsPageQuery, next_token
from app.api.routers.tasks import listed_tenants
from app.api.schemas.webhooks import Webhook, WebhookPage, WebhookTry
from app.domain.scopes import Scope
from app.domain.webhooks import WebhookState
from app.services import webhooks
from app.services.callers import Caller
from app.store.webhooks import WebhookFilter

router = APIRouter(tags=["webhooks"])


class WebhookQuery(TenantsPageQuery):
    """What events can be filtered by; repeated parameters mean "or"."""

    state: list[WebhookState] | None = None
    event: list[PlainText] | None = None
    task_id: list[PlainText] | None = None


def _fields(row: Row[Any]) -> dict[str, Any]:
    return {
        "webhook_id": row.webhook_id,
        "task_id": row.task_id,
        "tenant_id": row.tenant_id,
        "event": row.event,
        "state": WebhookState(row.state),
        "host": row.host,
        "priority_class": row.priority_class,
        "created_at": row.ended_at,
        "tries": row.tries,
        "next_try_at": row.next_try_at if row.state == WebhookState.WAITING else None,
        "last_try_at": row.last_try_at,
        "last_status_code": row.last_status_code,
        "last_error_type": row.last_error_type,
        "settled_at": row.settled_at,
    }


@router.get(
    "/v1/webhooks",
    summary="List events for receivers",
    **operation(WebhookPage, description="A page of events, newest first."),
)
async def read_webhooks(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.TASKS_READ))],
    query: Annotated[WebhookQuery, Query()],
) -> Response:
    """List the events that were made for tasks with a `callback_url`, and how their delivery stands."""
    front = front_of(request)
    which = WebhookFilter(
        state=tuple(query.state or ()),
        event=tuple(query.event or ()),
        task_id=tuple(query.task_id or ()),
        tenant_id=listed_tenants(front, caller, query.tenant_id or ()),
    )
    page = await webhooks.page(front.runtime, which, before=query.after(), size=query.page_size)
    return encoded(200, WebhookPage([Webhook(**_fields(row)) for row in page.rows], next_token(page.last_id)))


@router.get(
    "/v1/webhooks/{webhook_id}",
    summary="Read an event with its tries",
    **operation(Webhook, description="The event as it is now.", problems=("not_found",)),
)
async def read_webhook(
    request: Request, webhook_id: str, caller: Annotated[Caller, Depends(needs(Scope.TASKS_READ))]
) -> Response:
    """Tell what became of an event: every try with its time, and the status or error that it came to."""
    story = await webhooks.get(front_of(request).runtime, caller, check_id(webhook_id, "webhook"))
    history = [
        WebhookTry(one.number, one.started_at, one.seconds, one.status_code, one.error_type) for one in story.tries
    ]
    return encoded(200, Webhook(**_fields(story.row), history=history))


@router.post(
    "/v1/webhooks/{webhook_id}/redeliver",
    summary="Send an event again",
    **operation(Webhook, status=202, description="Due at once.", problems=("not_found", "webhook_sending")),
)
async def redeliver_webhook(
    request: Request, webhook_id: str, caller: Annotated[Caller, Depends(needs(Scope.TASKS_WRITE))]
) -> Response:
    """Send an event at once under the id it has, with a fresh number of tries; delivered ones as well."""
    row = await webhooks.redeliver(front_of(request).runtime, caller, check_id(webhook_id, "webhook"))
    return encoded(202, Webhook(**_fields(row)))
