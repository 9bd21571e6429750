"""Tenants, keys and the audit trail as they come in and go out."""

from datetime import datetime
from typing import Annotated

import msgspec
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from app.api.schemas.common import Body, Instant, Json, Label, Slug
from app.domain.scopes import Role, Scope

Rate = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]


class Quotas(Body):
    """Limits of a tenant; what is left out is not limited."""

    submit_rate_per_second: Rate | None = None
    submit_burst: Annotated[int | None, Field(ge=1, le=1_000_000, description="default: one second's worth")] = None
    max_open_tasks: Annotated[int | None, Field(ge=0, le=1_000_000_000)] = None


class TenantOrder(Body):
    """A tenant to make."""

    tenant_id: Annotated[Slug, Field(examples=["acme"])]
    name: Label
    service_class: Label = "standard"
    weight: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False, description="share against other tenants")] = 1.0
    quotas: Quotas | None = None


class TenantQuotas(msgspec.Struct, frozen=True):
    """Limits of a tenant; null means none."""

    submit_rate_per_second: float | None
    submit_burst: int | None
    max_open_tasks: int | None


class TenantAnswer(msgspec.Struct, frozen=True):
    """A tenant."""

    tenant_id: str
    name: str
    service_class: str
    weight: float
    quotas: TenantQuotas
    created_at: datetime


class TenantPage(msgspec.Struct, frozen=True):
    """A page of tenants, newest first."""

    items: list[TenantAnswer]
    next_page_token: str | None


class KeyRequest(Body):
    """A key to make: for a tenant, or for the platform with `tenant_id: null`; by role, by scopes, or both."""

    tenant_id: Slug | None
    # Strict mode takes no text for an enumeration's member, but JSON has nothing else.
    role: Annotated[Role | None, Field(strict=False)] = None
    scopes: Annotated[list[Annotated[Scope, Field(strict=False)]] | None, Field(min_length=1, max_length=50)] = None
    subject: Annotated[Label | None, Field(description="the person or program behind the key")] = None
    expires_at: Instant | None = None

    @model_validator(mode="after")
    def _says_what_it_may(self) -> "KeyRequest":
        if self.role is None and not self.scopes:
            raise PydanticCustomError("rights_missing", "name a role, or scopes, or both")
        return self


class KeyAnswer(msgspec.Struct, frozen=True):
    """A key without its secret."""

    key_id: str
    tenant_id: str | None
    role: str | None
    scopes: list[str]
    subject: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKeyAnswer(KeyAnswer, frozen=True, kw_only=True):
    """A key with its secret `key`, which is shown this once."""

    key: str


class KeyPage(msgspec.Struct, frozen=True):
    """A page of keys, newest first."""

    items: list[KeyAnswer]
    next_page_token: str | None


class AuditAnswer(msgspec.Struct, frozen=True):
    """Who did what, when and why."""

    audit_id: str
    at: datetime
    key_id: str | None
    subject: str
    tenant_id: str | None
    action: str
    target: str | None
    reason: str | None
    detail: Json


class AuditPage(msgspec.Struct, frozen=True):
    """A page of the audit trail, newest first."""

    items: list[AuditAnswer]
    next_page_token: str | None
