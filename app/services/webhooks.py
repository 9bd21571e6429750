"""Events for receivers: checking where they may go, reading how their delivery stands, and sending one again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.addresses import AddressForbidden, check_url, parse_allowed
from app.runtime import Runtime
from app.services.actors import Actor, AuditEntry, check_seen
from app.services.errors import Conflict, FieldError, NotFound
from app.services.queries import Page, cut
from app.store import webhooks as store
from app.store.webhooks import WebhookFilter

MOST_URL_CHARACTERS = 2000
MOST_TRIES_SHOWN = 200


@dataclass(frozen=True, slots=True)
class WebhookStory:
    """One event with its tries, the newest first."""

    row: Row[Any]
    tries: Sequence[Row[Any]]


def callback_errors(runtime: Runtime, url: str) -> list[FieldError]:
    """Say what keeps a `callback_url` from being called, as far as its text shows; the URL is never repeated."""
    if len(url) > MOST_URL_CHARACTERS:
        return [FieldError("#/callback_url", f"should have at most {MOST_URL_CHARACTERS} characters")]
    try:
        check_url(url, parse_allowed(runtime.settings.outbound.allowed_networks))
    except AddressForbidden as error:
        return [FieldError("#/callback_url", error.message)]
    return []


async def page(runtime: Runtime, which: WebhookFilter, *, before: str | None, size: int) -> Page:
    """Read one page of events, newest first."""

    async def once(connection: AsyncConnection) -> Sequence[Row[Any]]:
        return await store.page(connection, which, before=before, limit=size + 1)

    return cut(await runtime.database.run(once), size, "webhook_id")


async def get(runtime: Runtime, actor: Actor, webhook_id: str) -> WebhookStory:
    """Read one event with its tries. Raises NotFound."""

    async def once(connection: AsyncConnection) -> WebhookStory:
        row = await _seen(connection, actor, webhook_id)
        return WebhookStory(row, await store.tries_of(connection, webhook_id, MOST_TRIES_SHOWN))

    return await runtime.database.run(once)


async def redeliver(runtime: Runtime, actor: Actor, webhook_id: str) -> Row[Any]:
    """Have an event sent at once, under the same id, with a fresh number of tries; delivered ones as well.

    Raises NotFound, or Conflict (`webhook_sending`) while a try is on its way.
    """
    entry = AuditEntry(actor, "webhook.redelivered")

    async def once(connection: AsyncConnection) -> Row[Any]:
        row = await _seen(connection, actor, webhook_id)
        if await entry.is_written(connection):
            return row
        moved = await store.redeliver(connection, webhook_id, actor=actor.subject)
        if moved is None:
            raise Conflict("webhook_sending", "A try to deliver it is on its way.", task_id=row.task_id)
        await entry.write(connection, target=webhook_id, tenant_id=row.tenant_id)
        return moved

    return await runtime.database.run(once)


async def _seen(connection: AsyncConnection, actor: Actor, webhook_id: str) -> Row[Any]:
    row = await store.get(connection, webhook_id)
    if row is None:
        raise NotFound
    check_seen(actor, webhook_id, row.tenant_id)
    return row
