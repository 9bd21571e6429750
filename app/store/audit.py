"""The audit trail: who did what, when and why. Written in the transaction of what it tells of."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

_RECORD = text("""
INSERT INTO audit (audit_id, at, key_id, subject, tenant_id, action, target, reason, detail)
VALUES (:audit_id, clock_timestamp(), :key_id, :subject, :tenant_id, :action, :target, :reason, :detail)
ON CONFLICT (audit_id) DO NOTHING
""")


async def record(
    connection: AsyncConnection,
    audit_id: str,
    *,
    key_id: str | None,
    subject: str,
    tenant_id: str | None,
    action: str,
    target: str | None = None,
    reason: str | None = None,
    detail: str | None = None,
) -> None:
    """Record one action. `detail` is JSON text; a repeated transaction with the same `audit_id` records it once."""
    await connection.execute(
        _RECORD,
        {
            "audit_id": audit_id,
            "key_id": key_id,
            "subject": subject,
            "tenant_id": tenant_id,
            "action": action,
            "target": target,
            "reason": reason,
            "detail": detail,
        },
    )


_IS_RECORDED = text("SELECT EXISTS (SELECT 1 FROM audit WHERE audit_id = :audit_id)")


async def is_recorded(connection: AsyncConnection, audit_id: str) -> bool:
    """Say whether this very action was recorded: by an earlier try whose answer was lost."""
    return bool((await connection.execute(_IS_RECORDED, {"audit_id": audit_id})).scalar_one())


_LIST = text("""
SELECT audit_id, at, key_id, subject, tenant_id, action, target, reason, detail FROM audit
WHERE (CAST(:tenant_id AS text) IS NULL OR tenant_id = :tenant_id)
  AND (CAST(:actions AS text[]) IS NULL OR action = ANY(CAST(:actions AS text[])))
  AND (CAST(:subjects AS text[]) IS NULL OR subject = ANY(CAST(:subjects AS text[])))
  AND (CAST(:target AS text) IS NULL OR target = :target)
  AND (CAST(:since AS timestamptz) IS NULL OR at >= :since)
  AND (CAST(:until AS timestamptz) IS NULL OR at < :until)
  AND (CAST(:before AS text) IS NULL OR audit_id < :before)
ORDER BY audit_id DESC LIMIT :limit
""")


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries; None means all."""

    tenant_id: str | None = None
    actions: tuple[str, ...] | None = None
    subjects: tuple[str, ...] | None = None
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None


async def list_entries(
    connection: AsyncConnection, which: AuditFilter, *, before: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Read entries, newest first."""
    values = {
        "tenant_id": which.tenant_id,
        "actions": list(which.actions) if which.actions else None,
        "subjects": list(which.subjects) if which.subjects else None,
        "target": which.target,
        "since": which.since,
        "until": which.until,
        "before": before,
        "limit": limit,
    }
    return (await connection.execute(_LIST, values)).fetchall()
