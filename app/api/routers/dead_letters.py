"""GET /v1/dead-letters, its summary, sample and single ones; reprocess one or many; purge."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import needs
from app.api.bulk_view import bulk_accepted, dead_letter_filter
from app.api.front import Front, front_of
from app.api.operation import body_of, encoded, operation
from app.api.path_ids import check_id
from app.api.query import PlainText, TenantsPageQuery, next_token
from app.api.routers.attempts import ended_attempt
from app.api.routers.tasks import listed_tenants
from app.api.schemas.common import Instant, raw
from app.api.schemas.effects import effect_of
from app.api.schemas.history import Event
from app.api.schemas.operations import (
    BulkAnswer,
    BulkPurge,
    BulkReprocess,
    DeadLetter,
    DeadLetterGroup,
    DeadLetterPage,
    DeadLetterSample,
    DeadLetterStory,
    DeadLetterSummary,
    Matched,
    WithReason,
)
from app.api.schemas.tasks import Task
from app.api.task_view import task_of
from app.domain.scopes import Scope
from app.services import bulk, dead_letters
from app.services.callers import Caller
from app.services.history import compose
from app.services.queries import cut
from app.store.bulk_actions import BulkKind
from app.store.filters import DeadLetterFilter
from app.telemetry.tracing import logs_link, trace_link

router = APIRouter(tags=["dead letters"])
Reader = Annotated[Caller, Depends(needs(Scope.DEAD_LETTERS_READ))]


class DeadLetterQuery(TenantsPageQuery):
    """What dead letters can be filtered by; repeated parameters mean "or"."""

    error_type: list[PlainText] | None = None
    type: list[PlainText] | None = None
    priority_class: list[PlainText] | None = None
    group: list[PlainText] | None = None
    failed_after: Instant | None = None
    failed_before: Instant | None = None

    def chosen(self, tenant_ids: tuple[str, ...]) -> DeadLetterFilter:
        """Turn the parameters into a filter on things of `tenant_ids`."""
        return DeadLetterFilter(
            error_type=tuple(self.error_type or ()),
            type=tuple(self.type or ()),
            priority_class=tuple(self.priority_class or ()),
            group=tuple(self.group or ()),
            tenant_id=tenant_ids,
            failed_after=self.failed_after,
            failed_before=self.failed_before,
        )


def _shown(front: Front, row: Row[Any]) -> DeadLetter:
    settings = front.runtime.settings
    return DeadLetter(
        dead_letter_id=row.dead_letter_id,
        task_id=row.task_id,
        type=row.type,
        tenant_id=row.tenant_id,
        group=row.task_group,
        priority_class=row.priority_class,
        failed_at=row.failed_at,
        error_type=row.error_type,
        error_message=row.error_message,
        attempts=row.attempts,
        worker_id=row.worker_id,
        trace_url=trace_link(settings.trace_url, row.traceparent),
        logs_url=logs_link(settings.logs_url, row.task_id) if row.task_id else None,
    )


@router.get(
    "/v1/dead-letters",
    summary="List dead letters",
    **operation(DeadLetterPage, description="A page of dead letters, newest first."),
)
async def read_dead_letters(request: Request, caller: Reader, query: Annotated[DeadLetterQuery, Query()]) -> Response:
    """List dead letters; a platform key also sees messages that could not be read."""
    front = front_of(request)
    found = query.chosen(listed_tenants(front, caller, query.tenant_id or ()))
    rows = await dead_letters.page(front.runtime, caller, found, before=query.after(), limit=query.page_size + 1)
    page = cut(rows, query.page_size, "dead_letter_id")
    return encoded(200, DeadLetterPage([_shown(front, row) for row in page.rows], next_token(page.last_id)))


@router.get(
    "/v1/dead-letters/summary",
    summary="Summarise the dead letters",
    **operation(DeadLetterSummary, description="By error type and task type, the most frequent first."),
)
async def read_summary(request: Request, caller: Reader) -> Response:
    """Tell what lies here by error type and task type, and whether it grows."""
    lines = await dead_letters.summary(front_of(request).runtime, caller)
    groups = [
        DeadLetterGroup(
            line.error_type, line.type, line.count, line.oldest_failed_at, line.newest_failed_at, line.rate_per_hour,
            line.baseline_per_hour,
        )
        for line in lines
    ]  # fmt: skip
    return encoded(200, DeadLetterSummary(sum(line.count for line in lines), groups))


@router.get(
    "/v1/dead-letters/sample",
    summary="Draw dead letters at random",
    **operation(DeadLetterSample, description="At most `n`, in no order."),
)
async def read_sample(
    request: Request,
    caller: Reader,
    error_type: Annotated[list[PlainText] | None, Query()] = None,
    n: Annotated[int, Query(ge=1, le=200)] = 10,
) -> Response:
    """Draw a random sample, for improving input validation."""
    front = front_of(request)
    found = DeadLetterFilter(error_type=tuple(error_type or ()))
    rows = await dead_letters.sample(front.runtime, caller, found, n=n)
    return encoded(200, DeadLetterSample([_shown(front, row) for row in rows]))


@router.get(
    "/v1/dead-letters/{id}",
    summary="Read the whole story of one dead letter",
    **operation(
        DeadLetterStory,
        description="The dead letter, its attempts, its effects and its history.",
        problems=("not_found",),
    ),
)
async def read_story(request: Request, id: str, caller: Reader) -> Response:
    """Tell the story of one dead letter, by its own id or its task's."""
    front = front_of(request)
    story = await dead_letters.story(front.runtime, caller, check_id(id, "task", "dead"))
    attempts, effects, events = [], [], []
    if story.task is not None and story.history is not None:
        attempts = [ended_attempt(row, story.history.spent) for row in story.history.attempts][::-1]
        effects = [effect_of(row) for row in story.history.effects][::-1]
        history = compose(story.task, story.history)
        events = [Event(one.at, one.kind, one.reason, one.actor, raw(one.detail)) for one in history]
    return encoded(200, DeadLetterStory(_shown(front, story.item), attempts, effects, events))


