"""Approvals: a handler asks; a person decides, once and never about a task of their own; else the question expires."""

import asyncio
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.approvals import (
    DENIED,
    EXPIRED,
    Approval,
    ApprovalState,
    Question,
    covers,
    denied_because,
)
from app.domain.errors import OwnershipLost, Rejected, Snoozed, Suspended
from app.domain.lifecycle import TaskStatus
from app.ids import mint
from app.runtime import Runtime
from app.services.actors import Actor, AuditEntry, check_seen
from app.services.errors import Conflict, Forbidden, NotFound
from app.store import approval_lists
from app.store import approvals as store
from app.store.approval_lists import ApprovalFilter, Position
from app.store.approvals import NewApproval

EXPIRED_MESSAGE = "nobody decided the approval in time"
_LOOKS = 20
_PAUSE_SECONDS = 0.02


async def ask(runtime: Runtime, asked: Question, *, task_id: str, fence: int, priority_class: str) -> Approval:
    """Return the yes to a question of a running attempt.

    Raises Suspended while nobody has decided, Rejected after a no or an expiry, OwnershipLost for a late attempt.
    """
    known = runtime.policy.current.by_name.get(priority_class)
    target = known.approve_within_seconds if known is not None else None
    new = NewApproval(
        approval_id=mint("appr"),
        task_id=task_id,
        fence=fence,
        action=asked.action,
        fingerprint=asked.fingerprint,
        detail=asked.detail,
        due_seconds=asked.expires_seconds if target is None else target,
        expires_seconds=asked.expires_seconds,
    )
    for _ in range(_LOOKS):
        row = await store.ask(runtime.database, new, retry_for_seconds=runtime.settings.database.retry_for_seconds)
        if row is None:
            raise OwnershipLost
        match row.state:
            case None:  # the same question is being asked by another thread of this handler, and is not committed yet
                await asyncio.sleep(_PAUSE_SECONDS)
            case ApprovalState.APPROVED:
                return Approval(row.approval_id, row.decided_by, row.comment, row.decided_at)
            case ApprovalState.DENIED:
                raise Rejected(DENIED, denied_because(row.comment))
            case ApprovalState.EXPIRED:
                raise Rejected(EXPIRED, EXPIRED_MESSAGE)
            case _:
                if row.is_new:
                    runtime.metrics.approval_asked(row.priority_class)
                raise Suspended(row.approval_id)
    raise Snoozed(1.0, "approval_being_asked")


async def approved(runtime: Runtime, *, task_id: str, effect_type: str, key: str) -> bool:
    """Say whether a person has approved this very effect of a task (`app.domain.approvals.covers`)."""
    rows = await store.approved(
        runtime.database, task_id, effect_type, retry_for_seconds=runtime.settings.database.retry_for_seconds
    )
    return any(covers(row.action, row.detail, effect_type, key) for row in rows)


async def page(
    runtime: Runtime, actor: Actor, found: ApprovalFilter, *, after: Position | None, limit: int
) -> Sequence[Row[Any]]:
    """Read up to `limit` approvals by class, oldest due first; a tenant sees its own only."""
    if actor.tenant_id is not None:
        found = dataclasses.replace(found, tenant_id=(actor.tenant_id,))
    classes = [one.name for one in runtime.policy.current.classes]
    async with runtime.database.transaction() as connection:
        return await approval_lists.page(connection, found, classes=classes, after=after, limit=limit)


async def get(runtime: Runtime, actor: Actor, approval_id: str) -> Row[Any]:
    """Read one approval. Raises NotFound."""
    return await runtime.database.run(lambda connection: _seen(connection, actor, approval_id))


async def decide(runtime: Runtime, actor: Actor, approval_id: str, *, approve: bool, comment: str | None) -> Row[Any]:
    """Decide an approval and let its task come back, or end it as rejected; returns the approval's row.

    Raises NotFound, Forbidden (`own_task`: whoever submitted the task, platform admins included) or Conflict
    (`approval_decided`, `approval_expired`, `approval_withdrawn`): of any number of callers one decides.
    """
    entry = AuditEntry(actor, "approval.approve" if approve else "approval.deny")
    state = ApprovalState.APPROVED if approve else ApprovalState.DENIED

    async def once(connection: AsyncConnection) -> tuple[Row[Any], Sequence[Row[Any]]]:
        # Looked at before it is held: a stranger's request must neither wait for the lock nor keep anybody waiting.
        seen = await _seen(connection, actor, approval_id)
        if seen.submitted_by == actor.subject:
            raise Forbidden("The key's subject submitted this task, and cannot decide about it.", code="own_task")
        row = await store.hold(connection, approval_id)
        if row is None:
            raise NotFound
        if row.state == state and await entry.is_written(connection):
            return row, ()
        _check_open(row)
        await store.decide(connection, approval_id, state=state, decided_by=actor.subject, comment=comment)
        ended: Sequence[Row[Any]] = ()
        if approve:
            await store.resume(connection, approval_id, row.task_id)
        else:
            ended = await store.reject(
                connection, {approval_id: row.task_id}, error_type=DENIED, error_message=denied_because(comment)
            )
        detail = json.dumps({"task_id": row.task_id, "action": row.action})
        await entry.write(connection, target=approval_id, tenant_id=row.tenant_id, reason=comment, detail=detail)
        return await _seen(connection, actor, approval_id), ended

    decided, ended = await runtime.database.run(once)
    runtime.metrics.approvals_decided(decided.priority_class, state)
    _tell_rejected(runtime, ended)
    runtime.dispatcher_poke.poke()
    return decided


async def expire_due(runtime: Runtime, limit: int) -> int:
    """Expire up to `limit` approvals whose time is over, and end the tasks that wait for them; returns how many."""

    async def once(connection: AsyncConnection) -> tuple[Sequence[Row[Any]], Sequence[Row[Any]]]:
        over = await store.expire(connection, limit)
        if not over:
            return (), ()
        held = {row.approval_id: row.task_id for row in over}
        return over, await store.reject(connection, held, error_type=EXPIRED, error_message=EXPIRED_MESSAGE)

    over, ended = await runtime.database.run(once, retry_for_seconds=0.0)
    for priority_class, count in Counter(row.priority_class for row in over).items():
        runtime.metrics.approvals_decided(priority_class, ApprovalState.EXPIRED, count)
    _tell_rejected(runtime, ended)
    return len(over)


def _check_open(row: Row[Any]) -> None:
    """Raise Conflict unless somebody may still decide."""
    match row.state:
        case ApprovalState.PENDING:
            return
        case ApprovalState.EXPIRED:
            raise Conflict("approval_expired", "Nobody decided in time.", task_id=row.task_id)
        case ApprovalState.WITHDRAWN:
            raise Conflict("approval_withdrawn", "The task does not ask for it any more.", task_id=row.task_id)
        case _:
            raise Conflict("approval_decided", f"The approval was {row.state} already.", task_id=row.task_id)


def _tell_rejected(runtime: Runtime, ended: Sequence[Row[Any]]) -> None:
    for (priority_class, task_type), count in Counter((row.priority_class, row.type) for row in ended).items():
        runtime.metrics.tasks_finished(priority_class, task_type, TaskStatus.REJECTED, count)
    if ended:
        runtime.tell_ended([row.task_id for row in ended])


async def _seen(connection: AsyncConnection, actor: Actor, approval_id: str) -> Row[Any]:
    row = await store.get(connection, approval_id)
    if row is None:
        raise NotFound
    check_seen(actor, approval_id, row.tenant_id)
    return row
