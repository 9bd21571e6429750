"""What happened to a task: its ended attempts and its events, oldest first."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

_ATTEMPTS = text("""
SELECT attempt, fence, outcome, spent, worker_id, queued_at, released_at, started_at, finished_at, round_id, error_type,
       error_message, error_retryable, retry_after_seconds
FROM attempts WHERE task_id = :task_id ORDER BY fence LIMIT :limit
""")
_EVENTS = text("""
SELECT event_id, at, kind, reason, actor, detail FROM events WHERE task_id = :task_id ORDER BY event_id LIMIT :limit
""")


async def attempts_of(connection: AsyncConnection, task_id: str, limit: int) -> Sequence[Row[Any]]:
    """Read the ended attempts of a task, in the order of their fences."""
    return (await connection.execute(_ATTEMPTS, {"task_id": task_id, "limit": limit})).fetchall()


async def events_of(connection: AsyncConnection, task_id: str, limit: int) -> Sequence[Row[Any]]:
    """Read the recorded events of a task."""
    return (await connection.execute(_EVENTS, {"task_id": task_id, "limit": limit})).fetchall()
