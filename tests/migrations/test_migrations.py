"""The migrations: up from nothing, in step with the tables of the code, down to nothing and up again."""

import asyncio

import asyncpg

from tests.support.postgres import PrivatePostgres, migrate

_RELATIONS = """
    SELECT count(*) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'S', 'v') AND relname <> 'alembic_version'
"""


async def _relations(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval(_RELATIONS))
    finally:
        await connection.close()


async def test_up_check_down_and_up_again(postgres: PrivatePostgres) -> None:
    url = await postgres.create_database(migrated=False)

    await asyncio.to_thread(migrate, url, "upgrade", "head")
    first = await _relations(url)
    await asyncio.to_thread(migrate, url, "check")
    await asyncio.to_thread(migrate, url, "downgrade", "base")
    left = await _relations(url)
    await asyncio.to_thread(migrate, url, "upgrade", "head")
    again = await _relations(url)

    assert first > 0
    assert (left, again) == (0, first)
    await postgres.drop_database(url)
