"""How many tasks a tenant has open, counted under a lock of the tenant so that racing requests cannot pass each other."""

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.database import DatabaseUnavailable, sqlstate

_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('despacho quota ' || :tenant_id, 0))")
_COUNT_OPEN = text("""
SELECT (SELECT count(*) FROM (SELECT 1 FROM lanes l JOIN ready r ON r.lane_id = l.lane_id WHERE l.tenant_id = :tenant_id
                              LIMIT :most) a)
     + (SELECT count(*) FROM (SELECT 1 FROM delayed WHERE tenant_id = :tenant_id LIMIT :most) b)
     + (SELECT count(*) FROM (SELECT 1 FROM suspended WHERE tenant_id = :tenant_id LIMIT :most) d)
     + (SELECT count(*) FROM (SELECT 1 FROM flights WHERE tenant_id = :tenant_id LIMIT :most) c) AS open
""")


async def lock(connection: AsyncConnection, tenant_id: str) -> None:
    """Have the tenant's open tasks to ourselves until the transaction ends.

    Raises DatabaseUnavailable when somebody else holds them for long: that is the fault of no task.
    """
    try:
        await connection.execute(_LOCK, {"tenant_id": tenant_id})
    except DBAPIError as error:
        if sqlstate(error) == "55P03":
            raise DatabaseUnavailable("the tenant's open tasks are being counted elsewhere") from error
        raise


async def count(connection: AsyncConnection, tenant_id: str, *, at_most: int) -> int:
    """Count what waits and runs, no further than to `at_most` in each place."""
    return int((await connection.execute(_COUNT_OPEN, {"tenant_id": tenant_id, "most": at_most})).scalar_one())
