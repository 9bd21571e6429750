"""Bulk actions between the wire and the services: filters in, states out."""

from typing import Any

import msgspec
from sqlalchemy import Row
from starlette.responses import Response

from app.api.operation import encoded
from app.api.schemas.common import raw
from app.api.schemas.operations import BulkAnswer, BulkError, DeadLetterFilterBody, TaskFilterBody
from app.store.filters import DeadLetterFilter, TaskFilter


def task_filter(body: TaskFilterBody | None) -> TaskFilter:
    """Turn the filter of a body into the value; without one everything is open."""
    if body is None:
        return TaskFilter()
    return TaskFilter(
        status=tuple(body.status or ()),
        type=tuple(body.type or ()),
        priority_class=tuple(body.priority_class or ()),
        group=tuple(body.group or ()),
        source_ref=tuple(body.source_ref or ()),
        tenant_id=tuple(body.tenant_id or ()),
        submitted_after=body.submitted_after,
        submitted_before=body.submitted_before,
    )


def dead_letter_filter(body: DeadLetterFilterBody | None) -> DeadLetterFilter:
    """Turn the filter of a body into the value; without one everything is open."""
    if body is None:
        return DeadLetterFilter()
    return DeadLetterFilter(
        error_type=tuple(body.error_type or ()),
        type=tuple(body.type or ()),
        priority_class=tuple(body.priority_class or ()),
        group=tuple(body.group or ()),
        tenant_id=tuple(body.tenant_id or ()),
        failed_after=body.failed_after,
        failed_before=body.failed_before,
    )


def bulk_answer(row: Row[Any]) -> BulkAnswer:
    """Show a bulk action."""
    return BulkAnswer(
        bulk_action_id=row.bulk_action_id,
        kind=row.kind,
        state=row.state,
        matched=row.matched,
        done=row.done,
        failed=row.failed,
        errors=msgspec.json.decode(row.errors, type=list[BulkError]),
        filter=raw(row.filter),
        reason=row.reason,
        actor=row.actor,
        limit=row.item_limit,
        rate_per_second=row.rate_per_second,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def bulk_accepted(row: Row[Any]) -> Response:
    """Answer that a bulk action has begun, and where it can be watched."""
    return encoded(202, bulk_answer(row), {"Location": f"/v1/bulk-actions/{row.bulk_action_id}"})
