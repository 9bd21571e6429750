"""The figures of every class: counted over the places and a sample of recent starts, written down for all to read."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

# A busy system shows its last seconds, a quiet one its last minutes; neither read grows with the history, because
# attempts carry a block range index over the time of their end.
_NARROW_SECONDS, _WIDE_SECONDS = 10.0, 300.0
_SAMPLE = 5_000
_ENOUGH = 500

_WAITING = text("""
SELECT priority_class, count(*) AS n, min(queued_at) AS oldest_at FROM ready GROUP BY priority_class
""")
_DELAYED = text("""
SELECT priority_class, count(*) FILTER (WHERE due_at > clock_timestamp()) AS later,
       count(*) FILTER (WHERE due_at <= clock_timestamp()) AS due,
       min(GREATEST(queued_at, due_at)) FILTER (WHERE due_at <= clock_timestamp()) AS oldest_at
FROM delayed GROUP BY priority_class
""")
_FLYING = text("""
SELECT priority_class, count(*) FILTER (WHERE fence IS NULL) AS released, count(fence) AS running,
       min(queued_at) FILTER (WHERE fence IS NULL) AS oldest_at
FROM flights GROUP BY priority_class
""")
_WAITS = text("""
SELECT t.priority_class, EXTRACT(EPOCH FROM a.started_at - a.queued_at)::float8 AS seconds
FROM (SELECT task_id, started_at, queued_at FROM attempts
      WHERE finished_at > clock_timestamp() - CAST(:seconds AS float8) * interval '1 second' LIMIT :limit) a
JOIN tasks t ON t.task_id = a.task_id
""")
_NOW = text("SELECT clock_timestamp()")
_DEAD = text("SELECT error_type, count(*) AS n FROM dead_letters GROUP BY error_type")
_WRITE = text("""
INSERT INTO class_figures (priority_class, at, figures)
SELECT g.name, clock_timestamp(), g.figures FROM unnest(CAST(:classes AS text[]), CAST(:figures AS text[])) AS g(name, figures)
ORDER BY g.name
ON CONFLICT (priority_class) DO UPDATE SET at = excluded.at, figures = excluded.figures
""")


@dataclass(slots=True)
class Counted:
    """What was counted of one class. `waiting` is due and not released; `waits` are seconds from due to start."""

    waiting: int = 0
    delayed: int = 0
    released: int = 0
    running: int = 0
    oldest_at: datetime | None = None
    waits: tuple[float, ...] = ()

    def older(self, moment: datetime | None) -> None:
        """Take `moment` as the oldest where it is."""
        if moment is not None and (self.oldest_at is None or moment < self.oldest_at):
            self.oldest_at = moment


async def count(connection: AsyncConnection) -> tuple[dict[str, Counted], datetime]:
    """Count every class that has anything, at the database's time that comes with the answer."""
    found: dict[str, Counted] = {}
    for row in (await connection.execute(_WAITING)).fetchall():
        one = found.setdefault(row.priority_class, Counted())
        one.waiting += row.n
        one.older(row.oldest_at)
    for row in (await connection.execute(_DELAYED)).fetchall():
        one = found.setdefault(row.priority_class, Counted())
        one.waiting += row.due
        one.delayed += row.later
        one.older(row.oldest_at)
    for row in (await connection.execute(_FLYING)).fetchall():
        one = found.setdefault(row.priority_class, Counted())
        one.released, one.running = row.released, row.running
        one.older(row.oldest_at)
    for name, waits in (await _waits(connection)).items():
        found.setdefault(name, Counted()).waits = tuple(sorted(waits))
    now: datetime = (await connection.execute(_NOW)).scalar_one()
    return found, now


async def _waits(connection: AsyncConnection) -> dict[str, list[float]]:
    waits: dict[str, list[float]] = {}
    for seconds in (_NARROW_SECONDS, _WIDE_SECONDS):
        rows = (await connection.execute(_WAITS, {"seconds": seconds, "limit": _SAMPLE})).fetchall()
        if len(rows) >= _ENOUGH or seconds == _WIDE_SECONDS:
            for row in rows:
                waits.setdefault(row.priority_class, []).append(max(0.0, row.seconds))
            break
    return waits


async def dead_letters_by_error_type(connection: AsyncConnection) -> dict[str, int]:
    """Count the dead letters that lie here."""
    return {row.error_type: row.n for row in (await connection.execute(_DEAD)).fetchall()}


async def write(connection: AsyncConnection, figures: Mapping[str, str]) -> None:
    """Write the figures of classes down, as JSON text by class."""
    await connection.execute(_WRITE, {"classes": list(figures), "figures": list(figures.values())})
