"""A task as the API shows it: from its row, or right after it was stored."""

from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import msgspec
from sqlalchemy import Row

from app.api.front import Front
from app.api.schemas.common import money, raw
from app.api.schemas.tasks import NO_USAGE, ListedTask, Task, TaskCallback, TaskError, TaskLinks, TaskSource, Usage
from app.domain.lifecycle import TaskStatus
from app.domain.scopes import Scope
from app.domain.webhooks import WebhookState
from app.services.callers import Caller
from app.services.intake import Accepted
from app.telemetry.tracing import logs_link, trace_link


def links_of(front: Front, task_id: str, traceparent: str | None) -> TaskLinks:
    """Say where more about a task is to be found."""
    settings = front.runtime.settings
    base = f"{(settings.api.public_url or '').rstrip('/')}/v1/tasks/{task_id}"
    return TaskLinks(
        base,
        f"{base}/attempts",
        f"{base}/events",
        f"{base}/effects" if front.effects_are_served else None,
        trace_link(settings.trace_url, traceparent),
        logs_link(settings.logs_url, task_id),
    )


def task_of(front: Front, caller: Caller, row: Row[Any], *, with_input: bool = False) -> Task:
    """Show a whole row; what the key may not read is withheld and named."""
    may_read = caller.may(Scope.PAYLOADS_READ)
    withheld = row.result is not None and not may_read
    return Task(
        **_common(front, row),
        result=raw(row.result) if may_read else None,
        withheld=["result"] if withheld else msgspec.UNSET,
        callback=_callback(row.callback_url, row.callback_state, with_url=may_read),
        input=raw(row.input) if with_input else msgspec.UNSET,
    )


def listed_task_of(front: Front, row: Row[Any], *, with_result: bool) -> ListedTask:
    """Show a row of a list."""
    callback = _callback(row.callback_url, msgspec.UNSET, with_url=False)
    return ListedTask(
        **_common(front, row), result=raw(row.result) if with_result else msgspec.UNSET, callback=callback
    )


def _callback(
    url: str | None, state: str | msgspec.UnsetType | None, *, with_url: bool
) -> TaskCallback | msgspec.UnsetType:
    if url is None:
        return msgspec.UNSET
    told = WebhookState(state) if isinstance(state, str) else state
    return TaskCallback(urlsplit(url).netloc.lower(), told, url if with_url else msgspec.UNSET)


def _common(front: Front, row: Row[Any]) -> dict[str, Any]:
    return {
        "task_id": row.task_id,
        "type": row.type,
        "tenant_id": row.tenant_id,
        "group": row.task_group,
        "status": TaskStatus(row.status),
        "priority_class": row.priority_class,
        "priority_reason_code": row.reason_code,
        "policy_version": row.policy_version,
        "requested_class": row.requested_class,
        "source": None if row.source_ref is None else TaskSource(row.source_ref, row.source_version),
        "input_ref": row.input_ref,
        "cost_class": row.cost_class,
        "preemptible": row.preemptible,
        "attempts": row.attempts,
        "max_attempts": row.max_attempts,
        "timeout_seconds": row.timeout_seconds,
        "next_attempt_at": row.next_attempt_at,
        "submitted_at": row.submitted_at,
        "not_before": row.not_before,
        "due_at": row.due_at,
        "valid_until": row.valid_until,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "updated_at": row.updated_at,
        "cancel_requested_at": row.cancel_requested_at,
        "progress": raw(row.progress),
        "error": _error(row),
        "usage": usage_of(row.usage),
        "metadata": raw(row.metadata),
        "links": links_of(front, row.task_id, row.traceparent),
    }


def usage_of(summed: str | None) -> Usage:
    """Show what the model calls of a task took, as the row of the task tells it."""
    if summed is None:
        return NO_USAGE
    read, written, cost, prompts, unpriced, estimated = msgspec.json.decode(summed)
    return Usage(read, written, money(Decimal(cost)), prompts, unpriced, estimated)


def _error(row: Row[Any]) -> TaskError | None:
    if row.error_type is None:
        return None
    return TaskError(row.error_type, row.error_message or "", bool(row.error_retryable))


def accepted_task_of(front: Front, accepted: Accepted) -> Task:
    """Show a task that was stored a moment ago, without reading it again."""
    task, stored = accepted.task, accepted.stored
    return Task(
        task_id=task.task_id,
        type=task.type,
        tenant_id=task.tenant_id,
        group=task.task_group,
        status=TaskStatus(stored.status),
        priority_class=task.priority_class,
        priority_reason_code=task.reason_code,
        policy_version=task.policy_version,
        requested_class=task.requested_class,
        source=None if task.source_ref is None else TaskSource(task.source_ref, task.source_version),
        input_ref=task.input_ref,
        cost_class=task.cost_class,
        preemptible=task.preemptible,
        attempts=0,
        max_attempts=task.max_attempts,
        timeout_seconds=task.timeout_seconds,
        next_attempt_at=None,
        submitted_at=stored.submitted_at,
        not_before=task.not_before,
        due_at=task.due_at,
        valid_until=stored.valid_until,
        started_at=None,
        finished_at=None,
        updated_at=stored.submitted_at,
        cancel_requested_at=None,
        progress=None,
        result=None,
        error=None,
        usage=NO_USAGE,
        metadata=raw(task.metadata),
        links=links_of(front, task.task_id, task.traceparent),
        callback=_callback(task.callback_url, None, with_url=True),
    )


def seconds_until(at: datetime, now: datetime) -> float:
    """Tell how many seconds are left."""
    return (at - now).total_seconds()
