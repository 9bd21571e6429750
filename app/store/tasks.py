"""The rows of `tasks`: the one place that writes `tasks.status`, and how a row is read.

Every writer that changes a status first takes the task's place (its row in ready, delayed, suspended or flights) in the same
statement: whoever took the place owns the move. The guard on the status stays as a second, independent proof.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.lifecycle import FINAL, Move, sources, target
from app.store.llm_usage import USAGE


def move_sql(move: Move, rows: str, also: str = "") -> str:
    """Render the UPDATE that makes `move` for the task_ids of the CTE `rows` (aliased m); `also` sets further columns."""
    allowed = ", ".join(f"'{status}'" for status in sorted(sources(move)))
    extra = f", {also}" if also else ""
    return (
        f"UPDATE tasks t SET status = '{target(move)}', updated_at = clock_timestamp(){extra} "
        f"FROM {rows} m WHERE t.task_id = m.task_id AND t.status IN ({allowed})"
    )


# A task's row as the API shows it. `started`/`worker` facts of a running attempt live in flights, not here.
TASK_COLUMNS = (
    "task_id, type, tenant_id, task_group, status, priority_class, reason_code, policy_version, requested_class, "
    "source_ref, source_version, input_ref, cost_class, preemptible, attempts, max_attempts, timeout_seconds, "
    "next_attempt_at, submitted_at, not_before, due_at, valid_until, started_at, finished_at, updated_at, "
    "cancel_requested_at, progress, error_type, error_message, error_retryable, metadata, submitted_by, traceparent, "
    "callback_url"
)

_CALLBACK_STATE = (
    "CASE WHEN callback_url IS NOT NULL THEN (SELECT w.state FROM webhooks w WHERE w.task_id = tasks.task_id "
    "ORDER BY w.webhook_id DESC LIMIT 1) END AS callback_state"
)
_GET = text(
    f"SELECT {TASK_COLUMNS}, result, input, facts, crashes, {_CALLBACK_STATE}, {USAGE} AS usage FROM tasks "
    "WHERE task_id = ANY(CAST(:ids AS text[]))"
)


async def get_tasks(connection: AsyncConnection, task_ids: Sequence[str]) -> Mapping[str, Row[Any]]:
    """Read whole task rows by id; ids that do not exist are left out."""
    rows = (await connection.execute(_GET, {"ids": list(task_ids)})).fetchall()
    return {row.task_id: row for row in rows}


_ENDED = ", ".join(f"'{status}'" for status in sorted(FINAL))
_FINAL_AMONG = text(f"SELECT task_id FROM tasks WHERE task_id = ANY(CAST(:ids AS text[])) AND status IN ({_ENDED})")


async def final_among(connection: AsyncConnection, task_ids: Sequence[str]) -> set[str]:
    """Name those of `task_ids` that have ended; one statement for all waiters of a process."""
    return {row.task_id for row in (await connection.execute(_FINAL_AMONG, {"ids": list(task_ids)})).fetchall()}
