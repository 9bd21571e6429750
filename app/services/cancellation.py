"""Cancelling one task, and making one due at once; what cancel answers is what stays."""

import asyncio
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.lifecycle import TaskStatus, is_final
from app.runtime import Runtime
from app.services.actors import Actor, AuditEntry, check_seen
from app.services.errors import Conflict, NotFound, Unavailable
from app.store import cancellations
from app.store.tasks import get_tasks

# A task is between two places only while another transaction commits: the next look finds it in one of them.
_LOOKS = 100
_PAUSE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """The task's row after the cancel.

    `requested` when it runs and has been asked to stop, else it is cancelled; `before` when it was that already.
    """

    task: Row[Any]
    requested: bool
    before: bool = False


async def cancel_task(runtime: Runtime, actor: Actor, task_id: str, reason: str | None = None) -> CancelAnswer:
    """Cancel a waiting task at once, or ask a running one to stop; a cancelled one stays as it is.

    Raises NotFound, Conflict (`task_final`) or Unavailable.
    """
    entry = AuditEntry(actor, "task.cancel")

    async def once(connection: AsyncConnection) -> CancelAnswer | None:
        before = await _seen_task(connection, actor, task_id)
        if before.status == TaskStatus.CANCELLED:
            return CancelAnswer(before, requested=False, before=True)
        if is_final(before.status):
            raise Conflict("task_final", f"The task has ended as {before.status}.", task_id=task_id)
        done = await cancellations.cancel(connection, [task_id], actor=actor.subject, reason=reason)
        if not done.cancelled and not done.requested:
            return None
        await entry.write(connection, target=task_id, tenant_id=before.tenant_id, reason=reason)
        after = await _seen_task(connection, actor, task_id)
        return CancelAnswer(after, requested=task_id in done.requested)

    for _ in range(_LOOKS):
        answer = await runtime.database.run(once)
        if answer is not None:
            if not answer.before:
                _count(runtime, answer)
            return answer
        await asyncio.sleep(_PAUSE_SECONDS)
    raise Unavailable("task_moving", "The task kept changing places; ask again.")


def _count(runtime: Runtime, answer: CancelAnswer) -> None:
    task = answer.task
    runtime.metrics.cancellations_requested(task.priority_class)
    if not answer.requested:
        runtime.metrics.tasks_finished(task.priority_class, task.type, TaskStatus.CANCELLED)
        runtime.tell_ended([task.task_id])


async def retry_now(runtime: Runtime, actor: Actor, task_id: str) -> Row[Any]:
    """Make a `failed_retryable` or `scheduled` task due at once and return its row.

    Raises NotFound or Conflict (`task_final`, `task_running`, `task_not_delayed`).
    """

    async def once(connection: AsyncConnection) -> Row[Any]:
        before = await _seen_task(connection, actor, task_id)
        if before.status not in (TaskStatus.FAILED_RETRYABLE, TaskStatus.SCHEDULED):
            raise _not_delayed(before)
        if not await cancellations.hurry(connection, task_id, actor=actor.subject):
            raise _not_delayed(await _seen_task(connection, actor, task_id))
        return await _seen_task(connection, actor, task_id)

    row = await runtime.database.run(once)
    runtime.dispatcher_poke.poke()
    return row


async def _seen_task(connection: AsyncConnection, actor: Actor, task_id: str) -> Row[Any]:
    row = (await get_tasks(connection, [task_id])).get(task_id)
    if row is None:
        raise NotFound
    check_seen(actor, task_id, row.tenant_id)
    return row


def _not_delayed(row: Row[Any]) -> Conflict:
    if is_final(row.status):
        return Conflict("task_final", f"The task has ended as {row.status}.", task_id=row.task_id)
    if row.status == TaskStatus.RUNNING:
        return Conflict("task_running", "The task is running already.", task_id=row.task_id)
    if row.status == TaskStatus.AWAITING_APPROVAL:
        return Conflict("task_not_delayed", "The task waits for an approval, not for a time.", task_id=row.task_id)
    return Conflict("task_not_delayed", "The task waits for its turn, not for a time.", task_id=row.task_id)
