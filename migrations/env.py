"""Alembic's environment: the target is the store's metadata; the URL comes from the settings or from the caller.

Every migration waits for a lock only for `lock_timeout`, so that a waiting ALTER never blocks the readers behind it.
"""

import asyncio

from alembic import context
from sqlalchemy import Connection, pool, text
from sqlalchemy.ext.asyncio import create_async_engine

from app.settings import load_settings
from app.store.database import async_url
from app.store.schema import metadata


def _url() -> str:
    given = context.config.attributes.get("url")
    if given:
        return async_url(str(given))
    settings = load_settings()
    if settings.database_url is None:
        raise SystemExit("DESPACHO_DATABASE_URL is not set: it should be postgresql://user:password@host:5432/name")
    return async_url(settings.database_url.get_secret_value())


def _run(connection: Connection) -> None:
    timeout_ms = int(load_settings().migration_lock_timeout_seconds * 1000)
    connection.execute(text(f"SET lock_timeout = {timeout_ms}"))
    connection.execute(text("SET statement_timeout = 0"))
    connection.commit()
    context.configure(
        connection=connection, target_metadata=metadata, transaction_per_migration=True, compare_server_default=False
    )
    with context.begin_transaction():
        context.run_migrations()


async def _online() -> None:
    engine = create_async_engine(_url(), poolclass=pool.NullPool)
    async with engine.connect() as connection:
        await connection.run_sync(_run)
    await engine.dispose()


asyncio.run(_online())
