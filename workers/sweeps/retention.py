"""Removes what has been kept as long as the settings say, in small batches and a bounded number of them per turn."""

from dataclasses import dataclass

from app.runtime import Runtime
from app.settings import RetentionSettings
from app.store import approvals, dead_letters, pauses, retention, schedules, webhook_secrets, workers

BATCHES_PER_TURN = 50


@dataclass(slots=True)
class Cursor:
    """How far the walk over the tasks has come; old tasks that are not to be removed are looked at once per round."""

    above: str = ""


async def run_once(runtime: Runtime, cursor: Cursor | None = None) -> int:
    """Remove what is old; returns how many rows went (tasks without their history)."""
    settings = runtime.settings.retention
    return (
        await _tasks(runtime, settings, cursor or Cursor())
        + await _dead_letters(runtime, settings)
        + await _others(runtime, settings)
    )


async def _tasks(runtime: Runtime, settings: RetentionSettings, cursor: Cursor) -> int:
    async with runtime.database.transaction() as connection:
        now = await schedules.now(connection)
    removed = 0
    for _ in range(BATCHES_PER_TURN):
        window = await retention.remove_tasks(
            runtime.database, above=cursor.above, now=now, days=settings.final_tasks_days, limit=settings.batch_size
        )
        removed += window.removed
        if window.last is None or window.seen < settings.batch_size:
            cursor.above = ""
            break
        cursor.above = window.last
    return removed


async def _dead_letters(runtime: Runtime, settings: RetentionSettings) -> int:
    removed = 0
    for _ in range(BATCHES_PER_TURN):
        async with runtime.database.transaction() as connection:
            ids = await retention.old_dead_letters(
                connection,
                days=settings.dead_letters_days,
                by_error_type=settings.dead_letters_days_by_error_type,
                limit=settings.batch_size,
            )
            removed += len(await dead_letters.purge(connection, ids)) if ids else 0
        if len(ids) < settings.batch_size:
            break
    return removed


async def _others(runtime: Runtime, settings: RetentionSettings) -> int:
    kept_days = {
        "inputs": settings.inputs_days,
        "idempotency_keys": settings.idempotency_days,
        "release_rounds": settings.release_rounds_days,
        "spending": settings.spending_days,
        "bulk_actions": settings.final_tasks_days,
    }
    removed = 0
    for what, days in kept_days.items():
        # Inputs may be large: few at a time.
        limit = min(settings.batch_size, 100) if what == "inputs" else settings.batch_size
        for _ in range(BATCHES_PER_TURN):
            async with runtime.database.transaction() as connection:
                gone = await retention.remove_old(connection, what, days=days, limit=limit)
            removed += gone
            if gone < limit:
                break
    async with runtime.database.transaction() as connection:
        now = await schedules.now(connection)
        removed += await retention.remove_audit(
            connection, now=now, days=settings.audit_days, limit=settings.batch_size
        )
        removed += await retention.remove_effects(
            connection, now=now, days=settings.effects_days, limit=settings.batch_size
        )
        removed += await retention.remove_llm_calls(
            connection, now=now, days=settings.llm_calls_days, limit=settings.batch_size
        )
        removed += await pauses.forget_over(connection)
        await approvals.withdraw(connection, settings.batch_size)
        await workers.forget_dead(connection)
        removed += await webhook_secrets.forget_over(connection)
    return removed
