"""Events for receivers, and what signs them, as they come in and go out."""

from datetime import datetime
from typing import Annotated

import msgspec
from pydantic import Field

from app.api.schemas.common import Body, Label
from app.domain.webhooks import WebhookState


class WebhookTry(msgspec.Struct, frozen=True):
    """One try to deliver an event: the answered status, or why there was none."""

    number: int
    started_at: datetime
    seconds: float
    status_code: int | None
    error_type: str | None


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """An event for the receiver of a task; `next_try_at` is null unless it waits."""

    webhook_id: str
    task_id: str
    tenant_id: str
    event: str
    state: WebhookState
    host: str
    priority_class: str
    created_at: datetime
    tries: int
    next_try_at: datetime | None
    last_try_at: datetime | None
    last_status_code: int | None
    last_error_type: str | None
    settled_at: datetime | None
    history: list[WebhookTry] | msgspec.UnsetType = msgspec.UNSET
    """The tries, the newest first; not in lists."""


class WebhookPage(msgspec.Struct, frozen=True):
    """A page of events, newest first."""

    items: list[Webhook]
    next_page_token: str | None


class WebhookSecretOrder(Body):
    """A signing secret to make."""

    tenant_id: Annotated[Label | None, Field(description="platform keys only: whose; without it, `default`")] = None
    overlap_seconds: Annotated[
        float, Field(ge=0, le=2_592_000, allow_inf_nan=False, description="how long those before it sign along")
    ] = 86_400.0


class WebhookSecret(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a signing secret; `created_by` is null for one that the service made and nobody was shown."""

    webhook_secret_id: str
    tenant_id: str
    created_by: str | None
    created_at: datetime
    valid_until: datetime | None


class NewWebhookSecret(WebhookSecret, frozen=True, kw_only=True):
    """A new signing secret, shown this once: `whsec_` and base64, as Standard Webhooks has it."""

    secret: str


class WebhookSecretPage(msgspec.Struct, frozen=True):
    """A page of signing secrets, newest first."""

    items: list[WebhookSecret]
    next_page_token: str | None
