"""Settling attempts: result, attempt row, history, status and the next place, in one fenced statement per move.

Whoever does not own the flight by its fence writes nothing: its rows simply do not come back.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.sql.elements import TextClause

from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.store.database import Database
from app.store.places import CLASS_OF_RETURN, PLACE, column, place_of
from app.store.tallies import tally_sql
from app.store.tasks import move_sql

_GIVEN = f"""given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:fences AS bigint[]), CAST(:outcomes AS text[]), CAST(:spents AS bool[]),
        CAST(:results AS text[]), CAST(:error_types AS text[]), CAST(:error_messages AS text[]), CAST(:retryables AS bool[]),
        CAST(:afters AS float8[]), CAST(:dead_letter_ids AS text[]), CAST(:crasheds AS int[]), CAST(:cleareds AS bool[]),
        CAST(:approval_ids AS text[]))
    AS g(task_id, fence, outcome, spent, result, error_type, error_message, error_retryable, after_seconds, dead_letter_id,
         crashed, cleared, approval_id)
),
gone AS (
    DELETE FROM flights f USING given g WHERE f.task_id = g.task_id AND f.fence = g.fence
    RETURNING f.*, g.outcome, g.spent, g.result, g.error_type, g.error_message, g.error_retryable, g.after_seconds,
              g.dead_letter_id, g.crashed, g.cleared, g.approval_id, clock_timestamp() AS ended_at
),
history AS (
    INSERT INTO attempts (task_id, fence, attempt, outcome, spent, worker_id, queued_at, released_at, started_at, finished_at,
                          round_id, error_type, error_message, error_retryable, retry_after_seconds)
    SELECT task_id, fence, attempt, outcome, spent, worker_id, queued_at, released_at, claimed_at, ended_at, round_id,
           error_type, error_message, error_retryable, CASE WHEN outcome = 'failed' THEN after_seconds END
    FROM gone
),
tally AS (
    {tally_sql("gone", "worker_id", ran=True)}
)"""

_BUDGET = (
    "attempts = GREATEST(0, t.attempts - CASE WHEN m.spent THEN 0 ELSE 1 END - CASE WHEN m.cleared THEN t.crashes ELSE 0 END), "
    "crashes = CASE WHEN m.cleared THEN 0 ELSE t.crashes + m.crashed END"
)
_ERROR = "error_type = m.error_type, error_message = m.error_message, error_retryable = m.error_retryable"
_NO_ERROR = "error_type = NULL, error_message = NULL, error_retryable = NULL"
_DUE = "m.ended_at + COALESCE(m.after_seconds, 0) * interval '1 second'"
# Whoever was woken while it was about to snooze comes back at once.
_DUE_UNLESS_WOKEN = f"CASE WHEN m.woken_at IS NULL THEN {_DUE} ELSE m.ended_at END"

_ALSO: dict[Move, str] = {
    Move.FINISH: f"result = m.result, finished_at = m.ended_at, progress = NULL, {_NO_ERROR}",
    Move.FAIL: f"next_attempt_at = {_DUE}, {_ERROR}, {_BUDGET}",
    Move.DEAD_LETTER: f"finished_at = m.ended_at, {_ERROR}, {_BUDGET}",
    Move.RETURN: _BUDGET,
    Move.SUSPEND: f"next_attempt_at = NULL, {_BUDGET}",
    Move.REJECT: f"finished_at = m.ended_at, progress = NULL, {_ERROR}, {_BUDGET}",
    Move.SNOOZE: f"next_attempt_at = {_DUE_UNLESS_WOKEN}, {_BUDGET}",
    Move.CANCEL: "finished_at = m.ended_at, cancel_requested_at = COALESCE(t.cancel_requested_at, m.ended_at)",
}


def _back(due: str) -> str:
    due = due.replace("m.", "g.")
    return f""",
