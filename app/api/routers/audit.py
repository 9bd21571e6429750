"""GET /v1/audit."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import encoded, operation
from app.api.query import PlainText, TenantPageQuery, next_token
from app.api.schemas.administration import AuditAnswer, AuditPage
from app.api.schemas.common import Instant, raw
from app.domain.scopes import Scope
from app.services.audit import list_entries
from app.services.callers import Caller
from app.services.queries import cut
from app.store.audit import AuditFilter

router = APIRouter(tags=["administration"])


class AuditQuery(TenantPageQuery):
    """What the trail can be filtered by; repeated parameters mean "or"."""

    action: list[PlainText] | None = None
    subject: list[PlainText] | None = None
    target: PlainText | None = None
    since: Instant | None = None
    until: Instant | None = None


@router.get("/v1/audit", summary="Read the audit trail", **operation(AuditPage, description="A page, newest first."))
async def read_audit(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.ADMIN, platform=True))],
    query: Annotated[AuditQuery, Query()],
) -> Response:
    """Tell who did what, when and why; refused attempts to reach another tenant's things included."""
    which = AuditFilter(
        tenant_id=query.tenant_id,
        actions=tuple(query.action) if query.action else None,
        subjects=tuple(query.subject) if query.subject else None,
        target=query.target,
        since=query.since,
        until=query.until,
    )
    rows = await list_entries(
        front_of(request).runtime.database, which, before=query.after(), limit=query.page_size + 1
    )
    page = cut(rows, query.page_size, "audit_id")
    items = [
        AuditAnswer(
            row.audit_id, row.at, row.key_id, row.subject, row.tenant_id, row.action, row.target, row.reason,
            raw(row.detail),
        )
        for row in page.rows
    ]  # fmt: skip
    return encoded(200, AuditPage(items, next_token(page.last_id)))
