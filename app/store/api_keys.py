"""Keys of the API, stored as hashes, each with the tenant that it acts for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.database import Database


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key before it is stored; the secret itself is not in here."""

    key_id: str
    key_sha256: bytes
    tenant_id: str | None
    role: str | None
    scopes: tuple[str, ...]
    subject: str
    expires_at: datetime | None


_COLUMNS = "key_id, tenant_id, role, scopes, subject, created_at, expires_at, revoked_at"

_BY_HASH = text("""
SELECT key_id, tenant_id, scopes, subject FROM api_keys
WHERE key_sha256 = :key_sha256 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
""")
_ADD = text(f"""
INSERT INTO api_keys (key_id, key_sha256, tenant_id, role, scopes, subject, created_at, expires_at)
VALUES (:key_id, :key_sha256, :tenant_id, :role, CAST(:scopes AS text[]), :subject, clock_timestamp(), :expires_at)
ON CONFLICT (key_sha256) DO NOTHING
RETURNING {_COLUMNS}
""")
_REVOKE = text("""
UPDATE api_keys SET revoked_at = COALESCE(revoked_at, clock_timestamp()) WHERE key_id = :key_id
RETURNING key_id, tenant_id
""")
_LIST = text(f"""
SELECT {_COLUMNS} FROM api_keys
WHERE (CAST(:tenant_id AS text) IS NULL OR tenant_id = :tenant_id)
  AND (CAST(:before AS text) IS NULL OR key_id < :before)
ORDER BY key_id DESC LIMIT :limit
""")
_ANY = text("SELECT EXISTS (SELECT 1 FROM api_keys)")


async def find(database: Database, key_sha256: bytes) -> Row[Any] | None:
    """Read the key with this hash, unless it is revoked or expired."""
    rows = await database.execute_hot(_BY_HASH, {"key_sha256": key_sha256})
    return rows[0] if rows else None


async def add(connection: AsyncConnection, key: NewKey) -> Row[Any] | None:
    """Store a key; None when the same secret is stored already."""
    values = {
        "key_id": key.key_id,
        "key_sha256": key.key_sha256,
        "tenant_id": key.tenant_id,
        "role": key.role,
        "scopes": list(key.scopes),
        "subject": key.subject,
        "expires_at": key.expires_at,
    }
    return (await connection.execute(_ADD, values)).one_or_none()


async def revoke(connection: AsyncConnection, key_id: str) -> Row[Any] | None:
    """Revoke a key for good; None when there is no such key."""
    return (await connection.execute(_REVOKE, {"key_id": key_id})).one_or_none()


async def list_keys(
    connection: AsyncConnection, *, tenant_id: str | None, before: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Read keys, newest first."""
    values = {"tenant_id": tenant_id, "before": before, "limit": limit}
    return (await connection.execute(_LIST, values)).fetchall()


async def any_exists(connection: AsyncConnection) -> bool:
    """Say whether a key was ever made."""
    return bool((await connection.execute(_ANY)).scalar_one())
