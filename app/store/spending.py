"""What was spent: money and tokens by UTC day, tenant and type, summed as it is spent.

Sums and not the single calls, because the dispatcher asks for them every second. Whoever records a call adds to them
in the same statement (`spending_sql`), so that they never differ from the calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.budgets import Amount
from app.store.database import Database

SHARDS = 8
TODAY = "CAST(clock_timestamp() AT TIME ZONE 'UTC' AS date)"
SECONDS_LEFT = f"CAST(EXTRACT(EPOCH FROM ({TODAY} + 1) - (clock_timestamp() AT TIME ZONE 'UTC')) AS float8)"


def spending_sql(rows: str, shard: str, *, first: str = "first") -> str:
    """Render the INSERT that adds the calls of the CTE `rows` (tenant_id, type, cost_usd, tokens) to the sums.

    `first` is the SQL that says of a row whether it is its attempt's first call; `shard` one from 0 to SHARDS - 1.
    """
    return f"""INSERT INTO spending (day, tenant_id, type, shard, cost_usd, tokens, calls, attempts)
    SELECT {TODAY}, tenant_id, type, {shard}, sum(cost_usd), sum(tokens), count(*), count(*) FILTER (WHERE {first})
    FROM {rows} GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    ON CONFLICT (day, tenant_id, type, shard) DO UPDATE
    SET cost_usd = spending.cost_usd + excluded.cost_usd, tokens = spending.tokens + excluded.tokens,
        calls = spending.calls + excluded.calls, attempts = spending.attempts + excluded.attempts"""


_ADD = text(f"""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:tenants AS text[]), CAST(:types AS text[]), CAST(:costs AS numeric[]),
                         CAST(:tokens AS bigint[]), CAST(:firsts AS bool[]))
    AS g(tenant_id, type, cost_usd, tokens, first)
)
{spending_sql("given", "CAST(:shard AS smallint)")}
RETURNING tenant_id
""")
_BY_TENANT = text(f"""
SELECT tenant_id AS name, sum(cost_usd) AS cost_usd, sum(tokens) AS tokens FROM spending
WHERE day = {TODAY} AND tenant_id = ANY(CAST(:names AS text[])) GROUP BY tenant_id
""")
_BY_TYPE = text(f"""
SELECT type AS name, sum(cost_usd) AS cost_usd, sum(tokens) AS tokens FROM spending WHERE day = {TODAY} GROUP BY type
""")
_HISTORY = text(f"""
SELECT type AS name, sum(cost_usd) / sum(attempts) AS cost_usd, sum(tokens) / sum(attempts) AS tokens FROM spending
WHERE day > {TODAY} - 7 GROUP BY type HAVING sum(attempts) > 0
""")
_CLOCK = text(f"SELECT {TODAY} AS today, {SECONDS_LEFT} AS seconds_left")


@dataclass(frozen=True, slots=True)
class Spent:
    """What one call cost; `first` says that it was its attempt's first."""

    tenant_id: str
    type: str
    cost_usd: Decimal
    tokens: int
    first: bool


async def add(database: Database, spent: Sequence[Spent], *, shard: int) -> None:
    """Add calls to the sums of today. Not repeated on an error: it would count twice."""
    await database.execute_hot(
        _ADD,
        {
            "tenants": [one.tenant_id for one in spent],
            "types": [one.type for one in spent],
            "costs": [one.cost_usd for one in spent],
            "tokens": [one.tokens for one in spent],
            "firsts": [one.first for one in spent],
            "shard": shard % SHARDS,
        },
        retry_for_seconds=0.0,
    )


async def today(connection: AsyncConnection) -> tuple[date, float]:
    """Tell the UTC day by the database's clock, and the seconds that are left of it."""
    row = (await connection.execute(_CLOCK)).one()
    return row.today, row.seconds_left


async def spent_by_tenant(connection: AsyncConnection, tenant_ids: Sequence[str]) -> dict[str, Amount]:
    """Sum what these tenants have spent today."""
    return _amounts((await connection.execute(_BY_TENANT, {"names": list(tenant_ids)})).fetchall())


async def spent_by_type(connection: AsyncConnection) -> dict[str, Amount]:
    """Sum what each type has spent today; all types together are all that was spent."""
    return _amounts((await connection.execute(_BY_TYPE)).fetchall())


async def cost_of_an_attempt(connection: AsyncConnection) -> dict[str, Amount]:
    """Give the mean cost of an attempt of each type over the last seven days, of attempts that cost something."""
    return _amounts((await connection.execute(_HISTORY)).fetchall())


def _amounts(rows: Sequence[Row[Any]]) -> dict[str, Amount]:
    return {row.name: Amount(Decimal(row.cost_usd), Decimal(row.tokens)) for row in rows}
