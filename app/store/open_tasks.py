"""How many tasks a tenant has open, counted under a lock of the tenant so that racing requests cannot pass each other."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('despacho quota ' || :tenant_id, 0))")
_COUNT_OPEN = text("""
SELECT (SELECT count(*) FROM (SELECT 1 FROM lanes l JOIN ready r ON r.lane_id = l.lane_id WHERE l.tenant_id = :tenant_id
                              LIMIT :most) a)
     + (SELECT count(*) FROM (SELECT 1 FROM delayed WHERE tenant_id = :tenant_id LIMIT :most) b)
     + (SELECT count(*) FROM (SELECT 1 FROM flights WHERE tenant_id = :tenant_id LIMIT :most) c) AS open
""")


async def lock(connection: AsyncConnection, tenant_id: str) -> None:
    """Have the tenant's open tasks to ourselves until the transaction ends. Raises LockTimeout (through `run`)."""
    await connection.execute(_LOCK, {"tenant_id": tenant_id})


async def count(connection: AsyncConnection, tenant_id: str, *, at_most: int) -> int:
    """Count what waits and runs, no further than to `at_most` in each place."""
    return int((await connection.execute(_COUNT_OPEN, {"tenant_id": tenant_id, "most": at_most})).scalar_one())
