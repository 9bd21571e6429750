"""Pauses: what must not be released until somebody resumes it, or until a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection


@dataclass(frozen=True, slots=True)
class NewPause:
    """A pause before it is stored; without `until` it lasts until it is removed."""

    pause_id: str
    kind: str
    name: str
    reason: str
    until: datetime | None
    created_by: str


LASTS = "(until IS NULL OR until > clock_timestamp())"
_ACTIVE = text(f"SELECT kind, name, reason FROM pauses WHERE {LASTS} ORDER BY pause_id")
_INSERT = text("""
INSERT INTO pauses (pause_id, kind, name, reason, until, created_by, created_at)
VALUES (:pause_id, :kind, :name, :reason, :until, :created_by, clock_timestamp())
ON CONFLICT (pause_id) DO NOTHING
""")
_GET = text("SELECT * FROM pauses WHERE pause_id = :pause_id")
_PAGE = text(f"""
SELECT * FROM pauses
WHERE {LASTS} AND (CAST(:tenant_id AS text) IS NULL OR (kind = 'tenant' AND name = :tenant_id))
  AND (CAST(:before AS text) IS NULL OR pause_id < :before)
ORDER BY pause_id DESC LIMIT :limit
""")
_DELETE = text("DELETE FROM pauses WHERE pause_id = :pause_id")
_FORGET = text("DELETE FROM pauses WHERE until < clock_timestamp()")
_TENANT = text("SELECT EXISTS (SELECT 1 FROM tenants WHERE tenant_id = :tenant_id)")


async def active(connection: AsyncConnection) -> dict[str, str]:
    """Name what is paused now, as `kind:name`, with the reason that was given last."""
    return {f"{row.kind}:{row.name}": row.reason for row in (await connection.execute(_ACTIVE)).fetchall()}


async def insert(connection: AsyncConnection, pause: NewPause) -> Row[Any]:
    """Store a pause and return its row."""
    await connection.execute(_INSERT, {name: getattr(pause, name) for name in NewPause.__dataclass_fields__})
    return (await connection.execute(_GET, {"pause_id": pause.pause_id})).one()


async def get(connection: AsyncConnection, pause_id: str) -> Row[Any] | None:
    """Read one pause, over or not."""
    return (await connection.execute(_GET, {"pause_id": pause_id})).first()


async def page(
    connection: AsyncConnection, *, tenant_id: str | None, before: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Read the pauses that last, newest first; with `tenant_id` only those of that tenant."""
    values = {"tenant_id": tenant_id, "before": before, "limit": limit}
    return (await connection.execute(_PAGE, values)).fetchall()


async def delete(connection: AsyncConnection, pause_id: str) -> None:
    """End a pause."""
    await connection.execute(_DELETE, {"pause_id": pause_id})


async def forget_over(connection: AsyncConnection) -> int:
    """Remove the pauses whose time is over; returns how many there were."""
    return (await connection.execute(_FORGET)).rowcount


async def has_tenant(connection: AsyncConnection, tenant_id: str) -> bool:
    """Say whether there is such a tenant."""
    return bool((await connection.execute(_TENANT, {"tenant_id": tenant_id})).scalar_one())
