"""Connections, transactions and what to do when the database goes away. Owns the engines; knows no table.

Two pools: `hot` carries the single statements of submit, release, claim and settle in autocommit (one round trip, atomic
by itself), `general` carries everything else, in transactions. Nobody holds a connection while something outside
the database is waited for.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

import asyncpg
from pydantic import SecretStr
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql.elements import TextClause

from app.settings import DatabaseSettings
from app.store.hot import HotPool, HotRow

T = TypeVar("T")

# Transient by SQLSTATE: serialisation failure, deadlock, a transaction that idled (a process that was frozen), statement
# cache after DDL, shutdown and start-up of the server, read-only server after a failover; and whatever is short on the
# server (connections, memory, disk: class 53) or between it and us (class 08).
_TRANSIENT_STATES = frozenset(
    {
        "40001",
        "40P01",
        "25P03",
        "0A000",
        "57P01",
        "57P02",
        "57P03",
        "25006",
    }
)
_DATA_CLASS = "22"


class DatabaseUnavailable(Exception):
    """The database did not answer in time; the caller may try again later."""


class LockTimeout(Exception):
    """A row or key was held by another transaction for longer than the lock timeout."""


def sqlstate(error: BaseException) -> str | None:
    """Read the SQLSTATE of a driver error, bare or wrapped by SQLAlchemy, if it has one."""
    original = getattr(error, "orig", None) or error
    state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    return str(state) if state else None


def is_transient(error: BaseException) -> bool:
    """Say whether the same work may succeed when it is tried again on another connection."""
    if isinstance(error, (DatabaseUnavailable, PoolTimeout, ConnectionError, OSError, asyncio.TimeoutError)):
        return True
    state = sqlstate(error)
    if state is not None:
        if state == "0A000":
            return "cached" in str(error)
        return state in _TRANSIENT_STATES or state.startswith(("08", "53"))
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or isinstance(error, (InterfaceError, OperationalError))
    # The driver's own word for a connection that is closed, closing, or was lost under a statement.
    return isinstance(error, (asyncpg.InterfaceError, asyncpg.InternalClientError)) and not is_data_error(error)


def is_data_error(error: BaseException) -> bool:
    """Say whether one of the values, not the moment, is at fault (SQLSTATE class 22, or refused by the driver)."""
    state = sqlstate(error)
    if state is not None and (state.startswith(_DATA_CLASS) or state == "54000"):
        return True
    return isinstance(getattr(error, "orig", None) or error, (asyncpg.DataError, UnicodeEncodeError))


def async_url(url: str) -> str:
    """Turn a PostgreSQL URL, as libpq knows it, into the one for the asyncpg driver.

    Raises ValueError for another scheme.
    """
    match = re.match(r"^(postgres|postgresql)(\+asyncpg)?://(.*)$", url, re.DOTALL)
    if match is None:
        raise ValueError("the database URL must start with postgresql://")
    return f"postgresql+asyncpg://{match.group(3)}"


def _in_use(engine: AsyncEngine) -> Callable[[], int]:
    pool = engine.sync_engine.pool
    return lambda: pool.checkedout() if isinstance(pool, QueuePool) else 0


def plain_url(url: str) -> str:
    """Turn a PostgreSQL URL into the one that asyncpg itself takes. Raises ValueError for another scheme."""
    return async_url(url).replace("postgresql+asyncpg://", "postgresql://", 1)


class Database:
    """The store's handle on one PostgreSQL database."""

    def __init__(
        self,
        url: str,
        settings: DatabaseSettings,
        *,
        application_name: str = "despacho",
        on_retry: Callable[[str], None] | None = None,
    ) -> None:
        self._on_retry = on_retry
        self.url = SecretStr(url)
        server_settings = {
            "application_name": application_name,
            "timezone": "UTC",
            "statement_timeout": str(int(settings.statement_timeout_seconds * 1000)),
            # A frozen process must not hold rows that a release or a claim waits for: shorter than any lock timeout.
            "idle_in_transaction_session_timeout": "4000",
        }
        connect = {
            "timeout": settings.connect_timeout_seconds,
            "command_timeout": settings.statement_timeout_seconds + 5,
        }
        self.settings = settings
        self.general: AsyncEngine = create_async_engine(
            async_url(url),
            pool_size=settings.pool_size,
            max_overflow=0,
            pool_timeout=settings.connect_timeout_seconds,
            hide_parameters=True,
            # A round trip a transaction, so that nobody meets a connection that a restart of the server has closed.
            pool_pre_ping=True,
            connect_args={**connect, "server_settings": server_settings | {"lock_timeout": "10000"}},
        )
        self.hot = HotPool(plain_url(url), settings, server_settings)

    def pools(self) -> dict[str, tuple[int, Callable[[], int]]]:
        """Name the connection pools with their sizes and how to ask for the connections in use."""
        return {
            "general": (self.settings.pool_size, _in_use(self.general)),
            "hot": (self.hot.size, lambda: self.hot.in_use),
        }

    async def close(self) -> None:
        """Close every connection."""
        await self.general.dispose()
        await self.hot.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Open one transaction on the general pool; commits at the end, rolls back on an error."""
        async with self.general.begin() as connection:
            yield connection

    async def run(
        self, work: Callable[[AsyncConnection], Awaitable[T]], *, retry_for_seconds: float | None = None
    ) -> T:
        """Run `work` in one transaction; on a transient error run it again, from the start, until the time is up.

        `work` must be safe to repeat: a lost COMMIT answer runs it a second time.
        Raises DatabaseUnavailable when the database stayed away for `retry_for_seconds` (default: the request's).
        """

        async def once() -> T:
            async with self.general.begin() as connection:
                return await work(connection)

        return await self._persist(once, retry_for_seconds)

    async def execute_hot(
        self, statement: TextClause, values: Mapping[str, Any], *, retry_for_seconds: float | None = None
    ) -> Sequence[HotRow]:
        """Execute one self-contained statement in autocommit and return its rows; repeats on transient errors."""

        async def once() -> Sequence[HotRow]:
            return await self.hot.fetch(statement, values)

        return await self._persist(once, retry_for_seconds)

    async def ping(self) -> datetime:
        """Ask the database for the time (aware, UTC). Raises DatabaseUnavailable."""

        async def once() -> datetime:
            async with self.general.connect() as connection:
                told: datetime = (await connection.execute(text("SELECT clock_timestamp()"))).scalar_one()
                return told

        try:
            return await asyncio.wait_for(once(), self.settings.connect_timeout_seconds)
        except Exception as error:
            raise DatabaseUnavailable(type(error).__name__) from None

    async def _persist(self, once: Callable[[], Awaitable[T]], retry_for_seconds: float | None) -> T:
        loop = asyncio.get_running_loop()
        limit = self.settings.request_retry_for_seconds if retry_for_seconds is None else retry_for_seconds
        give_up_at = loop.time() + limit
        pause = 0.01
        while True:
            try:
                return await once()
            except Exception as error:
                if sqlstate(error) == "55P03":
                    raise LockTimeout from error
                if not is_transient(error):
                    raise
                if sqlstate(error) == "25006":
                    # The server turned read-only under us (failover): every pooled connection points at it.
                    await self.general.dispose()
                    await self.hot.expire()
                if self._on_retry is not None:
                    self._on_retry(sqlstate(error) or type(error).__name__)
                if loop.time() >= give_up_at:
                    raise DatabaseUnavailable(type(error).__name__) from error
            await asyncio.sleep(min(pause, max(0.0, give_up_at - loop.time())) * (0.5 + random.random()))
            pause = min(pause * 2, 0.5)
