"""What signs a tenant's events. The secret itself is kept, since a signature needs it; no list ever reads it."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.database import Database

MOST_VALID = 5
_SHOWN = "webhook_secret_id, tenant_id, created_by, created_at, valid_until"
_LASTS = "(valid_until IS NULL OR valid_until > clock_timestamp())"

# What came before stays valid for a while; what nobody was ever shown has no receiver that knows it.
_ADD = text(f"""
WITH before AS (
    UPDATE webhook_secrets SET valid_until = LEAST(valid_until, clock_timestamp()
        + CASE WHEN created_by IS NULL THEN 0 ELSE CAST(:overlap_seconds AS float8) END * interval '1 second')
    WHERE tenant_id = :tenant_id AND {_LASTS} AND webhook_secret_id <> :webhook_secret_id
)
INSERT INTO webhook_secrets (webhook_secret_id, tenant_id, secret, created_by, created_at)
VALUES (:webhook_secret_id, :tenant_id, :secret, :created_by, clock_timestamp())
RETURNING {_SHOWN}
""")
_ENSURE = text(f"""
INSERT INTO webhook_secrets (webhook_secret_id, tenant_id, secret, created_at)
SELECT CAST(:webhook_secret_id AS text), CAST(:tenant_id AS text), CAST(:secret AS text), clock_timestamp()
WHERE NOT EXISTS (SELECT 1 FROM webhook_secrets WHERE tenant_id = :tenant_id AND {_LASTS})
""")
_VALID = text(f"""
SELECT tenant_id, secret FROM webhook_secrets WHERE tenant_id = ANY(CAST(:tenant_ids AS text[])) AND {_LASTS}
ORDER BY webhook_secret_id DESC
""")
_PAGE = text(f"""
SELECT {_SHOWN} FROM webhook_secrets
WHERE (CAST(:tenant_id AS text) IS NULL OR tenant_id = :tenant_id)
  AND (CAST(:before AS text) IS NULL OR webhook_secret_id < :before)
ORDER BY webhook_secret_id DESC LIMIT :limit
""")
_GET = text(f"SELECT {_SHOWN} FROM webhook_secrets WHERE webhook_secret_id = :webhook_secret_id")
_RETIRE = text("""
UPDATE webhook_secrets SET valid_until = LEAST(valid_until, clock_timestamp()) WHERE webhook_secret_id = :webhook_secret_id
""")
_FORGET = text("DELETE FROM webhook_secrets WHERE valid_until < clock_timestamp() - interval '30 days'")


async def add(
    connection: AsyncConnection,
    *,
    webhook_secret_id: str,
    tenant_id: str,
    secret: str,
    created_by: str,
    overlap_seconds: float,
) -> Row[Any]:
    """Store a secret; those before it sign along for `overlap_seconds` more. Returns the row without the secret."""
    values = {
        "webhook_secret_id": webhook_secret_id,
        "tenant_id": tenant_id,
        "secret": secret,
        "created_by": created_by,
        "overlap_seconds": overlap_seconds,
    }
    return (await connection.execute(_ADD, values)).one()


async def ensure(database: Database, *, webhook_secret_id: str, tenant_id: str, secret: str) -> None:
    """Store a secret that nobody was shown, unless the tenant has a valid one."""
    values = {"webhook_secret_id": webhook_secret_id, "tenant_id": tenant_id, "secret": secret}
    await database.execute_hot(_ENSURE, values)


async def valid(database: Database, tenant_ids: Sequence[str]) -> dict[str, list[str]]:
    """Read the valid secrets of tenants, the newest first; tenants without one are left out."""
    found: dict[str, list[str]] = {}
    for row in await database.execute_hot(_VALID, {"tenant_ids": list(tenant_ids)}):
        secrets = found.setdefault(row.tenant_id, [])
        if len(secrets) < MOST_VALID:
            secrets.append(row.secret)
    return found


async def page(
    connection: AsyncConnection, *, tenant_id: str | None, before: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Read what is known of secrets, never the secrets, newest first."""
    values = {"tenant_id": tenant_id, "before": before, "limit": limit}
    return (await connection.execute(_PAGE, values)).fetchall()


async def get(connection: AsyncConnection, webhook_secret_id: str) -> Row[Any] | None:
    """Read what is known of one secret."""
    return (await connection.execute(_GET, {"webhook_secret_id": webhook_secret_id})).first()


async def retire(connection: AsyncConnection, webhook_secret_id: str) -> None:
    """Have a secret sign nothing any more."""
    await connection.execute(_RETIRE, {"webhook_secret_id": webhook_secret_id})


async def forget_over(connection: AsyncConnection) -> int:
    """Remove secrets that have signed nothing for 30 days."""
    return (await connection.execute(_FORGET)).rowcount
