"""Tenants, keys and the audit trail as they come in and go out."""

from datetime import datetime
from decimal import Decimal
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


_AMOUNT = r"^[0-9]{1,12}(\.[0-9]{1,6})?$"


class DailyBudget(Body):
    """What a tenant may spend in a UTC day; at least one of money and tokens."""

    cost_usd_per_day: Annotated[str | None, Field(pattern=_AMOUNT, max_length=19, examples=["10.00"])] = None
    tokens_per_day: Annotated[int | None, Field(ge=0, le=10**15)] = None
    retry_margin: Annotated[
        float | None, Field(ge=0, lt=1, allow_inf_nan=False, description="share kept for retries; default: 0.1")
    ] = None

    @model_validator(mode="after")
    def _limits_something(self) -> "DailyBudget":
        if self.cost_usd_per_day is None and self.tokens_per_day is None:
            raise PydanticCustomError("budget_empty", "give cost_usd_per_day, tokens_per_day, or both")
        return self


class TenantOrder(Body):
    """A tenant to make."""

    tenant_id: Annotated[Slug, Field(examples=["acme"])]
    name: Label
    service_class: Label = "standard"
    weight: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False, description="share against other tenants")] = 1.0
    quotas: Quotas | None = None
    budget: DailyBudget | None = None


class TenantQuotas(msgspec.Struct, frozen=True):
    """Limits of a tenant; null means none."""

    submit_rate_per_second: float | None
    submit_burst: int | None
    max_open_tasks: int | None


class BudgetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A budget and how it stands today (UTC). Amounts are exact decimals; what is not limited is null."""

    on: str
    cost_usd_per_day: Decimal | None
    tokens_per_day: int | None
    retry_margin: float
    spent_cost_usd: Decimal
    spent_tokens: int
    remaining_cost_usd: Decimal | None
    remaining_tokens: int | None
    share_spent: float
    opens_at: datetime


class BudgetPage(msgspec.Struct, frozen=True):
    """Budgets: those of the policy first, then those of tenants by id."""

    items: list[BudgetAnswer]
    next_page_token: str | None


class TenantBudget(msgspec.Struct, frozen=True):
    """What a tenant may spend in a UTC day; null means no limit."""

    cost_usd_per_day: Decimal | None
    tokens_per_day: int | None
    retry_margin: float


class TenantAnswer(msgspec.Struct, frozen=True):
    """A tenant."""

    tenant_id: str
    name: str
    service_class: str
    weight: float
    quotas: TenantQuotas
    budget: TenantBudget | None
    created_at: datetime


class TenantStanding(TenantAnswer, frozen=True, kw_only=True):
    """A tenant with every budget that holds for all of its tasks, and how it stands."""

    budgets: list[BudgetAnswer]


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
