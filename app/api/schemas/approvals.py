"""Approvals as they come in and go out."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from app.api.schemas.common import Body, Json, Reason


class Decision(Body):
    """What is said with a decision; a no's comment becomes the reason with which the task is rejected."""

    comment: Annotated[Reason | None, Field(examples=["checked with the customer"])] = None


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler asks a person. `detail` is what the handler shows of it: text of strangers."""

    approval_id: str
    task_id: str
    type: str
    tenant_id: str
    priority_class: str
    action: str
    detail: Json
    state: Literal["pending", "approved", "denied", "expired", "withdrawn"]
    submitted_by: str
    """Whoever submitted the task: the one who cannot decide."""
    asked_at: datetime
    due_at: datetime
    """When it should be decided, by the target of its class; without one, when it expires."""
    expires_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    comment: str | None


class ApprovalPage(msgspec.Struct, frozen=True):
    """A page of approvals, by class and then oldest due first."""

    items: list[ApprovalAnswer]
    next_page_token: str | None
