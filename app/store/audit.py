"""The audit trail: who did what, when and why. Written in the transaction of what it tells of."""

from sqlalchemy import text
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