@router.post(
    "/v1/dead-letters/{id}/reprocess",
    summary="Reprocess one dead letter",
    **operation(
        Task,
        status=202,
        description="It waits again, with a fresh attempt budget and its history.",
        body=WithReason,
        problems=("not_found", "not_dead_lettered", "not_reprocessable"),
        headers=("Location",),
    ),
)
async def reprocess_one(
    request: Request,
    id: str,
    caller: Annotated[Caller, Depends(needs(Scope.DEAD_LETTERS_REPROCESS))],
    order: Annotated[WithReason, Depends(body_of(WithReason))],
) -> Response:
    """Put one dead task back; of any number of callers one succeeds."""
    front = front_of(request)
    row = await dead_letters.reprocess(front.runtime, caller, check_id(id, "task", "dead"), order.reason)
    return encoded(202, task_of(front, caller, row), {"Location": f"/v1/tasks/{row.task_id}"})


@router.post(
    "/v1/dead-letters/reprocess",
    summary="Reprocess dead letters by filter",
    **operation(
        BulkAnswer,
        status=202,
        description="Begun: watch it under `Location`.",
        also={200: ("What a dry run matched.", Matched)},
        body=BulkReprocess,
        problems=("filter_required",),
        headers=("Location",),
    ),
)
async def reprocess_many(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.DEAD_LETTERS_REPROCESS))],
    order: Annotated[BulkReprocess, Depends(body_of(BulkReprocess))],
) -> Response:
    """Put back what the filter matches now, paced, so that a replay is never a storm."""
    runtime = front_of(request).runtime
    found = dead_letter_filter(order.filter)
    if order.dry_run:
        matched = await bulk.matched(runtime, caller, BulkKind.REPROCESS, found)
        return encoded(200, Matched(matched if order.limit is None else min(matched, order.limit)))
    row = await bulk.create(
        runtime,
        caller,
        BulkKind.REPROCESS,
        found,
        order.reason,
        everything=order.all,
        limit=order.limit,
        rate_per_second=order.rate_per_second,
    )
    return bulk_accepted(row)


@router.post(
    "/v1/dead-letters/purge",
    summary="Purge dead letters",
    **operation(
        BulkAnswer,
        status=202,
        description="Begun: watch it under `Location`.",
        body=BulkPurge,
        problems=("filter_required",),
        headers=("Location",),
    ),
)
async def purge(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.DEAD_LETTERS_PURGE))],
    order: Annotated[BulkPurge, Depends(body_of(BulkPurge))],
) -> Response:
    """Remove what the filter matches now, with the tasks; the audit stays."""
    runtime = front_of(request).runtime
    found = dead_letter_filter(order.filter)
    return bulk_accepted(await bulk.create(runtime, caller, BulkKind.PURGE, found, order.reason, everything=order.all))
