"""One process at a time on a database: an advisory lock that ends with its session."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

_TAKE = "SELECT pg_try_advisory_lock(hashtext('despacho with a broker in its process'))"


@asynccontextmanager
async def alone(database_url: str, *, timeout_seconds: float) -> AsyncIterator[bool]:
    """Take the lock for as long as this lasts; yields whether it was free. Raises what asyncpg and the network raise."""
    connection: asyncpg.Connection = await asyncpg.connect(database_url, timeout=timeout_seconds)
    try:
        yield bool(await connection.fetchval(_TAKE))
    finally:
        await connection.close(timeout=timeout_seconds)
