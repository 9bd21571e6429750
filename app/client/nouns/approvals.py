"""Approvals: what waits for a person, and the decision."""

from datetime import datetime
from typing import Generic

import msgspec

from app.client.bound import Bound, S, call, streaming
from app.client.request import Json, Request, Several, Stream, get, given, pages, part, post


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler asks a person, decided once. `detail` is what the handler shows of it: text of strangers."""

    approval_id: str
    state: str
    task_id: str | None = None
    type: str | None = None
    tenant_id: str | None = None
    priority_class: str | None = None
    action: str | None = None
    detail: Json = None
    submitted_by: str | None = None
    asked_at: datetime | None = None
    due_at: datetime | None = None
    expires_at: datetime | None = None
    decided_at: datetime | None = None
    decided_by: str | None = None
    comment: str | None = None


class Approvals(Bound[S], Generic[S]):
    """`client.approvals`."""

    @streaming
    def list(
        self,
        *,
        state: Several = None,
        priority_class: Several = None,
        type: Several = None,
        action: Several = None,
        task_id: Several = None,
        tenant_id: Several = None,
        at_most: int | None = None,
    ) -> Stream[Approval]:
        """Iterate over approvals by class, the oldest due first; without `state`: those that wait for somebody."""
        parameters = {
            "state": state,
            "priority_class": priority_class,
            "type": type,
            "action": action,
            "task_id": task_id,
            "tenant_id": tenant_id,
        }
        return pages("/v1/approvals", Approval, parameters, at_most=at_most)

    @call
    def get(self, approval_id: str) -> Request[Approval]:
        """Read one."""
        return get(f"/v1/approvals/{part(approval_id)}", Approval)

    @call
    def approve(self, approval_id: str, comment: str | None = None) -> Request[Approval]:
        """Let the action happen."""
        return post(f"/v1/approvals/{part(approval_id)}/approve", Approval, given(comment=comment))

    @call
    def deny(self, approval_id: str, comment: str | None = None) -> Request[Approval]:
        """Keep the action from happening; its task ends as `rejected`."""
        return post(f"/v1/approvals/{part(approval_id)}/deny", Approval, given(comment=comment))
