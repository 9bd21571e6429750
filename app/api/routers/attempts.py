"""GET /v1/tasks/{task_id}/attempts."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import encoded, operation
from app.api.routers.tasks import visible_task
from app.api.schemas.common import money
from app.api.schemas.history import Attempt, AttemptPage
from app.api.schemas.tasks import TaskError
from app.domain.scopes import Scope
from app.services.callers import Caller
from app.services.history import AttemptUsage, read_story

Spent = Mapping[int, AttemptUsage]
router = APIRouter(tags=["tasks"])


@router.get(
    "/v1/tasks/{task_id}/attempts",
    summary="List a task's attempts",
    **operation(AttemptPage, description="All attempts, newest first.", problems=("not_found",)),
)
async def read_attempts(
    request: Request, task_id: str, caller: Annotated[Caller, Depends(needs(Scope.TASKS_READ))]
) -> Response:
    """List every attempt, the running one included."""
    front = front_of(request)
    task = await visible_task(front, caller, task_id)
    story = await read_story(front.runtime, task)
    items = [ended_attempt(row, story.spent) for row in story.attempts]
    if story.flight is not None and story.flight.fence is not None:
        items.append(_running(story.flight, story.spent))
    return encoded(200, AttemptPage(items[::-1], None))


def ended_attempt(row: Row[Any], spent: Spent) -> Attempt:
    """Show an attempt that has ended, with what its model calls took."""
    error = None
    if row.error_type is not None:
        error = TaskError(row.error_type, row.error_message or "", bool(row.error_retryable))
    return Attempt(
        **_times(row, row.started_at),
        **_usage(spent.get(row.fence)),
        finished_at=row.finished_at,
        duration_seconds=(row.finished_at - row.started_at).total_seconds(),
        outcome=row.outcome,
        counted=row.spent,
        retry_after_seconds=row.retry_after_seconds,
        error=error,
    )


def _running(row: Row[Any], spent: Spent) -> Attempt:
    return Attempt(
        **_times(row, row.claimed_at),
        **_usage(spent.get(row.fence)),
        finished_at=None,
        duration_seconds=None,
        outcome=None,
        counted=None,
        retry_after_seconds=None,
        error=None,
    )


def _times(row: Row[Any], started_at: datetime) -> dict[str, Any]:
    return {
        "attempt": row.attempt,
        "worker_id": row.worker_id,
        "queued_at": row.queued_at,
        "released_at": row.released_at,
        "started_at": started_at,
        "queue_seconds": max(0.0, (started_at - row.queued_at).total_seconds()),
    }


def _usage(taken: AttemptUsage | None) -> dict[str, Any]:
    return {
        "provider": taken.provider if taken is not None else None,
        "model": taken.model if taken is not None else None,
        "prompt_version": taken.prompt_version if taken is not None else None,
        "input_tokens": taken.input_tokens if taken is not None else 0,
        "output_tokens": taken.output_tokens if taken is not None else 0,
        "cost_usd": money(taken.cost_usd) if taken is not None else "0",
    }
