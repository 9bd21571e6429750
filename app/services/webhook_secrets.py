"""What signs a tenant's events: making secrets, letting them overlap, and retiring them.

A secret is shown once, when it is made. It is stored as it is, since signing needs it; whatever begins with `whsec_` is
kept out of every log (`telemetry/redaction.py`). Until somebody makes one, a tenant's events are signed with one that
nobody was shown: every event is signed from the first on, and whoever wants to check asks for a secret to be made.
"""

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.ids import mint
from app.outbound.signatures import secret_of
from app.runtime import Runtime
from app.services.actors import Actor, AuditEntry, check_seen
from app.services.errors import NotFound
from app.store import webhook_secrets as store

_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class MintedSecret:
    """A stored secret, which is shown here and never again."""

    secret: str
    row: Row[Any]


async def create(runtime: Runtime, actor: Actor, tenant_id: str, *, overlap_seconds: float) -> MintedSecret:
    """Make a secret for a tenant that exists; those before it sign along for `overlap_seconds` more."""
    secret = _new_secret()
    webhook_secret_id = mint("whsecret")
    entry = AuditEntry(actor, "webhook_secret.created")

    async def once(connection: AsyncConnection) -> Row[Any]:
        row = await store.add(
            connection,
            webhook_secret_id=webhook_secret_id,
            tenant_id=tenant_id,
            secret=secret,
            created_by=actor.subject,
            overlap_seconds=overlap_seconds,
        )
        detail = json.dumps({"overlap_seconds": overlap_seconds})
        await entry.write(connection, target=webhook_secret_id, tenant_id=tenant_id, detail=detail)
        return row

    # No second try after a lost COMMIT answer: its own secret would stand in its way.
    return MintedSecret(secret, await runtime.database.run(once, retry_for_seconds=0.0))


async def page(runtime: Runtime, *, tenant_id: str | None, before: str | None, limit: int) -> Sequence[Row[Any]]:
    """Read what is known of secrets, never the secrets, newest first."""
    return await runtime.database.run(
        lambda connection: store.page(connection, tenant_id=tenant_id, before=before, limit=limit)
    )


async def retire(runtime: Runtime, actor: Actor, webhook_secret_id: str) -> None:
    """Have a secret sign nothing any more; doing it again changes nothing. Raises NotFound."""
    entry = AuditEntry(actor, "webhook_secret.retired")

    async def once(connection: AsyncConnection) -> None:
        row = await store.get(connection, webhook_secret_id)
        if row is None:
            raise NotFound
        check_seen(actor, webhook_secret_id, row.tenant_id)
        await store.retire(connection, webhook_secret_id)
        await entry.write(connection, target=webhook_secret_id, tenant_id=row.tenant_id)

    await runtime.database.run(once)


async def signing_secrets(runtime: Runtime, tenant_ids: Collection[str]) -> dict[str, list[str]]:
    """Give the secrets that sign the events of these tenants now, at least one for each."""
    database = runtime.database
    found = await store.valid(database, list(tenant_ids))
    missing = sorted(set(tenant_ids) - found.keys())
    for tenant_id in missing:
        await store.ensure(database, webhook_secret_id=mint("whsecret"), tenant_id=tenant_id, secret=_new_secret())
    return found | (await store.valid(database, missing) if missing else {})


def _new_secret() -> str:
    return secret_of(os.urandom(_KEY_BYTES))
