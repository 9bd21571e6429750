"""Classes given by hand, as they come in and go out."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from app.api.schemas.common import Body, Instant, Label, Reason


class Reclassification(Body):
    """Another class for a task, why, and until when: the policy's `override_maximum` away at most."""

    priority_class: Annotated[Label, Field(examples=["critical"])]
    reason: Annotated[Reason, Field(examples=["the customer is on the phone"])]
    expires_at: Instant


class OverrideAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A class that somebody gave a task. The class that the rules gave, `derived_class`, comes back at the end."""

    override_id: str
    task_id: str
    type: str
    tenant_id: str
    priority_class: str
    from_class: str
    derived_class: str
    derived_reason_code: str
    reason: str
    created_by: str
    created_at: datetime
    expires_at: datetime
    state: Literal["lasting", "expired", "replaced", "task_ended"]
    ended_at: datetime | None


class OverridePage(msgspec.Struct, frozen=True):
    """A page of classes given by hand, newest first."""

    items: list[OverrideAnswer]
    next_page_token: str | None
