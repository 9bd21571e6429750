"""The schema's revision, as Alembic keeps it in the database."""

from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.database import Database, sqlstate

_UNDEFINED_TABLE = "42P01"
_REVISION = text("SELECT version_num FROM alembic_version")


async def current(database: Database, *, retry_for_seconds: float) -> str | None:
    """Return the revision that the database is at; None when it was never migrated. Raises DatabaseUnavailable."""

    async def read(connection: AsyncConnection) -> str | None:
        found: str | None = (await connection.execute(_REVISION)).scalar_one_or_none()
        return found

    try:
        return await database.run(read, retry_for_seconds=retry_for_seconds)
    except ProgrammingError as error:
        if sqlstate(error) == _UNDEFINED_TABLE:
            return None
        raise
