"""GET /v1/approvals, a single one, and deciding: POST /v1/approvals/{approval_id}/approve and …/deny."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import body_of, encoded, operation
from app.api.path_ids import check_id
from app.api.query import PlainText, TenantsPageQuery, next_token
from app.api.routers.tasks import listed_tenants
from app.api.schemas.approvals import ApprovalAnswer, ApprovalPage, Decision
from app.api.schemas.common import raw
from app.domain.approvals import ApprovalState
from app.domain.scopes import Scope
from app.ids import is_id
from app.services import approvals
from app.services.callers import Caller
from app.services.errors import Invalid
from app.store.approval_lists import ApprovalFilter, Position

router = APIRouter(tags=["approvals"])
Reader = Annotated[Caller, Depends(needs(Scope.APPROVALS_READ))]
Decider = Annotated[Caller, Depends(needs(Scope.APPROVALS_DECIDE))]
_REFUSALS = ("not_found", "own_task", "approval_decided", "approval_expired", "approval_withdrawn")


class ApprovalQuery(TenantsPageQuery):
    """What approvals can be filtered by; repeated parameters mean "or". Without `state`: those that are pending."""

    state: list[ApprovalState] | None = None
    priority_class: list[PlainText] | None = None
    type: list[PlainText] | None = None
    action: list[PlainText] | None = None
    task_id: list[PlainText] | None = None

    def chosen(self, tenant_ids: tuple[str, ...]) -> ApprovalFilter:
        """Turn the parameters into a filter on things of `tenant_ids`."""
        return ApprovalFilter(
            state=tuple(self.state or (ApprovalState.PENDING,)),
            priority_class=tuple(self.priority_class or ()),
            type=tuple(self.type or ()),
            action=tuple(self.action or ()),
            task_id=tuple(self.task_id or ()),
            tenant_id=tenant_ids,
        )

    def position(self) -> Position | None:
        """Return where the page before ended. Raises Invalid for a token that is none of this list."""
        last = self.after()
        if last is None:
            return None
        rank, _, rest = last.partition(",")
        due_at, _, approval_id = rest.partition(",")
        try:
            place = Position(int(rank), datetime.fromisoformat(due_at), approval_id)
            if is_id("appr", approval_id) and 0 <= place.rank <= 1000 and place.due_at.tzinfo is not None:
                return place
        except (ValueError, OverflowError):
            pass
        raise Invalid(
            [("?page_token", "not a token of this list: use `next_page_token` of the page before")],
            code="invalid_parameter",
            detail="The page token is not valid.",
        )


def _shown(row: Row[Any]) -> ApprovalAnswer:
    return ApprovalAnswer(
        approval_id=row.approval_id,
        task_id=row.task_id,
        type=row.type,
        tenant_id=row.tenant_id,
        priority_class=row.priority_class,
        action=row.action,
        detail=raw(row.detail),
        state=row.state,
        submitted_by=row.submitted_by,
        asked_at=row.asked_at,
        due_at=row.due_at,
        expires_at=row.expires_at,
        decided_at=row.decided_at,
        decided_by=row.decided_by,
        comment=row.comment,
    )


@router.get(
    "/v1/approvals",
    summary="List approvals",
    **operation(ApprovalPage, description="A page, by class in the order of the policy, then oldest due first."),
)
async def read_approvals(request: Request, caller: Reader, query: Annotated[ApprovalQuery, Query()]) -> Response:
    """List what people are asked for; without `state`, what waits to be decided."""
    front = front_of(request)
    found = query.chosen(listed_tenants(front, caller, query.tenant_id or ()))
    size = query.page_size
    rows = await approvals.page(front.runtime, caller, found, after=query.position(), limit=size + 1)
    last = None
    if len(rows) > size:
        end = rows[size - 1]
        last = f"{end.rank},{end.due_at.isoformat()},{end.approval_id}"
    return encoded(200, ApprovalPage([_shown(row) for row in rows[:size]], next_token(last)))


@router.get(
    "/v1/approvals/{approval_id}",
    summary="Read an approval",
    **operation(ApprovalAnswer, description="The approval.", problems=("not_found",)),
)
async def read_approval(request: Request, approval_id: str, caller: Reader) -> Response:
    """Read one approval."""
    row = await approvals.get(front_of(request).runtime, caller, check_id(approval_id, "appr"))
    return encoded(200, _shown(row))


@router.post(
    "/v1/approvals/{approval_id}/approve",
    summary="Approve",
    **operation(ApprovalAnswer, description="Approved: the task goes on.", body=Decision, problems=_REFUSALS),
)
async def approve(
    request: Request, approval_id: str, caller: Decider, said: Annotated[Decision, Depends(body_of(Decision))]
) -> Response:
    """Say yes; of any number of callers one decides, and never whoever submitted the task."""
    return await _decided(request, approval_id, caller, said, approve=True)


@router.post(
    "/v1/approvals/{approval_id}/deny",
    summary="Deny",
    **operation(ApprovalAnswer, description="Denied: the task is rejected.", body=Decision, problems=_REFUSALS),
)
async def deny(
    request: Request, approval_id: str, caller: Decider, said: Annotated[Decision, Depends(body_of(Decision))]
) -> Response:
    """Say no; the comment is the reason with which the task ends."""
    return await _decided(request, approval_id, caller, said, approve=False)


async def _decided(request: Request, approval_id: str, caller: Caller, said: Decision, *, approve: bool) -> Response:
    found = check_id(approval_id, "appr")
    row = await approvals.decide(front_of(request).runtime, caller, found, approve=approve, comment=said.comment)
    return encoded(200, _shown(row))
