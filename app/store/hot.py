"""The hot path's way to the database: self-contained statements on bare asyncpg connections, in autocommit.

SQLAlchemy's execution costs 240 µs of Python a statement here (pool check-out, compilation cache, greenlets), asyncpg's
own 40 µs; quiet tasks pay it seven times one after the other, busy batches once each. The statements are written like
all others (`text`, named parameters) and compiled once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.sql.elements import TextClause

from app.settings import DatabaseSettings

_DIALECT = PGDialect_asyncpg()  # type: ignore[no-untyped-call]

# Plans are pinned to primary-key lookups: with estimates from a moment ago the planner at times scans a whole table for
# fifty ids. A scan that must be all the same looks so dear then that workers are started for it, 12 ms for a table of
# two rows: hence no parallel plans either.
_PINS = {
    "max_parallel_workers_per_gather": "0",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "jit": "off",
    "lock_timeout": "5000",
    "plan_cache_mode": "force_generic_plan",
}


class HotRow(asyncpg.Record):  # type: ignore[misc]  # the driver ships no types
    """A row whose columns are attributes, like those of SQLAlchemy."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


async def _as_it_is(connection: object) -> None:
    """Give a connection back without a round trip: autocommit statements leave nothing behind to reset."""


class HotPool:
    """A few connections, opened when they are first needed."""

    def __init__(self, dsn: str, settings: DatabaseSettings, server_settings: Mapping[str, str]) -> None:
        self.size = settings.hot_pool_size
        self._dsn = dsn
        self._settings = settings
        self._server_settings = {**server_settings, **_PINS}
        self._pool: asyncpg.Pool | None = None
        self._opening = asyncio.Lock()
        self._compiled: dict[TextClause, tuple[str, tuple[str, ...]]] = {}

    @property
    def in_use(self) -> int:
        """How many connections run a statement right now."""
        return 0 if self._pool is None else self._pool.get_size() - self._pool.get_idle_size()

    async def fetch(self, statement: TextClause, values: Mapping[str, Any]) -> Sequence[HotRow]:
        """Run one statement and return its rows. Raises asyncpg's errors, OSError or TimeoutError."""
        sql, names = self._compiled.get(statement) or self._compile(statement)
        pool = self._pool or await self._open()
        async with pool.acquire(timeout=self._settings.connect_timeout_seconds) as connection:
            rows: Sequence[HotRow] = await connection.fetch(sql, *[values[name] for name in names])
            return rows

    async def expire(self) -> None:
        """Have every connection replaced before its next use (the server behind them changed its role)."""
        if self._pool is not None:
            await self._pool.expire_connections()

    async def close(self) -> None:
        """Close every connection."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(2.0):
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    def _compile(self, statement: TextClause) -> tuple[str, tuple[str, ...]]:
        compiled = statement.compile(dialect=_DIALECT)
        made = self._compiled[statement] = (str(compiled), tuple(getattr(compiled, "positiontup", None) or ()))
        return made

    async def _open(self) -> asyncpg.Pool:
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._dsn,
                    min_size=0,
                    max_size=self.size,
                    max_inactive_connection_lifetime=300.0,
                    reset=_as_it_is,
                    record_class=HotRow,
                    timeout=self._settings.connect_timeout_seconds,
                    command_timeout=self._settings.statement_timeout_seconds + 5,
                    server_settings=self._server_settings,
                )
            return self._pool
