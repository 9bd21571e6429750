"""A blocking connection to the private PostgreSQL, for the benchmark's own questions."""

import asyncio
from types import TracebackType
from typing import Self

import asyncpg


class Database:
    """One connection, used from plain code."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._connection: asyncpg.Connection[asyncpg.Record] = self._runner.run(asyncpg.connect(url))

    def execute(self, statement: str) -> None:
        self._runner.run(self._connection.execute(statement))

    def number(self, statement: str) -> int:
        """Return the one number that the statement selects."""
        return int(self._runner.run(self._connection.fetchval(statement)))

    def column(self, statement: str) -> list[float]:
        """Return the first column as floats."""
        rows = self._runner.run(self._connection.fetch(statement))
        return [float(row[0]) for row in rows]

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