back AS (
    INSERT INTO delayed ({PLACE}, due_at, why)
    SELECT {place_of("g", priority_class=CLASS_OF_RETURN, dispatch="g.dispatch + 1", attempt="g.attempts + 1", queued_at=due)},
           {due}, g.outcome
    FROM moved g
)"""


_DEAD = """,
dead AS (
    INSERT INTO dead_letters (dead_letter_id, task_id, tenant_id, type, priority_class, task_group, failed_at, error_type,
                              error_message, attempts, worker_id, traceparent)
    SELECT g.dead_letter_id, g.task_id, g.tenant_id, g.task_type, g.priority_class, NULLIF(g.task_group, ''), g.ended_at,
           g.error_type, COALESCE(g.error_message, ''), g.attempts, g.worker_id, g.traceparent
    FROM moved g
)"""


# What somebody asked to cancel does not come back to the waiting, however its attempt ended.
_STOPPED = f""",
kept AS (SELECT * FROM gone WHERE cancel_requested_at IS NULL),
stopped AS (SELECT * FROM gone WHERE cancel_requested_at IS NOT NULL),
ended AS ({move_sql(Move.CANCEL, "stopped", _ALSO[Move.CANCEL])} RETURNING t.task_id)"""
_COMES_BACK = (Move.FAIL, Move.RETURN, Move.SNOOZE)

# The approval is held until this commits: whoever decides it comes before (then the task comes back at once and meets
# the decision), or after (then its place is seen). The count has the flights gone before any approval is held.
_SUSPENDED = f""",
held AS MATERIALIZED (
    SELECT approval_id, state FROM approvals
    WHERE approval_id = ANY(CAST(:approval_ids AS text[])) AND (SELECT count(*) FROM gone) > 0
    ORDER BY approval_id FOR UPDATE
),
waits AS (SELECT * FROM kept WHERE approval_id IN (SELECT approval_id FROM held WHERE state = 'pending')),
comes AS (SELECT * FROM kept WHERE approval_id NOT IN (SELECT approval_id FROM held WHERE state = 'pending')),
asleep AS ({move_sql(Move.SUSPEND, "waits", _ALSO[Move.SUSPEND])} RETURNING t.attempts, m.*),
placed AS (
    INSERT INTO suspended ({PLACE}, approval_id, suspended_at)
    SELECT {place_of("g", priority_class=CLASS_OF_RETURN, attempt="g.attempts + 1")}, g.approval_id, g.ended_at FROM asleep g
),
moved AS ({move_sql(Move.RETURN, "comes", _ALSO[Move.RETURN])} RETURNING t.attempts, m.*)"""


def _sql(move: Move) -> TextClause:
    if move in _COMES_BACK:
        return text(
            f"WITH {_GIVEN}{_STOPPED}, moved AS ({move_sql(move, 'kept', _ALSO[move])} RETURNING t.attempts, m.*)"
            f"{_back(_DUE_UNLESS_WOKEN if move is Move.SNOOZE else _DUE)} "
            "SELECT g.task_id FROM gone g"
        )
    if move is Move.SUSPEND:
        return text(f"WITH {_GIVEN}{_STOPPED}{_SUSPENDED}{_back(_DUE)} SELECT g.task_id FROM gone g")
    more = _DEAD if move is Move.DEAD_LETTER else ""
    return text(
        f"WITH {_GIVEN}, moved AS ({move_sql(move, 'gone', _ALSO[move])} RETURNING t.attempts, m.*){more} "
        "SELECT g.task_id FROM gone g"
    )


SETTLE: dict[Move, TextClause] = {move: _sql(move) for move in _ALSO}


async def settle(
    database: Database, settlements: Sequence[Settlement], *, retry_for_seconds: float | None = None
) -> set[str]:
    """Commit settlements that all make the same move; returns the task_ids that were still owned.

    Repeating it is harmless: what was settled is no longer owned. Raises a data error when a value cannot be stored.
    """
    ordered = sorted(settlements, key=lambda s: s.task_id)
    values: dict[str, Any] = {
        "ids": [s.task_id for s in ordered],
        "fences": [s.fence for s in ordered],
        "outcomes": [s.outcome for s in ordered],
        "spents": [s.spent for s in ordered],
        "results": column([s.result for s in ordered]),
        "error_types": column([s.error_type for s in ordered]),
        "error_messages": column([s.error_message for s in ordered]),
        "retryables": column([s.error_retryable for s in ordered]),
        "afters": column([s.after_seconds for s in ordered]),
        "dead_letter_ids": column([s.dead_letter_id for s in ordered]),
        "crasheds": [int(s.crashed) for s in ordered],
        "cleareds": [s.cleared for s in ordered],
        "approval_ids": column([s.approval_id for s in ordered]),
    }
    rows = await database.execute_hot(SETTLE[ordered[0].move], values, retry_for_seconds=retry_for_seconds)
    return {row.task_id for row in rows}
