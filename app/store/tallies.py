"""Tallies: how many flights have departed and how long they ran, counted by whoever takes them off, ever growing.

They tell the dispatcher's leader in every round what has left, for the price of one row per writer and class; a count
of the flights themselves would cost more the more there are. What a tally misses, the next full count corrects.
"""

from dataclasses import dataclass

from sqlalchemy import text

from app.store.database import Database


def tally_sql(rows: str, writer: str, *, ran: bool = False) -> str:
    """Render the INSERT that counts the departed flights of the CTE `rows`.

    With `ran` they were attempts, from `claimed_at` to `ended_at`; otherwise nobody ran them.
    """
    runs = "count(*), COALESCE(sum(EXTRACT(EPOCH FROM ended_at - claimed_at)), 0)" if ran else "0, 0"
    return f"""INSERT INTO tallies (worker_id, priority_class, departed, runs, busy_seconds)
    SELECT {writer}, priority_class, count(*), {runs} FROM {rows} GROUP BY 1, 2 ORDER BY 1, 2
    ON CONFLICT (worker_id, priority_class) DO UPDATE
    SET departed = tallies.departed + excluded.departed, runs = tallies.runs + excluded.runs,
        busy_seconds = tallies.busy_seconds + excluded.busy_seconds"""


SUMS = """
SELECT priority_class, CAST(sum(departed) AS bigint) AS departed, CAST(sum(runs) AS bigint) AS runs,
       sum(busy_seconds) AS busy_seconds
FROM tallies GROUP BY priority_class
"""
_READ = text(SUMS)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many flights of a class departed; how many of them had run, and how long together; over all writers."""

    departed: int
    runs: int
    busy_seconds: float


async def read(database: Database) -> dict[str, Tally]:
    """Read the tally of every class."""
    rows = await database.execute_hot(_READ, {}, retry_for_seconds=0.0)
    return {row.priority_class: Tally(row.departed, row.runs, row.busy_seconds) for row in rows}
