"""Effects as they come in and go out."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError
from sqlalchemy import Row

from app.api.schemas.common import Body, Reason
from app.domain.effects import MAXIMUM_EXTERNAL_ID, EffectState, idempotency_key_of


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a task did outside, or may have done.

    `reserved`: its call may be in the air; `confirmed`: it happened, as `external_id`; `not_sent`: it did not happen,
    and may be tried again; `in_doubt`: nobody can tell, and a person must. `idempotency_key` is what the outside system
    was given; `calls` how often it was called at most.
    """

    effect_id: str
    tenant_id: str
    type: str
    key: str
    idempotency_key: str
    state: EffectState
    external_id: str | None
    task_id: str
    task_type: str
    attempt: int
    calls: int
    first_reserved_at: datetime
    reserved_at: datetime
    call_until: datetime
    updated_at: datetime
    in_doubt_at: datetime | None
    resolved_at: datetime | None
    resolved_by: str | None
    reason: str | None


class EffectPage(msgspec.Struct, frozen=True):
    """A page of effects, newest first."""

    items: list[Effect]
    next_page_token: str | None


ExternalId = Annotated[
    str, StringConstraints(min_length=1, max_length=MAXIMUM_EXTERNAL_ID, pattern=r"^[^\x00-\x1f\x7f]+$")
]


class EffectResolution(Body):
    """What a person found out about an effect in doubt."""

    outcome: Literal["confirmed", "not_sent"]
    external_id: Annotated[ExternalId | None, Field(description="the id it has outside; only with `confirmed`")] = None
    reason: Reason

    @model_validator(mode="after")
    def _id_of_what_happened(self) -> "EffectResolution":
        if self.outcome == "not_sent" and self.external_id is not None:
            raise PydanticCustomError("external_id", "give external_id only with the outcome confirmed")
        return self


def effect_of(row: Row[Any]) -> Effect:
    """Show a row."""
    return Effect(
        effect_id=row.effect_id,
        tenant_id=row.tenant_id,
        type=row.effect_type,
        key=row.key,
        idempotency_key=idempotency_key_of(row.tenant_id, row.key),
        state=EffectState(row.state),
        external_id=row.external_id,
        task_id=row.task_id,
        task_type=row.task_type,
        attempt=row.attempt,
        calls=len(row.tokens),
        first_reserved_at=row.first_reserved_at,
        reserved_at=row.reserved_at,
        call_until=row.call_until,
        updated_at=row.updated_at,
        in_doubt_at=row.in_doubt_at,
        resolved_at=row.resolved_at,
        resolved_by=row.resolved_by,
        reason=row.reason,
    )
