"""Webhooks: the events that receivers are told of (`callback_url`), and the secrets that sign them."""

from datetime import datetime
from typing import Generic

import msgspec

from app.client.bound import Bound, S, call, streaming
from app.client.request import Request, Several, Stream, delete, get, given, pages, part, post


class WebhookTry(msgspec.Struct, frozen=True, kw_only=True):
    """One try to deliver an event: the answered status, or why there was none."""

    number: int
    started_at: datetime | None = None
    seconds: float | None = None
    status_code: int | None = None
    error_type: str | None = None


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """An event for the receiver of a task; `history` has the tries, the newest first, and is not in lists."""

    webhook_id: str
    state: str
    task_id: str | None = None
    tenant_id: str | None = None
    event: str | None = None
    host: str | None = None
    priority_class: str | None = None
    created_at: datetime | None = None
    tries: int = 0
    next_try_at: datetime | None = None
    last_try_at: datetime | None = None
    last_status_code: int | None = None
    last_error_type: str | None = None
    settled_at: datetime | None = None
    history: tuple[WebhookTry, ...] = ()


class WebhookSecret(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a signing secret."""

    webhook_secret_id: str
    tenant_id: str | None = None
    created_by: str | None = None
    created_at: datetime | None = None
    valid_until: datetime | None = None


class NewWebhookSecret(WebhookSecret, frozen=True, kw_only=True):
    """A new signing secret, shown this once and left out of its repr."""

    secret: str

    def __repr__(self) -> str:
        """Name it, without the secret."""
        return f"NewWebhookSecret(webhook_secret_id={self.webhook_secret_id!r}, secret=…)"


class Webhooks(Bound[S], Generic[S]):
    """`client.webhooks`."""

    @streaming
    def list(
        self, *, state: Several = None, event: Several = None, task_id: Several = None, tenant_id: Several = None,
        at_most: int | None = None,
    ) -> Stream[Webhook]:  # fmt: skip
        """Iterate over events, newest first."""
        parameters = {"state": state, "event": event, "task_id": task_id, "tenant_id": tenant_id}
        return pages("/v1/webhooks", Webhook, parameters, at_most=at_most)

    @call
    def get(self, webhook_id: str) -> Request[Webhook]:
        """Read one, with its tries."""
        return get(f"/v1/webhooks/{part(webhook_id)}", Webhook)

    @call
    def redeliver(self, webhook_id: str) -> Request[Webhook]:
        """Have an event delivered again."""
        return post(f"/v1/webhooks/{part(webhook_id)}/redeliver", Webhook, {})


class WebhookSecrets(Bound[S], Generic[S]):
    """`client.webhook_secrets`."""

    @call
    def create(
        self, tenant_id: str | None = None, *, overlap_seconds: float | None = None
    ) -> Request[NewWebhookSecret]:
        """Make a secret; those before it sign along for `overlap_seconds`."""
        body = given(tenant_id=tenant_id, overlap_seconds=overlap_seconds)
        return post("/v1/webhook-secrets", NewWebhookSecret, body)

    @streaming
    def list(self, *, tenant_id: str | None = None, at_most: int | None = None) -> Stream[WebhookSecret]:
        """Iterate over secrets, without what they are, newest first."""
        return pages("/v1/webhook-secrets", WebhookSecret, {"tenant_id": tenant_id}, at_most=at_most)

    @call
    def revoke(self, webhook_secret_id: str) -> Request[None]:
        """Have a secret sign nothing any more."""
        return delete(f"/v1/webhook-secrets/{part(webhook_secret_id)}")
