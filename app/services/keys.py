"""Keys of the API: making, finding and revoking them. The secret is shown once and only its hash is kept."""

import hashlib
import json
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.scopes import ROLES, Role, Scope
from app.ids import mint
from app.services.actors import AuditEntry
from app.services.callers import Caller
from app.services.errors import Invalid, NotFound
from app.services.ttl_cache import TtlCache
from app.store import api_keys, schedules, tenants
from app.store.database import Database

KEY_PREFIX = "dsp_"
_KNOWN_FOR_SECONDS = 1.0


def mint_secret() -> str:
    """Make a new secret of 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> bytes:
    """Hash a secret for the table; it is random, so a fast hash is enough."""
    return hashlib.sha256(secret.encode()).digest()


class KeyRing:
    """Finds the caller behind a key. A revoked key works in other processes for one more second at most."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache: TtlCache[bytes, Caller] = TtlCache(self._find, seconds=_KNOWN_FOR_SECONDS, most=10_000)

    async def caller(self, secret: str) -> Caller | None:
        """Return who holds `secret`; None when nobody does (any more). Raises DatabaseUnavailable."""
        return await self._cache.get(hash_secret(secret))

    async def _find(self, digest: bytes) -> Caller | None:
        row = await api_keys.find(self._database, digest)
        return None if row is None else Caller(row.key_id, row.tenant_id, frozenset(row.scopes), row.subject)

    def forget(self) -> None:
        """Look every key up again: one was revoked here."""
        self._cache.forget()


@dataclass(frozen=True, slots=True)
class KeyOrder:
    """What a new key shall be. Scopes are those of the role and those named, together."""

    tenant_id: str | None
    role: Role | None
    scopes: Collection[Scope]
    subject: str | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class MintedKey:
    """A stored key with its secret, which exists here and nowhere else."""

    secret: str
    row: Row[Any]


async def store_key(connection: AsyncConnection, order: KeyOrder, secret: str) -> Row[Any] | None:
    """Store a key for `secret`; None when that secret is stored already."""
    key_id = mint("key")
    scopes = set(order.scopes) | (ROLES[order.role] if order.role else set())
    return await api_keys.add(
        connection,
        api_keys.NewKey(
            key_id=key_id,
            key_sha256=hash_secret(secret),
            tenant_id=order.tenant_id,
            role=order.role,
            scopes=tuple(sorted(scopes)),
            subject=order.subject or key_id,
            expires_at=order.expires_at,
        ),
    )


async def create_key(database: Database, caller: Caller, order: KeyOrder) -> MintedKey:
    """Make a key and audit it. Raises Invalid when there is no such tenant, or the key would have expired already."""
    secret = mint_secret()
    entry = AuditEntry(caller, "key.created")

    async def work(connection: AsyncConnection) -> Row[Any]:
        if order.expires_at is not None and order.expires_at <= await schedules.now(connection):
            raise Invalid([("#/expires_at", "has passed already: it should lie ahead")])
        row = await store_key(connection, order, secret)
        if row is None:
            raise LookupError("a new random secret was stored already: this process has a broken source of chance")
        detail = json.dumps({"role": order.role, "scopes": list(row.scopes), "subject": row.subject})
        await entry.write(connection, target=row.key_id, tenant_id=order.tenant_id, detail=detail)
        return row

    if order.tenant_id is not None and await tenants.get(database, order.tenant_id) is None:
        raise Invalid([("#/tenant_id", "there is no such tenant: POST /v1/tenants makes one")])
    # A lost COMMIT answer must not be tried again with the same secret: there is no second try.
    return MintedKey(secret, await database.run(work, retry_for_seconds=0.0))


async def revoke_key(database: Database, ring: KeyRing, caller: Caller, key_id: str) -> None:
    """Revoke a key for good and audit it; revoking it again changes nothing. Raises NotFound."""
    entry = AuditEntry(caller, "key.revoked")

    async def work(connection: AsyncConnection) -> bool:
        row = await api_keys.revoke(connection, key_id)
        if row is not None:
            await entry.write(connection, target=row.key_id, tenant_id=row.tenant_id)
        return row is not None

    if not await database.run(work):
        raise NotFound
    ring.forget()


async def list_keys(database: Database, *, tenant_id: str | None, before: str | None, limit: int) -> Sequence[Row[Any]]:
    """Read keys (never their secrets), newest first."""
    return await database.run(
        lambda connection: api_keys.list_keys(connection, tenant_id=tenant_id, before=before, limit=limit)
    )
