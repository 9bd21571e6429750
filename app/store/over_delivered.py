"""Released tasks whose message went past the broker's delivery limit: the row decides what becomes of them."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.cancellations import TALLY_NAME
from app.store.flights import HAND_BACK

_LOOK = text("""
SELECT (SELECT count(*) FROM events e
        WHERE e.task_id = f.task_id AND e.kind = 'over_delivered'
          AND e.event_id > COALESCE((SELECT max(event_id) FROM events
                                     WHERE task_id = f.task_id AND kind = 'reprocessed'), 0)) AS times
FROM flights f WHERE f.task_id = :task_id AND f.dispatch = :dispatch AND f.fence IS NULL FOR UPDATE OF f
""")
_TELL = text("""
INSERT INTO events (task_id, at, kind, reason, actor)
VALUES (:task_id, clock_timestamp(), 'over_delivered', :reason, 'broker')
""")


async def times_before(connection: AsyncConnection, *, task_id: str, dispatch: int) -> int | None:
    """Hold the unclaimed flight of this stay and count how often the task was over-delivered since its last reprocess.

    None when this stay is over: the message is stale.
    """
    row = (await connection.execute(_LOOK, {"task_id": task_id, "dispatch": dispatch})).first()
    return None if row is None else int(row.times)


async def hand_back(connection: AsyncConnection, *, task_id: str, dispatch: int, reason: str) -> None:
    """Give the task back to the waiting as a new stay, and count that in its history."""
    await connection.execute(
        HAND_BACK, {"ids": [task_id], "dispatches": [dispatch], "worker_id": TALLY_NAME, "why": "over_delivered"}
    )
    await connection.execute(_TELL, {"task_id": task_id, "reason": reason})
